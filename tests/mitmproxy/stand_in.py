"""A pytest plugin that replaces `mitmproxy_rs.wireguard` with the module's server.

With it, mitmproxy's own tests of its WireGuard mode run against the module:

    make test-mitmproxy MITMPROXY=path/to/a/checkout/of/12.3.1

They are in mitmproxy's repository alone, not in its packages, so `make test` cannot rely on them.
mitmproxy checks whether a stream or a server is of a class of mitmproxy_rs. The plugin answers
these checks in other ways.
"""

from types import SimpleNamespace

import mitmproxy_rs

from mitmproxy_watm import wireguard

started: list[wireguard.WireGuardServer] = []


class Server:
    """Has `sockets`, like a server of asyncio."""

    def __init__(self, server: wireguard.WireGuardServer) -> None:
        self._server = server
        self.sockets = [SimpleNamespace(getsockname=server.getsockname)]

    def __getattr__(self, name: str):
        return getattr(self._server, name)


async def start_wireguard_server(host, port, private_key, peer_public_keys, handle_tcp_stream, handle_udp_stream):
    """Starts the module's server. Passes each stream as reader and as writer."""
    server = await wireguard.start_wireguard_server(
        host,
        port,
        private_key,
        peer_public_keys,
        lambda stream: handle_tcp_stream(stream, stream),
        lambda stream: handle_udp_stream(stream, stream),
    )
    started.append(server)
    return Server(server)


mitmproxy_rs.wireguard.start_wireguard_server = start_wireguard_server
mitmproxy_rs.wireguard.genkey = wireguard.genkey
mitmproxy_rs.wireguard.pubkey = wireguard.pubkey


def pytest_terminal_summary(terminalreporter) -> None:
    terminalreporter.write_line(f"servers of ours that the tests started: {len(started)}")


def pytest_sessionfinish(session) -> None:
    """Fails a run that did not use the module."""
    if not started:
        session.exitstatus = 1
