"""Handmade outer datagrams, and a path that drops, repeats or changes datagrams."""

import asyncio
import base64
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import blake2s

HOST = "127.0.0.1"
INITIATION, RESPONSE, COOKIE, DATA = (bytes([kind, 0, 0, 0]) for kind in (1, 2, 3, 4))
# The largest payload of a UDP datagram in IPv4.
LARGEST = 65_507

Treatment = Callable[[bytes], list[bytes]]


def initiation(public_key: str | None = None) -> bytes:
    """Returns a handshake initiation of random content. With the server's public key its mac1 is
    right, so that only a key exchange reveals that its sender is unknown.
    """
    message = INITIATION + secrets.token_bytes(112)
    mac1 = bytes(16)
    if public_key is not None:
        key = blake2s(b"mac1----" + base64.b64decode(public_key)).digest()
        mac1 = blake2s(message, key=key, digest_size=16).digest()
    return message + mac1 + bytes(16)


@contextlib.contextmanager
def stranger(port: int, address: str = HOST) -> Iterator[socket.socket]:
    """Makes a socket of a stranger at an address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind((address, 0))
        made.connect((HOST, port))
        made.setblocking(False)
        yield made


class Path:
    """A relay between a client and the server. Use `path`."""

    def __init__(self, treat: Treatment) -> None:
        self.address = ""
        """The address that the client sends to."""
        self.seen: list[bytes] = []
        """The last thousand datagrams of the client."""
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
    """Forwards the datagrams that `treat` returns for each of the client's to the server's port,
    and those of the server unchanged.
    """
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
