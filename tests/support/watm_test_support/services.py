"""The services of the servers under test: the same code for all of them.

A stream has the methods of `mitmproxy_rs.Stream`. The service is chosen by the inner destination's
port, the well-known one of its kind.
"""

import asyncio

from watm_test_support import pattern

ECHO = 7
SINK = 9
SOURCE = 19
TRICKLE = 20
# The messages of the trickle: a few small ones, and after a pause a large one.
FEW, BETWEEN, PAUSE, LOT = 3, 0.01, 0.5, 200_000

_READ = 65535  # mitmproxy's own read size
_WRITE = 65536


async def handle_tcp(stream) -> None:
    port = stream.get_extra_info("sockname")[1]
    try:
        if port == ECHO:
            await _echo(stream)
        elif port == SINK:
            await _sink(stream)
        elif port == SOURCE:
            await _source(stream)
        elif port == TRICKLE:
            await _trickle(stream)
        stream.close()
    except EOFError:
        stream.close()
    except OSError:
        pass  # the client or the server has ended


async def handle_udp(stream) -> None:
    try:
        while data := await stream.read(_READ):
            stream.write(data)
            await stream.drain()
        stream.close()
    except OSError:
        pass


async def _echo(stream) -> None:
    while data := await stream.read(_READ):
        stream.write(data)
        await stream.drain()


async def _sink(stream) -> None:
    """Answers the end of a transfer with a check: 8 bytes of length and 1 for the right content."""
    received = 0
    right = True
    while data := await stream.read(_READ):
        right = right and pattern.matches(data, received)
        received += len(data)
    stream.write(received.to_bytes(8, "little") + bytes([right]))
    await stream.drain()
    stream.write_eof()


async def _source(stream) -> None:
    """Sends as many bytes as the first 8 request."""
    await _send(stream, 0, await _number(stream))
    stream.write_eof()


async def _trickle(stream) -> None:
    """Echoes 8 zeros, repeatedly. Any other number is the size of `FEW` messages, sent `BETWEEN`
    seconds apart, which `LOT` bytes follow `PAUSE` seconds later."""
    while (size := await _number(stream)) == 0:
        stream.write(bytes(8))
        await stream.drain()
    for number in range(FEW):
        await _send(stream, number * size, size)
        await asyncio.sleep(BETWEEN)
    await asyncio.sleep(PAUSE)
    await _send(stream, FEW * size, LOT)
    stream.write_eof()


async def _number(stream) -> int:
    """Returns the next 8 bytes, little-endian. Raises `EOFError` if there are fewer."""
    read = b""
    while len(read) < 8:
        data = await stream.read(8 - len(read))
        if not data:
            raise EOFError
        read += data
    return int.from_bytes(read, "little")


async def _send(stream, offset: int, size: int) -> None:
    """Sends the content from `offset` on."""
    end = offset + size
    while offset < end:
        data = pattern.piece(offset, min(_WRITE, end - offset))
        stream.write(data)
        offset += len(data)
        await stream.drain()
