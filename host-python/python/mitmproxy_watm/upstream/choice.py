"""Which upstream a connection goes through: what addons say, and what it came to."""

from weakref import WeakKeyDictionary

from mitmproxy.connection import Client, Server
from mitmproxy.flow import Flow

UPSTREAM = "watm_upstream"
"""Under which a flow's metadata has the name of its upstream."""


def use_upstream(of: Flow | Client | Server, name: str | None) -> None:
    """Have connections go through the upstream `name`, whatever routes say; "direct": past all of them;
    None: as routes say.

    Of a server connection, in the hook `server_connect`: that one. Of a client: all that are opened on
    its behalf from now on. Of a flow: its client's. Connections that are open stay as they are. An
    upstream that there is not fails the connection.
    """
    if isinstance(of, Flow):
        of = of.client_conn
    if name is None:
        _chosen.pop(of, None)
    else:
        _chosen[of] = name


def upstream_of(of: Flow | Server) -> str | None:
    """The name of the upstream that a connection went through; None: it was direct.

    Of a flow that was saved and loaded too: `flow.metadata` keeps it, as "watm_upstream".
    """
    if isinstance(of, Flow):
        saved: str | None = of.metadata.get(UPSTREAM)
        return saved if of.server_conn is None else _used.get(of.server_conn, saved)
    return _used.get(of)


def chosen(client: Client, server: Server) -> str | None:
    """What an addon said."""
    return _chosen.get(server, _chosen.get(client))


def note(server: Server, name: str) -> None:
    """It goes through this one."""
    _used[server] = name


def annotate(flow: Flow) -> None:
    """Note in a flow's metadata which upstream it went through."""
    name = None if flow.server_conn is None else _used.get(flow.server_conn)
    if name is not None:
        flow.metadata[UPSTREAM] = name


_chosen: WeakKeyDictionary[Client | Server, str] = WeakKeyDictionary()
_used: WeakKeyDictionary[Server, str] = WeakKeyDictionary()
