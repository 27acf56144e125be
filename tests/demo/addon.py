"""mitmproxy's addon in the demo: resolves one name, sends connections to unassigned addresses to servers on this
machine, and writes each flow as a line of JSON.
"""

import ipaddress
import json
from collections.abc import Sequence

from mitmproxy import ctx, dns, flow, http, udp


class Demo:
    def load(self, loader) -> None:
        loader.add_option("demo_name", str, "", "the name that only the demo knows")
        loader.add_option("demo_address", str, "", "the name's address inside the tunnel")
        loader.add_option("demo_servers", Sequence[str], [], "who stands in for whom: ADDRESS:PORT=PORT-HERE")
        loader.add_option("demo_notes", str, "", "the file for the notes")

    def server_connect(self, data) -> None:
        servers = dict(entry.split("=") for entry in ctx.options.demo_servers)
        here = servers.get(_text(data.server.address))
        if here:
            data.server.address = ("127.0.0.1", int(here))

    def dns_request(self, flow: dns.DNSFlow) -> None:
        question = flow.request.question
        if question and question.name == ctx.options.demo_name:
            address = ipaddress.IPv4Address(ctx.options.demo_address)
            flow.response = flow.request.succeed([dns.ResourceRecord.A(question.name, address)])

    def dns_response(self, flow: dns.DNSFlow) -> None:
        answers = ", ".join(map(str, flow.response.answers))
        self._note("dns", flow, f"{flow.request.question} is {answers}")

    def response(self, flow: http.HTTPFlow) -> None:
        request, response = flow.request, flow.response
        what = f"{request.method} {request.pretty_url}: {response.status_code}, {len(response.content)} bytes"
        self._note(request.scheme, flow, what)

    def udp_message(self, flow: udp.UDPFlow) -> None:
        message = flow.messages[-1]
        if not message.from_client:
            self._note("udp", flow, f"answer {message.content.decode(errors='replace')!r}")

    def _note(self, kind: str, seen: flow.Flow, what: str) -> None:
        client = seen.client_conn
        note = {
            "kind": kind,
            "from": _text(client.peername),
            "to": _text(client.sockname),
            "peer": seen.metadata.get("watm_peer"),
            "what": what,
        }
        with open(ctx.options.demo_notes, "a") as notes:
            notes.write(json.dumps(note) + "\n")


def _text(address: tuple) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


addons = [Demo()]
