"""An addon that prints each flow as a line of JSON, answers requests without a server, and obeys
its standard input: {"command": "..."}, {"options": {...}} or {"modes": true}."""

import asyncio
import ipaddress
import json
import sys
import time

from mitmproxy import ctx, dns, http

from mitmproxy_watm.mitmproxy import peer


class Observer:
    def __init__(self):
        self.tasks = set()

    def load(self, loader):
        loader.add_option("echo_port", int, 0, "where connections to port 7 go")

    def running(self):
        task = asyncio.get_running_loop().create_task(self.obey())
        self.tasks.add(task)

    async def obey(self):
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            try:
                if "command" in request:
                    answer = ctx.master.commands.execute(request["command"])
                elif "options" in request:
                    ctx.options.update(**request["options"])
                    answer = None
                else:
                    answer = ctx.options.mode
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            note(answer=answer)

    def server_connect(self, data):
        if data.server.address[1] == 7:
            note(connect=data.server.address)
            data.server.address = ("127.0.0.1", ctx.options.echo_port)

    def requestheaders(self, flow: http.HTTPFlow):
        note_flow(flow.request.scheme, flow, url=flow.request.pretty_url)

    def request(self, flow: http.HTTPFlow):
        flow.response = http.Response.make(200, f"from inside {flow.request.path}", {"content-type": "text/plain"})

    def dns_request(self, flow: dns.DNSFlow):
        question = flow.request.question
        if question.name == "only.here":
            flow.response = flow.request.succeed(
                [dns.ResourceRecord.A(question.name, ipaddress.IPv4Address("203.0.113.7"))]
            )

    def dns_response(self, flow: dns.DNSFlow):
        note_flow("dns", flow, name=flow.request.question.name)

    def tcp_message(self, flow):
        note_flow("tcp", flow, content=flow.messages[-1].content.decode(), from_client=flow.messages[-1].from_client)

    def udp_message(self, flow):
        note_flow("udp", flow, content=flow.messages[-1].content.decode(), from_client=flow.messages[-1].from_client)


def note_flow(kind, flow, **facts):
    client = flow.client_conn
    found = peer(client)
    note(
        flow=kind,
        peername=client.peername,
        sockname=client.sockname,
        server=flow.server_conn and flow.server_conn.address,
        mode=client.proxy_mode.full_spec,
        metadata=flow.metadata,
        peer=found and found.name,
        copied=flow.copy().metadata.get("watm_peer"),
        time=time.time(),
        **facts,
    )


def note(**facts):
    print("NOTE " + json.dumps(facts), flush=True)


addons = [Observer()]
