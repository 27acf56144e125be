"""A plugin of pytest that puts our server in the place of `mitmproxy_rs.wireguard`.

With it, mitmproxy's own tests of its WireGuard mode run against the module:

    make test-mitmproxy MITMPROXY=path/to/a/checkout/of/12.2.3

They are in mitmproxy's repository alone, not in its packages, so `make test` cannot rely on them.
mitmproxy asks whether a stream or a server is one of mitmproxy_rs's classes; what it would conclude
is said in other ways here.
"""

from types import SimpleNamespace

import mitmproxy_rs

from mitmproxy_watm import wireguard

started: list[wireguard.WireGuardServer] = []


class Server:
    """Looks like one of asyncio's: has `sockets`."""

    def __init__(self, server: wireguard.WireGuardServer) -> None:
        self._server = server
        self.sockets = [SimpleNamespace(getsockname=server.getsockname)]

    def __getattr__(self, name: str):
        return getattr(self._server, name)


async def start_wireguard_server(host, port, private_key, peer_public_keys, handle_tcp_stream, handle_udp_stream):
    """Ours; streams are given as reader and as writer."""
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
    """A run that went past us proves nothing."""
    if not started:
        session.exitstatus = 1
