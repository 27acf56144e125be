"""The network between the two ends of a tunnel, where a test captures datagrams that tshark dissects."""

import asyncio
import contextlib
import pathlib
import socket
import struct
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator

LINKTYPE_RAW = 101
UDP = 17


class Sniffer:
    """Relays datagrams to a port of this machine and back, and keeps a copy of each."""

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

    async def pages(self, path: pathlib.Path, keys: pathlib.Path) -> tuple[list[list[str]], list[list[str]]]:
        """Returns the pages in the capture, as `pages` does, without these keys and with them."""
        self.write_pcap(path)
        dissect = ["-d", f"udp.port=={self.port},wg"]
        return await pages(path, *dissect), await pages(path, *dissect, "-o", f"wg.keylog_file:{keys}")

    def write_pcap(self, path: pathlib.Path) -> None:
        """Writes the capture as tcpdump would."""
        with path.open("wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, LINKTYPE_RAW))
            for second, (source, destination, datagram) in enumerate(self.seen):
                length = 28 + len(datagram)
                address = socket.inet_aton("127.0.0.1")
                packet = struct.pack(">BBHHHBBH", 0x45, 0, length, 0, 0, 64, UDP, 0) + 2 * address
                packet += struct.pack(">HHHH", source, destination, length - 20, 0) + datagram
                file.write(struct.pack("<IIII", second, 0, length, length) + packet)


class Side(asyncio.DatagramProtocol):
    """The socket of one end."""

    def __init__(self, take) -> None:
        self.datagram_received = take


@contextlib.asynccontextmanager
async def sniffing(beyond: int) -> AsyncIterator[Sniffer]:
    """Runs a sniffer between this machine's programs and the port."""
    between = Sniffer(beyond)
    await between.start()
    try:
        yield between
    finally:
        between.close()


async def pages(path: pathlib.Path, *options: str) -> list[list[str]]:
    """Returns the request's method and the answer's code of each HTTP message that tshark finds in
    a file."""
    command = ["tshark", "-r", path, *options, "-T", "fields", "-Y", "http"]
    command += ["-e", "http.request.method", "-e", "http.response.code"]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=DEVNULL)
    found, _ = await process.communicate()
    assert process.returncode == 0, command
    return [line.split("\t") for line in found.decode().splitlines()]
