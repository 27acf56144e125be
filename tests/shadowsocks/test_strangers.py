"""Strangers that send nothing, or invalid data: they do not block clients, and the server looks
like other implementations.
"""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from watm_test_support.ports import free_port
from watm_test_support.repository import WATM

from .ours import COMPONENT, WATER, config
from .peers import HOST, Libev, running
from .services import connect, echo, exchange

METHOD = "chacha20-ietf-poly1305"
MANY = 1500
# Seconds in which a client must be served: many, because other programs run at the same time, but
# fewer than the 30 seconds that strangers get at least.
SOON = 5


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """Raises the limit of file descriptors for all strangers."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.asynccontextmanager
async def strangers(port: int, address: str) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Opens silent connections from this address."""
    # An unreferenced writer closes its connection.
    pairs = [await asyncio.open_connection(HOST, port, local_addr=(address, 0)) for _ in range(MANY)]
    try:
        yield [reader for reader, _ in pairs]
    finally:
        for _, writer in pairs:
            writer.transport.abort()


def is_open(reader: asyncio.StreamReader) -> bool:
    """Returns true if the other end has neither closed nor reset the connection."""
    return not reader.at_eof() and reader.exception() is None


@contextlib.asynccontextmanager
async def serve(folder: Path, upstream: int, limits: str) -> AsyncIterator[int]:
    """Runs a server. Yields its port."""
    port = free_port()
    (folder / "server.json").write_text(config(METHOD))
    (folder / "watm.toml").write_text(f"""
        [[listener]]
        module = "{COMPONENT}"
        config-file = "server.json"
        addresses = ["tcp://{HOST}:{port}"]
        upstream = "dynamic"
        allow = ["{HOST}:{upstream}"]
        [listener.limits]
        {limits}
    """)
    async with running(folder, str(WATM), "serve", "--unsealed", folder / "watm.toml", port=port):
        yield port


@contextlib.asynccontextmanager
async def listen(folder: Path, upstream: int, module: Path) -> AsyncIterator[int]:
    """Runs a WATER server for one upstream. Yields its port."""
    port = free_port()
    (folder / "server.json").write_text(config(METHOD))
    options = ["--config", folder / "server.json", "--forward", f"{HOST}:{upstream}"]
    async with running(folder, str(WATM), "listen", "--unsealed", module, f"{HOST}:{port}", *options, port=port):
        yield port


@pytest.mark.parametrize("address", [HOST, "127.0.0.2"], ids=["the-clients-own-address", "another-address"])
@pytest.mark.parametrize("limits", ["", "connections-per-client = 20", "listen"])
async def test_silent_strangers_keep_no_client_out(limits, address, tmp_path) -> None:
    async with echo() as upstream:
        begin = listen(tmp_path, upstream, COMPONENT) if limits == "listen" else serve(tmp_path, upstream, limits)
        async with begin as port, Libev.client(tmp_path, METHOD, port) as socks, strangers(port, address) as all_of_them:
            async with asyncio.timeout(SOON):
                # Some connections are open when the client connects.
                assert sum(map(is_open, all_of_them)) > 20
                assert await exchange(*await connect(socks, HOST, upstream), b"hello") == b"hello"
            if limits.startswith("connections"):
                # Connections count from the moment that they are accepted.
                async with asyncio.timeout(SOON):
                    while sum(map(is_open, all_of_them)) > 20:
                        await asyncio.sleep(0.05)


async def test_a_client_that_has_all_it_may_have_is_refused_at_once(tmp_path) -> None:
    async with echo() as upstream, serve(tmp_path, upstream, "connections-per-client = 2") as port:
        async with Libev.client(tmp_path, METHOD, port) as socks, asyncio.timeout(SOON):
            first, second = [await connect(socks, HOST, upstream) for _ in range(2)]
            for reader, writer in (first, second):
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
            # The reset may arrive before `connect` returns.
            with pytest.raises(ConnectionResetError):
                reader, _ = await asyncio.open_connection(HOST, port)
                await reader.read(1)
            # Open connections continue.
            second[1].write(b"world")
            assert await second[0].readexactly(5) == b"world"


@pytest.mark.parametrize("junk", [b"", b"x", b"x" * 49, b"x" * 51, b"x" * 5000], ids=len)
@pytest.mark.parametrize("shape", ["libev", "component", "water"])
async def test_an_end_after_junk_is_answered_by_an_end(shape, junk, tmp_path) -> None:
    async with echo() as upstream:
        ours = {"component": COMPONENT, "water": WATER}
        begin = listen(tmp_path, upstream, ours[shape]) if shape in ours else Libev.server(tmp_path, METHOD)
        async with begin as port, asyncio.timeout(SOON):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(junk)
            await writer.drain()
            # The pause lets the server read the data before the end.
            await asyncio.sleep(0.1)
            writer.write_eof()
            # A reset would be an exception.
            assert await reader.read(1) == b""
            writer.close()
