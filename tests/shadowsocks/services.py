"""The servers at the far end, and SOCKS5 clients for them."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

from watm_test_support.ports import free_port

from .peers import HOST, LIMIT


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple) -> None:
        self._transport.sendto(data, addr)


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """Runs an echo by TCP and UDP that also answers HTTP. Yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            first = await reader.read(65536)
            if first.startswith(b"GET "):
                body = b"from inside " + first.split()[1]
                writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            else:
                writer.write(first)
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
            writer.close()

    port = free_port()
    server = await asyncio.start_server(serve, HOST, port)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(_Echo, local_addr=(HOST, port))
    async with server:
        yield port
    transport.close()


async def connect(socks: int, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Opens a connection to a name through SOCKS5."""
    reader, writer = await asyncio.open_connection(HOST, socks)
    writer.write(b"\x05\x01\x00")
    assert await reader.readexactly(2) == b"\x05\x00"
    writer.write(b"\x05\x01\x00\x03" + bytes([len(host)]) + host.encode() + struct.pack(">H", port))
    answer = await reader.readexactly(10)
    assert answer[:2] == b"\x05\x00", answer
    return reader, writer


async def exchange(reader, writer, data: bytes) -> bytes:
    """Sends data and returns the echo. Does not half-close, because some programs do not support that."""

    async def write() -> None:
        writer.write(data)
        await writer.drain()

    async with asyncio.timeout(LIMIT):
        writing = asyncio.create_task(write())
        received = await reader.readexactly(len(data))
        await writing
        writer.close()
        return received


class Association:
    """A client of UDP ASSOCIATE."""

    def __init__(self, relay: tuple[str, int], udp: socket.socket) -> None:
        self._relay = relay
        self._udp = udp

    @classmethod
    @contextlib.asynccontextmanager
    async def through(cls, socks: int) -> AsyncIterator["Association"]:
        """Opens an association at this port."""
        reader, writer = await asyncio.open_connection(HOST, socks)
        writer.write(b"\x05\x01\x00")
        assert await reader.readexactly(2) == b"\x05\x00"
        writer.write(b"\x05\x03\x00\x01" + bytes(6))
        answer = await reader.readexactly(10)
        assert answer[:2] == b"\x05\x00", answer
        with socket.socket(type=socket.SOCK_DGRAM) as udp:
            udp.setblocking(False)
            udp.bind((HOST, 0))
            yield cls((HOST, struct.unpack(">H", answer[8:])[0]), udp)
        writer.close()

    async def ask(self, port: int, datagram: bytes, seconds: float = LIMIT) -> bytes:
        """Returns the answer of this port; raises TimeoutError without one."""
        loop = asyncio.get_running_loop()
        head = b"\x00\x00\x00\x01" + socket.inet_aton(HOST) + struct.pack(">H", port)
        async with asyncio.timeout(seconds):
            await loop.sock_sendto(self._udp, head + datagram, self._relay)
            answer = await loop.sock_recv(self._udp, 65536)
        assert answer.startswith(head), answer[:10]
        return answer[len(head) :]


async def associate(socks: int, port: int, datagrams: list[bytes]) -> list[bytes]:
    """Returns the answers to these datagrams, sent by UDP ASSOCIATE."""
    async with Association.through(socks) as client:
        return [await client.ask(port, datagram) for datagram in datagrams]
