"""Transports in a sandbox, for asyncio and for mitmproxy.

A transport such as WireGuard is a WebAssembly module. `start_server` runs one on a UDP or TCP port
and calls a handler with a `Stream` for each connection that comes through it:

    server = await mitmproxy_watm.start_server(
        "wireguard", "127.0.0.1", 51820, config=open("server.conf").read(), handle_tcp_stream=echo
    )

`open_connection` is a client: it connects to an address through a module and returns a `Stream`.
`open_datagrams` does the same for datagrams, and `start_dialer` runs a module for many of both.

Modules that are not part of this package are loaded if the user trusts their seal (`watm trust`),
or with `unsealed=True`, for development, if they have none.

Modules of the WATER project (v0 and v1) support both, and `start_relay`.

`mitmproxy_watm.wireguard` has the interface of `mitmproxy_rs.wireguard`, and
`mitmproxy_watm.mitmproxy` is a proxy mode, `watm:wireguard`, for mitmproxy.
"""

from mitmproxy_watm._native import (
    Capabilities,
    ClientConfig,
    Module,
    ModuleError,
    PeerStatus,
    Seal,
    Status,
    UpdateStatus,
    Used,
    __version__,
)
from mitmproxy_watm.applications import Applications
from mitmproxy_watm.connection import Relay, open_connection, open_datagrams, open_fixed_connection, start_relay
from mitmproxy_watm.dialer import Dialer, start_dialer
from mitmproxy_watm.limits import Limits
from mitmproxy_watm.modules import load_module
from mitmproxy_watm.server import Server, start_server
from mitmproxy_watm.stream import Stream
from mitmproxy_watm.updates import Updates, UpdateSource

__all__ = [
    "Applications",
    "Capabilities",
    "ClientConfig",
    "Dialer",
    "Limits",
    "Module",
    "ModuleError",
    "PeerStatus",
    "Relay",
    "Seal",
    "Server",
    "Status",
    "Stream",
    "UpdateSource",
    "UpdateStatus",
    "Updates",
    "Used",
    "__version__",
    "load_module",
    "open_connection",
    "open_datagrams",
    "open_fixed_connection",
    "start_dialer",
    "start_relay",
    "start_server",
]
