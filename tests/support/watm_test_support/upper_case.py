"""A server that answers in upper case, to tell it from an echo."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from watm_test_support.ports import free_port

HOST = "127.0.0.1"
# Rounds of the event loop from an accepted connection to its handler, and some more.
_ROUNDS = 10


@contextlib.asynccontextmanager
async def upper() -> AsyncIterator[int]:
    """Serves TCP and UDP on one port of this machine for the length of the block; yields the port."""
    handlers = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.current_task())
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data.upper())
                await writer.drain()

    port = free_port()
    server = await asyncio.start_server(handle, HOST, port)
    datagrams, _ = await asyncio.get_running_loop().create_datagram_endpoint(_Datagrams, local_addr=(HOST, port))
    try:
        yield port
    finally:
        datagrams.close()
        # asyncio leaks a connection whose server closes before its handler runs.
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        server.close()
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await asyncio.sleep(0)  # for transports to close


class _Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.transport.sendto(data.upper(), address)
