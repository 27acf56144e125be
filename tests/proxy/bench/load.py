"""An upstream and its clients, each in a process of its own."""

import contextlib
import itertools
import multiprocessing
import selectors
import socket
import time
from collections.abc import Iterator

from ..headers import version_2

CONNECTIONS = 50
BURST = 200
PING = b"PING"
# Seconds. A SYN that is dropped is repeated after 1, 3, 7 and 15 seconds.
LIMIT = 30


def _answer(address: str, port: int, ready) -> None:
    selector = selectors.DefaultSelector()
    listener = socket.create_server((address, port), backlog=1024)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    datagrams.bind((address, port))
    for each in (listener, datagrams):
        each.setblocking(False)
        selector.register(each, selectors.EVENT_READ)
    ready.set()
    while True:
        for key, _ in selector.select():
            with contextlib.suppress(BlockingIOError, ConnectionError):
                if key.fileobj is listener:
                    while True:
                        connection, _ = listener.accept()
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        connection.setblocking(False)
                        selector.register(connection, selectors.EVENT_READ)
                elif key.fileobj is datagrams:
                    while True:
                        datagram, peer = datagrams.recvfrom(65536)
                        datagrams.sendto(datagram, peer)
                elif data := key.fileobj.recv(65536):
                    key.fileobj.sendall(data)
                    continue
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


@contextlib.contextmanager
def echo(address: str, port: int) -> Iterator[None]:
    """Runs an echo server in this thread's namespace."""
    fork = multiprocessing.get_context("fork")
    ready = fork.Event()
    process = fork.Process(target=_answer, args=(address, port, ready), daemon=True)
    process.start()
    assert ready.wait(LIMIT)
    try:
        yield
    finally:
        process.kill()
        process.join()


_clients = itertools.count()


def _header(*, udp: bool = False) -> bytes:
    """Returns the header of a new client."""
    number = next(_clients)
    client = f"203.0.113.{1 + number % 250}"
    return version_2(client, "198.51.100.1", 10000 + number // 250, udp=udp)


def ping(address: str, port: int, protocol: str, seconds: float) -> float:
    """Returns answers per second. Each client sends a request when it has its answer."""
    udp = protocol == "udp"
    selector = selectors.DefaultSelector()
    clients = {}
    for _ in range(CONNECTIONS):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if udp else socket.SOCK_STREAM)
        client.settimeout(LIMIT)
        client.connect((address, port))
        header = _header(udp=udp)
        question = header + PING if udp else PING
        if not udp:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.send(header)
        client.send(question)
        clients[client] = question
        selector.register(client, selectors.EVENT_READ)
    answers, began = 0, time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        for key, _ in selector.select(1):
            assert key.fileobj.recv(64) == PING
            answers += 1
            key.fileobj.send(clients[key.fileobj])
    for client in clients:
        client.close()
    return answers / (now - began)


def burst(address: str, port: int, protocol: str, seconds: float) -> float:
    """Returns the seconds until connections that are opened at once all have their answer."""
    selector = selectors.DefaultSelector()
    began = time.monotonic()
    for _ in range(BURST):
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        client.setblocking(False)
        client.connect_ex((address, port))
        selector.register(client, selectors.EVENT_WRITE)
    open_ = BURST
    while open_:
        events = selector.select(LIMIT)
        assert events, f"{open_} connections are not answered"
        for key, mask in events:
            if mask & selectors.EVENT_WRITE:
                key.fileobj.send(_header() + PING)
                selector.modify(key.fileobj, selectors.EVENT_READ)
            else:
                assert key.fileobj.recv(64) == PING
                selector.unregister(key.fileobj)
                key.fileobj.close()
                open_ -= 1
    return time.monotonic() - began
