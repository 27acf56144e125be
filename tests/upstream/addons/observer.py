"""An addon that prints the outcome of each flow as a line of JSON, and obeys its standard input:
{"command": "..."} or {"options": {...}}.
"""

import asyncio
import json
import sys

from mitmproxy import ctx

from mitmproxy_watm.mitmproxy import upstream_of


class Observer:
    def __init__(self):
        self.tasks = set()

    def running(self):
        self.tasks.add(asyncio.get_running_loop().create_task(self.obey()))

    async def obey(self):
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            try:
                if "command" in request:
                    answer = ctx.master.commands.execute(request["command"])
                else:
                    ctx.options.update(**request["options"])
                    answer = None
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            note(answer=answer)

    def response(self, flow):
        note_flow("http", flow, version=flow.response.http_version, said=flow.response.text)

    def error(self, flow):
        note_flow("error", flow, said=flow.error.msg)

    def tcp_error(self, flow):
        note_flow("error", flow, said=flow.error.msg)

    def server_connect_error(self, data):
        note(refused=data.server.error)

    def tcp_message(self, flow):
        if not flow.messages[-1].from_client:
            note_flow("tcp", flow, said=flow.messages[-1].content.decode())

    def udp_message(self, flow):
        if not flow.messages[-1].from_client:
            note_flow("udp", flow, said=flow.messages[-1].content.decode())

    def dns_response(self, flow):
        note_flow("dns", flow, said=[str(answer) for answer in flow.response.answers])


def note_flow(kind, flow, **facts):
    server = flow.server_conn
    note(
        flow=kind,
        upstream=upstream_of(flow),
        saved=flow.copy().metadata.get("watm_upstream"),
        address=server and server.address,
        peername=server and server.peername,
        **facts,
    )


def note(**facts):
    print("NOTE " + json.dumps(facts), flush=True)


addons = [Observer()]
