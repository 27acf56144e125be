"""The ends of a connection under test: plain TCP, or a program's input and output."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from watm_test_support import pattern

HOST = "127.0.0.1"
# Seconds for one step. The slowest, the compilation of a module, takes a tenth of it.
LIMIT = 10
# The most bytes that are written before a wait for the reader.
_WRITE = 65536


class End:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Writes data."""
        async with asyncio.timeout(LIMIT):
            self.writer.write(data)
            await self.writer.drain()

    async def receive(self, size: int) -> bytes:
        """Reads this many bytes, or fewer if the end comes first."""
        async with asyncio.timeout(LIMIT):
            try:
                return await self.reader.readexactly(size)
            except asyncio.IncompleteReadError as short:
                return short.partial

    async def ended(self) -> None:
        """Waits for the end, and checks that no data comes before it."""
        async with asyncio.timeout(LIMIT):
            assert await self.reader.read(_WRITE) == b""

    async def exchange(self, far: "End", sizes: Iterable[int]) -> None:
        """Sends messages of these sizes both ways, each when the one before has arrived."""
        for size in sizes:
            message = pattern.piece(size, size)
            await self.send(message)
            assert await far.receive(size) == message
            await far.send(message)
            assert await self.receive(size) == message

    async def send_pattern(self, size: int) -> None:
        """Writes the content of `watm_test_support.pattern`."""
        for offset in range(0, size, _WRITE):
            await self.send(pattern.piece(offset, min(_WRITE, size - offset)))

    async def receive_pattern(self, size: int) -> None:
        """Reads that content, and checks each byte."""
        received = 0
        while received < size:
            async with asyncio.timeout(LIMIT):
                data = await self.reader.read(min(_WRITE, size - received))
            assert data, f"the connection ended after {received} of {size} bytes"
            assert pattern.matches(data, received), f"other content within {len(data)} bytes from {received}"
            received += len(data)

    def end(self) -> None:
        """Half-closes the connection."""
        self.writer.write_eof()

    def abort(self) -> None:
        """Resets the connection."""
        self.writer.transport.abort()

    async def close(self) -> None:
        """Ends both directions, also of a failed connection."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class Listening:
    """A plain TCP server whose connections a test accepts one by one."""

    def __init__(self) -> None:
        self._accepted: asyncio.Queue[End] = asyncio.Queue()
        self._ends: list[End] = []
        self.address = ""

    async def accept(self) -> End:
        """Returns the next connection."""
        async with asyncio.timeout(LIMIT):
            return await self._accepted.get()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = End(reader, writer)
        self._ends.append(end)
        self._accepted.put_nowait(end)


@contextlib.asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[Listening]:
    """Runs a server on loopback for the length of the block."""
    own = Listening()
    server = await asyncio.start_server(own._serve, HOST, port)
    own.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield own
    finally:
        server.close()
        for end in own._ends:
            await end.close()


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[End]:
    """Opens a plain TCP connection for the length of the block."""
    host, _, port = address.rpartition(":")
    end = End(*await asyncio.open_connection(host, int(port)))
    try:
        yield end
    finally:
        await end.close()
