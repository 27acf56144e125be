"""The interface of `mitmproxy_rs.wireguard`: a program written for it changes one import."""

import ipaddress
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mitmproxy_watm import server, stream
from mitmproxy_watm._native import genkey, pubkey
from mitmproxy_watm._options import ModuleOptions

__all__ = ["Stream", "WireGuardServer", "genkey", "pubkey", "start_wireguard_server"]


class Stream(stream.Stream):
    """A stream that differs from asyncio's where `mitmproxy_rs.Stream` does."""

    def is_closing(self) -> bool:
        """Returns True also after `write_eof`, which ends the acceptance of data."""
        return self._write_closed or super().is_closing()

    async def wait_closed(self) -> None:
        """Returns at once unless `close` was called."""
        if self._closed:
            await super().wait_closed()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns a fact as any stream, but an unknown name without a default is a `KeyError`."""
        value = super().get_extra_info(name, default)
        if value is None:
            raise KeyError(name)
        return value


class WireGuardServer(server.Server):
    """A WireGuard server in its sandbox."""


async def start_wireguard_server(
    host: str,
    port: int,
    private_key: str,
    peer_public_keys: Sequence[str],
    handle_tcp_stream: Callable[[Stream], Awaitable[None]],
    handle_udp_stream: Callable[[Stream], Awaitable[None]],
) -> WireGuardServer:
    """Serve WireGuard on `host`, an IP address, and `port`.

    Peers are identified by their public keys and may use any address inside the tunnel. Raises
    `ValueError` for an invalid key or host, `OSError` for a port in use.
    """
    pubkey(private_key)
    for key in peer_public_keys:
        pubkey(key)  # any 32 bytes can be either
    return await server.start(
        WireGuardServer,
        Stream,
        "wireguard",
        str(ipaddress.ip_address(host)),
        port,
        ModuleOptions(
            config=json.dumps({"server_key": private_key, "peer_public_keys": list(peer_public_keys)}),
            ipv6_only=True,  # so that 0.0.0.0 and :: can each have a server on one port
        ),
        handle_tcp_stream,
        handle_udp_stream,
    )
