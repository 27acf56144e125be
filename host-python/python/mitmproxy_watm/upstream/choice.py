"""The upstreams of connections: choices of addons, and the results."""

from weakref import WeakKeyDictionary

from mitmproxy.connection import Client, Server
from mitmproxy.flow import Flow

UPSTREAM = "watm_upstream"
"""The key of the upstream's name in a flow's metadata."""


def use_upstream(of: Flow | Client | Server, name: str | None) -> None:
    """Make connections go through the upstream `name`, whatever routes say. "direct" bypasses all
    upstreams; None follows the routes.

    For a server connection, in the hook `server_connect`: that one. For a client: all that are
    opened on its behalf from now on. For a flow: those of its client. Open connections stay as they
    are. An unknown upstream fails the connection.
    """
    if isinstance(of, Flow):
        of = of.client_conn
    if name is None:
        _chosen.pop(of, None)
    else:
        _chosen[of] = name


def upstream_of(of: Flow | Server) -> str | None:
    """Returns the name of the upstream that a connection went through; None if it was direct.

    Works for saved and loaded flows too: `flow.metadata` keeps it, as "watm_upstream".
    """
    if isinstance(of, Flow):
        saved: str | None = of.metadata.get(UPSTREAM)
        return saved if of.server_conn is None else _used.get(of.server_conn, saved)
    return _used.get(of)


def chosen(client: Client, server: Server) -> str | None:
    """Returns the choice of an addon."""
    return _chosen.get(server, _chosen.get(client))


def note(server: Server, name: str) -> None:
    """Remember the upstream of a connection."""
    _used[server] = name


def annotate(flow: Flow) -> None:
    """Write the upstream into a flow's metadata."""
    name = None if flow.server_conn is None else _used.get(flow.server_conn)
    if name is not None:
        flow.metadata[UPSTREAM] = name


_chosen: WeakKeyDictionary[Client | Server, str] = WeakKeyDictionary()
_used: WeakKeyDictionary[Server, str] = WeakKeyDictionary()
