"""Resources that modules may use."""

import datetime
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one server, dialer or relay. None means the runtime's default."""

    memory_bytes: int | None = None
    """Memory of an instance of the module, in bytes. A WATER module has an instance for each
    connection."""
    cpu_per_call: datetime.timedelta | None = None
    """CPU time of one call into the module, beyond which it is restarted. For a WATER module: CPU
    time without a wait, beyond which its connection is closed."""
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
    """The time limit for one connection that a module requests."""
    handshake_timeout: datetime.timedelta | None = None
    """The time limit for a module's connection to become ready, connecting included."""
    handshakes: int | None = None
    """Connections that are accepted but not ready."""
    descriptors: int | None = None
    """Connections that a component has open at once. By default half of the process's descriptors."""
    close_grace: datetime.timedelta | None = None
    """The time that a module has to deliver the remaining data of a closed connection, and then to end. A WATER module has
    five times as long for each while it still moves bytes."""
