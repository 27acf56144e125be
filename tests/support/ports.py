"""Ports for programs that have to be told theirs."""

import contextlib
import random
import socket

# Below those that the kernel gives to whoever asks for any (net.ipv4.ip_local_port_range in
# tcp(7)): one of these somebody else may have a moment later.
_FIRST, _LAST = 10_000, 32_000
_ATTEMPTS = 1000


def free_port() -> int:
    """One that nobody has at any address of IPv4, neither for TCP nor for UDP."""
    for port in random.SystemRandom().sample(range(_FIRST, _LAST), _ATTEMPTS):
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp, contextlib.suppress(OSError):
            tcp.bind(("", port))
            udp.bind(("", port))
            return port
    raise OSError(f"{_ATTEMPTS} ports from {_FIRST} to {_LAST} are in use")
