"""Probes of a censor: they get no answer, and the connection stays open."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from .methods import ALL, LIBEV, RUST_2022, key_length
from .ours import config, dial, proxy
from .peers import HOST, LIMIT
from .services import echo

# Seconds that a censor waits for an answer.
PATIENCE = 0.3


@contextlib.asynccontextmanager
async def recorder(to: int) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A relay on the path that records the clients' data."""
    said: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(HOST, to)
        said.append(b"")
        place = len(said) - 1

        async def there() -> None:
            while data := await reader.read(65536):
                said[place] += data
                outer.write(data)

        async def back() -> None:
            while data := await inner.read(65536):
                writer.write(data)

        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(there(), back())
        writer.close()
        outer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1], said
    finally:
        server.close()


async def answers(port: int, probes: list[bytes]) -> list[bytes | None]:
    """Sends all probes in parallel. Returns the answer to each, or None if there is none and the connection stays."""

    async def one(probe: bytes) -> bytes | None:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(probe)
        try:
            async with asyncio.timeout(PATIENCE):
                return await reader.read(65536)
        except TimeoutError:
            return None
        finally:
            writer.close()

    return await asyncio.gather(*map(one, probes))


@pytest.mark.parametrize("method", ALL)
async def test_random_bytes_of_any_length(method) -> None:
    numbers = random.Random(3)
    lengths = [1, 7, 8, 16, 31, 32, 33, 49, 50, 51, 60, 66, 67, 90, 200, 221, 222, 1000, 5000, 70_000]
    async with proxy(config(method)) as server:
        silent = await answers(server.port, [numbers.randbytes(length) for length in lengths])
        assert silent == [None] * len(lengths)
        assert not server.seen


@pytest.mark.parametrize("method", [LIBEV[0], LIBEV[3], *RUST_2022])
async def test_a_first_flight_that_is_repeated_or_changed(method) -> None:
    salt = key_length(method)
    async with echo() as port, proxy(config(method)) as server, recorder(server.port) as (path, said):
        configuration = config(method, server=HOST, server_port=path)
        stream = await dial(configuration, HOST, port, path)
        async with asyncio.timeout(LIMIT):
            stream.write(b"hello")
            assert await stream.readexactly(5) == b"hello"
        first = said[0]
        assert len(server.seen) == 1
        # The whole recording, its prefixes, and each of its parts with one bit changed.
        probes = [first] + [first[:length] for length in range(1, len(first), 7)]
        for place in [0, salt - 1, salt, salt + 1, salt + 17, salt + 18, salt + 26, salt + 30, len(first) // 2]:
            changed = bytearray(first)
            changed[place] ^= 1
            probes.append(bytes(changed))
        assert await answers(server.port, probes) == [None] * len(probes)
        assert len(server.seen) == 1
        assert server.counter("shadowsocks.replays") >= 1
        # The client's own connection continues.
        async with asyncio.timeout(LIMIT):
            stream.write(b"world")
            assert await stream.readexactly(5) == b"world"
        stream.close()
