"""Ports for programs that must be told theirs."""

import contextlib
import random
import selectors
import socket

# Below the ports that the kernel assigns to any request (net.ipv4.ip_local_port_range in tcp(7)),
# which another program could get a moment later.
_FIRST, _LAST = 10_000, 32_000
_ATTEMPTS = 1000
# Seconds in which a datagram arrives.
_ARRIVAL = 10

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


def ports_by_worker(address: str, port: int, workers: int, each: int) -> list[list[int]]:
    """Returns ports for UDP clients on this address: for each worker that will have a socket on
    `port`, `each` ports whose datagrams the kernel passes to it.

    The kernel chooses among the sockets of a port by both addresses and ports, and by the number of
    sockets. So each candidate sends a datagram to as many sockets as there are workers.
    """
    ports: list[list[int]] = [[] for _ in range(workers)]
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for found in ports:
            made = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.bind((address, port))
            selector.register(made, selectors.EVENT_READ, found)
        while min(map(len, ports)) < each:
            candidate = free_port()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.bind((address, candidate))
                client.sendto(b"", (address, port))
            [(key, _)] = selector.select(_ARRIVAL)
            key.fileobj.recv(1)
            key.data.append(candidate)
    return [found[:each] for found in ports]
