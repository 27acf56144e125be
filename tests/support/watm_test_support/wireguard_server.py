"""A server with a real WireGuard client connected to it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import mitmproxy_watm
from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.wgclient import WgClient

# A destination inside the tunnel; any address works.
TARGET = "10.9.8.7:80"


@dataclass
class Keys:
    """The keys of one server and one client."""

    server: str
    client: str

    @classmethod
    def new(cls) -> "Keys":
        return cls(genkey(), genkey())

    @property
    def config(self) -> str:
        """mitmproxy's wireguard.conf with these keys."""
        return json.dumps({"server_key": self.server, "client_key": self.client})

    def client_options(self, port: int, host: str = "127.0.0.1") -> dict[str, Any]:
        """Returns options for `WgClient.start`."""
        return {
            "server": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "private_key": self.client,
            "peer_public_key": pubkey(self.server),
        }


class Served:
    """A server whose flows wait here for the test."""

    def __init__(self, server: mitmproxy_watm.Server, client: WgClient, keys: Keys) -> None:
        self.server = server
        self.client = client
        self.keys = keys
        self.streams: asyncio.Queue[mitmproxy_watm.Stream] = asyncio.Queue()

    @asynccontextmanager
    async def tcp(self, to: str = TARGET) -> AsyncIterator[tuple[Any, mitmproxy_watm.Stream]]:
        """Yields both ends of a new connection: the client's socket, the server's stream."""
        async with self.client.tcp(to) as socket:
            yield socket, await self.streams.get()

    @asynccontextmanager
    async def udp(self, first: bytes = b"first", to: str = TARGET) -> AsyncIterator[tuple[Any, mitmproxy_watm.Stream]]:
        """Yields both ends of a new UDP flow, on which the client has sent one datagram."""
        async with self.client.udp(to) as socket:
            await socket.write(first)
            yield socket, await self.streams.get()


@asynccontextmanager
async def serve(keys: Keys | None = None, client_flags: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Served]:
    """Runs a WireGuard server on a port of its own, and a client of it."""
    keys = keys or Keys.new()
    served: Served

    async def handle(stream: mitmproxy_watm.Stream) -> None:
        served.streams.put_nowait(stream)

    handlers = {"handle_tcp_stream": handle, "handle_udp_stream": handle} | options
    async with await mitmproxy_watm.start_server("wireguard", "127.0.0.1", 0, config=keys.config, **handlers) as server:
        port = server.getsockname()[1]
        async with WgClient.start(**keys.client_options(port), **(client_flags or {})) as client:
            served = Served(server, client, keys)
            yield served
