"""Transports in a sandbox, for asyncio and for mitmproxy.

A transport such as WireGuard is a WebAssembly module. `start_server` runs one on a UDP or TCP
port and calls a handler with a `Stream` for each connection that comes through it:

    server = await mitmproxy_watm.start_server(
        "wireguard", "127.0.0.1", 51820, config=open("wg0.conf").read(), handle_tcp_stream=echo
    )

`mitmproxy_watm.wireguard` has the interface of `mitmproxy_rs.wireguard`, and
`mitmproxy_watm.mitmproxy` is a proxy mode, `watm:wireguard`, for mitmproxy.
"""

from mitmproxy_watm._native import ClientConfig, ModuleError, PeerStatus, Status, __version__
from mitmproxy_watm.server import Limits, Server, start_server
from mitmproxy_watm.stream import Stream

__all__ = [
    "ClientConfig",
    "Limits",
    "ModuleError",
    "PeerStatus",
    "Server",
    "Status",
    "Stream",
    "__version__",
    "start_server",
]
