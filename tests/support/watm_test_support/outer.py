"""Outer datagrams made by hand, and a path that does with datagrams what it likes."""

import asyncio
import base64
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import blake2s

HOST = "127.0.0.1"
INITIATION, RESPONSE, COOKIE, DATA = (bytes([kind, 0, 0, 0]) for kind in (1, 2, 3, 4))
# What one UDP datagram can hold in IPv4.
LARGEST = 65_507

Treatment = Callable[[bytes], list[bytes]]


def initiation(public_key: str | None = None) -> bytes:
    """A handshake initiation of random content; with the server's public key, one whose mac1
    is right, so that only key exchanges can tell that it is nobody's."""
    message = INITIATION + secrets.token_bytes(112)
    mac1 = bytes(16)
    if public_key is not None:
        key = blake2s(b"mac1----" + base64.b64decode(public_key)).digest()
        mac1 = blake2s(message, key=key, digest_size=16).digest()
    return message + mac1 + bytes(16)


@contextlib.contextmanager
def stranger(port: int, address: str = HOST) -> Iterator[socket.socket]:
    """A socket of somebody who has no keys, at an address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind((address, 0))
        made.connect((HOST, port))
        made.setblocking(False)
        yield made


class Path:
    """Between a client and the server. Use `path`."""

    def __init__(self, treat: Treatment) -> None:
        self.address = ""
        """Where the client sends to."""
        self.seen: list[bytes] = []
        """What the client has sent, the last thousand of it."""
        self._treat = treat
        self._client: tuple[str, int] | None = None
        self._to_client: asyncio.DatagramTransport | None = None
        self._to_server: asyncio.DatagramTransport | None = None

    def from_client(self, data: bytes, address: tuple[str, int]) -> None:
        self._client = address
        self.seen = [*self.seen[-999:], data]
        for datagram in self._treat(data):
            self._to_server.sendto(datagram)

    def from_server(self, data: bytes, _: tuple[str, int]) -> None:
        if self._client is not None:
            self._to_client.sendto(data, self._client)


@contextlib.asynccontextmanager
async def path(port: int, treat: Treatment = lambda datagram: [datagram]) -> AsyncIterator[Path]:
    """Forwards to the server's port what `treat` makes of each of the client's datagrams, and the
    server's as they are."""
    loop = asyncio.get_running_loop()
    made = Path(treat)
    made._to_client, _ = await loop.create_datagram_endpoint(
        lambda: _Received(made.from_client), local_addr=(HOST, 0)
    )
    try:
        made._to_server, _ = await loop.create_datagram_endpoint(
            lambda: _Received(made.from_server), remote_addr=(HOST, port)
        )
        made.address = "{}:{}".format(*made._to_client.get_extra_info("sockname"))
        yield made
    finally:
        made._to_client.close()
        if made._to_server is not None:
            made._to_server.close()


class _Received(asyncio.DatagramProtocol):
    def __init__(self, call: Callable[[bytes, tuple[str, int]], None]) -> None:
        self.datagram_received = call
