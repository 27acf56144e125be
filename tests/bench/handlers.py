"""What the servers under test do with a flow: the same code for all of them.

A stream has the methods of `mitmproxy_rs.Stream`. The service is chosen by the
inner destination's port, the well-known one of its kind.
"""

import pattern

ECHO = 7
SINK = 9
SOURCE = 19

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
        stream.close()
    except OSError:
        pass  # the client went away, or the server


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
    """Answers the end with what came: 8 bytes of length and 1 for the right content."""
    received = 0
    right = True
    while data := await stream.read(_READ):
        right = right and pattern.matches(data, received)
        received += len(data)
    stream.write(received.to_bytes(8, "little") + bytes([right]))
    await stream.drain()
    stream.write_eof()


async def _source(stream) -> None:
    """Sends as many bytes as the first 8 say."""
    request = b""
    while len(request) < 8:
        data = await stream.read(8 - len(request))
        if not data:
            return
        request += data
    size = int.from_bytes(request, "little")
    sent = 0
    while sent < size:
        data = pattern.piece(sent, min(_WRITE, size - sent))
        stream.write(data)
        sent += len(data)
        await stream.drain()
    stream.write_eof()
