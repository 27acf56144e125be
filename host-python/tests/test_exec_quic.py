"""HTTP/3 of a program in `mitmdump-watm exec`: aioquic as the client, in the program, and as the server outside."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, QuicEvent

from watm_test_support import needs
from watm_test_support.certificates import Authority
from watm_test_support.mitmproxy_programs import BIN

ADDON = """
from mitmproxy import ctx

class Addon:
    def load(self, loader):
        loader.add_option("test_server", int, 0, "")

    def server_connect(self, data):
        data.server.address = ("127.0.0.1", ctx.options.test_server)

    def response(self, flow):
        print("seen", flow.request.pretty_url, flow.request.http_version, flow.response.http_version, len(flow.response.content))

addons = [Addon()]
"""

CLIENT = """
import asyncio, sys
from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

class Client(QuicConnectionProtocol):
    http = None

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        for event in self.http.handle_event(event) if self.http else []:
            if isinstance(event, HeadersReceived):
                self.status = dict(event.headers)[b":status"].decode()
            if isinstance(event, DataReceived):
                self.body += event.data
                if event.stream_ended:
                    self.done.set_result(None)

async def main():
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="quic.test")
    configuration.load_verify_locations(sys.argv[2])
    async with asyncio.timeout(40), connect(sys.argv[1], 443, configuration=configuration, create_protocol=Client) as client:
        client.body, client.done = b"", asyncio.Future()
        stream = client._quic.get_next_available_stream_id()
        headers = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"quic.test"), (b":path", b"/page")]
        client.http.send_headers(stream, headers, end_stream=True)
        client.transmit()
        await client.done
        print(client.status, len(client.body), client.body == bytes(range(250)) * 4000)

asyncio.run(main())
"""

PAGE = bytes(range(250)) * 4000
"""A page of a megabyte, which needs hundreds of datagrams."""


class _Pages(QuicConnectionProtocol):
    """A server that answers each request with a page."""

    _http: H3Connection | None = None

    def quic_event_received(self, event: QuicEvent) -> None:
        """Answers requests."""
        if isinstance(event, ProtocolNegotiated):
            self._http = H3Connection(self._quic)
        if self._http is not None:
            for received in self._http.handle_event(event):
                self._answer(self._http, received)

    def _answer(self, http: H3Connection, event: H3Event) -> None:
        if isinstance(event, HeadersReceived):
            path = dict(event.headers)[b":path"]
            http.send_headers(event.stream_id, [(b":status", b"200" if path == b"/page" else b"404")])
            http.send_data(event.stream_id, PAGE, end_stream=True)
            self.transmit()


@contextlib.asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[int]:
    """Runs an HTTP/3 server on a loopback address. Yields its port."""
    leaf = Authority("the server's").sign("quic.test", names=["quic.test"])
    (folder / "chain.pem").write_text(leaf.chain)
    (folder / "key.pem").write_text(leaf.key)
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(folder / "chain.pem", folder / "key.pem")
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=_Pages)
    try:
        assert server._transport is not None
        yield server._transport.get_extra_info("sockname")[1]
    finally:
        server.close()


@pytest.mark.limit(120)
@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7"])
async def test_http3_of_a_program_is_a_flow(tmp_path: Path, address: str) -> None:
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        needs.root("devices of this machine")
    addon = tmp_path / "addon.py"
    addon.write_text(ADDON)
    async with _server(tmp_path) as port:
        process = await asyncio.create_subprocess_exec(
            str(BIN / "mitmdump-watm"),
            *("--set", f"confdir={tmp_path}", "-s", str(addon), "--set", f"test_server={port}"),
            *("--set", "ssl_insecure=true", "--set", "connection_strategy=lazy"),
            *("exec", "--", sys.executable, "-c", CLIENT, address, str(tmp_path / "mitmproxy-ca-cert.pem")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output, errors = await process.communicate()
    said = errors.decode()
    # The program verified the certificate, which is mitmproxy's.
    assert (process.returncode, output.decode()) == (0, "200 1000000 True\n"), said
    assert "seen https://quic.test/page HTTP/3 HTTP/3 1000000" in said
    assert "Traceback" not in said
