"""Peers behind connections, as transports authenticate them, for addons."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mitmproxy.connection import Client
from mitmproxy.flow import Flow

from mitmproxy_watm.stream import Stream

PEER = "watm_peer"
ENDPOINT = "watm_endpoint"


@dataclass(frozen=True)
class Peer:
    """A remote party."""

    name: str
    """The identity that the transport authenticated; for WireGuard the public key."""
    endpoint: str | None
    """The address that it sends from, outside the tunnel, as address:port."""


def peer(of: Flow | Client) -> Peer | None:
    """Returns the peer behind a flow or a client connection; None if it did not come through a
    module.

    Works for saved and loaded flows too: `flow.metadata` keeps it, as "watm_peer" and
    "watm_endpoint".
    """
    client = of.client_conn if isinstance(of, Flow) else of
    found = _peers.get(client)
    if found is None and isinstance(of, Flow) and PEER in of.metadata:
        return Peer(of.metadata[PEER], of.metadata.get(ENDPOINT))
    return found


def remember(client: Client, stream: Stream) -> None:
    """Remember the peer of `stream`, for as long as `client` is in use."""
    name = stream.get_extra_info("peer", "")
    source = stream.get_extra_info("original_src", ())
    if name:
        _peers[client] = Peer(name, _join(*source) if source else None)


def annotate(flow: Flow) -> None:
    """Write the peer into a flow's metadata."""
    found = _peers.get(flow.client_conn)
    if found is not None:
        flow.metadata[PEER] = found.name
        if found.endpoint is not None:
            flow.metadata[ENDPOINT] = found.endpoint


_peers: WeakKeyDictionary[Client, Peer] = WeakKeyDictionary()


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
