"""The network between the two ends of a tunnel, where a test listens."""

import asyncio
import contextlib
import pathlib
import socket
import struct
from collections.abc import AsyncIterator

LINKTYPE_RAW = 101
UDP = 17


class Outer:
    """Carries datagrams to a port of this machine and back, and keeps a copy of each."""

    def __init__(self, beyond: int) -> None:
        self.port = 0
        self.seen: list[tuple[int, int, bytes]] = []
        self._beyond = ("127.0.0.1", beyond)
        self._near: asyncio.DatagramTransport | None = None
        self._far: asyncio.DatagramTransport | None = None
        self._client: tuple[str, int] | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        local = ("127.0.0.1", 0)
        self._near, _ = await loop.create_datagram_endpoint(lambda: Side(self._out), local)
        self._far, _ = await loop.create_datagram_endpoint(lambda: Side(self._back), local)
        self.port = self._near.get_extra_info("sockname")[1]

    def close(self) -> None:
        for side in (self._near, self._far):
            if side is not None:
                side.close()

    def _out(self, datagram: bytes, sender: tuple[str, int]) -> None:
        self._client = sender
        self.seen.append((sender[1], self.port, datagram))
        self._far.sendto(datagram, self._beyond)

    def _back(self, datagram: bytes, _: tuple[str, int]) -> None:
        self.seen.append((self.port, self._client[1], datagram))
        self._near.sendto(datagram, self._client)

    def write_pcap(self, path: pathlib.Path) -> None:
        """What was seen, as tcpdump would have written it."""
        with path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, LINKTYPE_RAW))
            for second, (source, destination, datagram) in enumerate(self.seen):
                length = 28 + len(datagram)
                address = socket.inet_aton("127.0.0.1")
                packet = struct.pack(">BBHHHBBH", 0x45, 0, length, 0, 0, 64, UDP, 0) + 2 * address
                packet += struct.pack(">HHHH", source, destination, length - 20, 0) + datagram
                file.write(struct.pack("<IIII", second, 0, length, length) + packet)


class Side(asyncio.DatagramProtocol):
    """One end's socket."""

    def __init__(self, take) -> None:
        self.datagram_received = take


@contextlib.asynccontextmanager
async def outer(beyond: int) -> AsyncIterator[Outer]:
    """Between this machine's programs and the port."""
    between = Outer(beyond)
    await between.start()
    try:
        yield between
    finally:
        between.close()
