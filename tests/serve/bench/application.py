"""The application behind the server: a process that counts its traffic."""

import contextlib
import multiprocessing
import selectors
import socket
from collections.abc import Callable, Iterator
from multiprocessing.sharedctypes import Synchronized

from watm_test_support import pattern

HOST = "127.0.0.1"
# Seconds until the process must listen.
LIMIT = 10
READ = 1 << 20


class Application:
    """Listens on a TCP and a UDP port. Each connection has the behaviour of a service."""

    def __init__(self, port: int, service: str, count: Synchronized) -> None:
        self._count = count
        self._selector = selectors.DefaultSelector()
        self._buffer = bytearray(READ)
        answer = {"sink": self._sink, "source": self._source, "echo": self._echo}[service]
        listener = socket.create_server((HOST, port), backlog=1024)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind((HOST, port))
        self._add(listener, selectors.EVENT_READ, lambda: self._accept(listener, answer))
        self._add(datagrams, selectors.EVENT_READ, lambda: self._answer(datagrams))

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    key.data()

    def _add(self, made: socket.socket, events: int, ready: Callable[[], None]) -> None:
        made.setblocking(False)
        self._selector.register(made, events, ready)

    def _accept(self, listener: socket.socket, answer: Callable[[socket.socket], None]) -> None:
        while True:
            connection, _ = listener.accept()
            answer(connection)

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()

    def _answer(self, datagrams: socket.socket) -> None:
        """Echoes datagrams, and counts them."""
        while True:
            datagram, sender = datagrams.recvfrom(65536)
            datagrams.sendto(datagram, sender)
            self._count.value += 1

    def _echo(self, connection: socket.socket) -> None:
        """Echoes what arrives. Counts connections once they end."""

        def ready() -> None:
            if data := connection.recv(65536):
                connection.sendall(data)
            else:
                self._close(connection)
                self._count.value += 1

        self._add(connection, selectors.EVENT_READ, ready)

    def _sink(self, connection: socket.socket) -> None:
        """Counts the bytes that arrive."""

        def ready() -> None:
            read = connection.recv_into(self._buffer)
            self._count.value += read
            if not read:
                self._close(connection)

        self._add(connection, selectors.EVENT_READ, ready)

    def _source(self, connection: socket.socket) -> None:
        """Sends the content of all transfers without an end. Counts the bytes."""
        sent = 0

        def ready() -> None:
            nonlocal sent
            more = connection.send(pattern.piece(sent, pattern.LONGEST_PIECE))
            sent += more
            self._count.value += more

        self._add(connection, selectors.EVENT_WRITE, ready)


def _run(port: int, service: str, count: Synchronized, ready) -> None:
    application = Application(port, service, count)
    ready.set()
    application.run()


@contextlib.contextmanager
def application(port: int, service: str) -> Iterator[Synchronized]:
    """Runs the application for the length of the block. Yields its count."""
    fork = multiprocessing.get_context("fork")
    ready, count = fork.Event(), fork.Value("q", 0, lock=False)
    process = fork.Process(target=_run, args=(port, service, count, ready), daemon=True)
    process.start()
    try:
        assert ready.wait(LIMIT), "the application does not listen"
        yield count
        assert process.is_alive(), "the application has ended"
    finally:
        process.kill()
        process.join(LIMIT)
