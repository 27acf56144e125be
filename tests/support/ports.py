"""Ports for programs that have to be told theirs."""

import contextlib
import random
import socket

# Below those that the kernel gives to whoever asks for any (net.ipv4.ip_local_port_range in
# tcp(7)): one of these somebody else may have a moment later.
_FIRST, _LAST = 10_000, 32_000
_ATTEMPTS = 1000

# Held for as long as this process lives: a name for each port, of which all tests that run on this
# machine give one away once. The names are abstract ones of unix(7), which leave no files.
_held: list[socket.socket] = []


def free_port() -> int:
    """One that nobody has at any address of IPv4, neither for TCP nor for UDP, and that no other test is given."""
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
