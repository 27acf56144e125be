"""The upstreams of a server, which speak plain text."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from .peers import HOST

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def backend(handle: Handler) -> AsyncIterator[int]:
    """Runs a TCP server. Yields its port."""
    server = await asyncio.start_server(handle, HOST, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def reverse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads to the end, and answers with the data in reverse."""
    with contextlib.suppress(ConnectionError):
        writer.write((await reader.read())[::-1])
        await writer.drain()
    writer.close()


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each HTTP/1.1 request with a page that contains its path."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = b"page " + head.split()[1]
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    writer.close()


class Recorder:
    """Keeps the data of connections."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes] = asyncio.Queue()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            self.said.put_nowait(await reader.read(65536))
            writer.write(b"done\n")
            await writer.drain()
            await reader.read()
        writer.close()
