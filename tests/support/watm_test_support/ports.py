"""Ports for programs that must be told theirs."""

import contextlib
import random
import socket

# Below the ports that the kernel assigns to any request (net.ipv4.ip_local_port_range in tcp(7)),
# which another program could get a moment later.
_FIRST, _LAST = 10_000, 32_000
_ATTEMPTS = 1000

# Held for as long as this process lives: a name for each port, so that concurrent tests on this
# machine get each port once. The names are abstract ones of unix(7), which leave no files.
_held: list[socket.socket] = []


def free_port() -> int:
    """Returns a port that is free at every IPv4 address, for TCP and UDP, and that no other test gets."""
    for port in random.SystemRandom().sample(range(_FIRST, _LAST), _ATTEMPTS):
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            name.bind(f"\0watm-test-port-{port}")
            with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
                tcp.bind(("", port))
                udp.bind(("", port))
            _held.append(name)
            return port
        name.close()
    raise OSError(f"{_ATTEMPTS} ports from {_FIRST} to {_LAST} are in use")
