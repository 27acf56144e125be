"""The module in the Python host: a server that forwards flows as a proxy does, and clients."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import mitmproxy_watm
from mitmproxy_watm import Stream
from watm_test_support.repository import MODULES

from .methods import password
from .peers import HOST

COMPONENT = MODULES / "shadowsocks.wasm"
WATER = COMPONENT.with_name("shadowsocks.watm1.wasm")


def config(method: str, **more: Any) -> str:
    """Returns a configuration with this method."""
    return json.dumps({"method": method, "password": password(method)} | more)


class Proxy:
    """A server with the module, and the destinations of its flows."""

    def __init__(self) -> None:
        self.port = 0
        self.server: mitmproxy_watm.Server
        self.seen: list[dict[str, Any]] = []

    def counter(self, name: str) -> int:
        """Returns the value of a counter of the module."""
        return dict(self.server.status().counters)[name]

    async def _tcp(self, stream: Stream) -> None:
        self._note("tcp", stream)
        reader, writer = await asyncio.open_connection(*stream.get_extra_info("sockname")[:2])
        await asyncio.gather(_copy(stream, writer), _copy(reader, stream))
        writer.close()
        stream.close()

    async def _udp(self, stream: Stream) -> None:
        self._note("udp", stream)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Back(stream), remote_addr=stream.get_extra_info("sockname")[:2]
        )
        while (datagram := await stream.read(65536)) or not stream.at_eof():
            transport.sendto(datagram)
        transport.close()

    def _note(self, kind: str, stream: Stream) -> None:
        names = ("peername", "sockname", "peer")
        self.seen.append({"kind": kind} | {name: stream.get_extra_info(name) for name in names})


class _Back(asyncio.DatagramProtocol):
    """Writes answers to their UDP flow."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._stream.write(data)


async def _copy(source: Any, target: Any) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.write_eof()


@contextlib.asynccontextmanager
async def proxy(configuration: str, **options: Any) -> AsyncIterator[Proxy]:
    """Runs a server with the module, on TCP and UDP."""
    running = Proxy()
    settings = {"config": configuration, "transport": "both", "unsealed": True} | options
    handlers = {"handle_tcp_stream": running._tcp, "handle_udp_stream": running._udp}
    async with await mitmproxy_watm.start_server(COMPONENT, HOST, 0, **handlers, **settings) as server:
        running.server = server
        running.port = server.getsockname()[1]
        yield running


async def dial(configuration: str, host: str, port: int, server: int) -> Stream:
    """Opens a connection through the server at this port."""
    return await mitmproxy_watm.open_connection(
        COMPONENT, host, port, config=configuration, allow=[f"{HOST}:{server}"], unsealed=True
    )
