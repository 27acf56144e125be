"""What modules may use."""

import datetime
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one server, dialer or relay may use; None is the runtime's default."""

    memory_bytes: int | None = None
    """Memory of an instance of the module. A WATER module has an instance for each connection."""
    cpu_per_call: datetime.timedelta | None = None
    """CPU time of one call into the module; past it the module is restarted. Of a WATER module:
    CPU time without a wait, past which its connection is closed."""
    flows: int | None = None
    """Flows open at once."""
    accept_backlog: int | None = None
    """Flows that wait for their handler."""
    stream_buffer_bytes: int | None = None
    """Bytes of a TCP flow that wait to be read."""
    datagram_queue: int | None = None
    """Datagrams of a UDP flow that wait, in each direction."""
    record_bytes: int | None = None
    """Bytes of a recording, after which it ends."""
    connect_timeout: datetime.timedelta | None = None
    """How long one connection that a module asks for may take."""
    handshake_timeout: datetime.timedelta | None = None
    """How long a module may take until its connection is ready, connecting included."""
    handshakes: int | None = None
    """Connections that are accepted and not yet ready."""
    descriptors: int | None = None
    """Connections that a component has open at once. By default half of the process's descriptors."""
    close_grace: datetime.timedelta | None = None
    """How long a module may take to pass on what was written before its connection was closed."""
