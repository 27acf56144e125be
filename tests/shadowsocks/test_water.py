"""The WATER module in the Go runtime and in this one: a server with one upstream, whatever the
requested destination, and a client whose configuration names the destination.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.water.ends import listening
from tests.water.modules import Module
from tests.water.tools import GO, WATM, Dialled, Tool

from .methods import LIBEV, RUST_2022
from .ours import WATER, config
from .peers import HOST, cases
from .services import connect, echo, exchange

MODULE = Module("own-shadowsocks", WATER, turns=False, destination="", own=True)
DATA = bytes(range(256)) * 2000

programs = pytest.mark.parametrize("program", [GO, WATM], ids=str)


@programs
@pytest.mark.parametrize(("peer", "method"), cases(LIBEV, RUST_2022))
async def test_clients_streams(peer, method, program: Tool, tmp_path) -> None:
    path = tmp_path / "server.json"
    path.write_text(config(method))
    async with echo() as port, program.listen(MODULE, f"{HOST}:{port}", f"--config={path}") as running:
        server = int(running.address.rpartition(":")[2])
        async with peer.client(tmp_path, method, server) as socks:
            assert await exchange(*await connect(socks, "any.example", 9), DATA) == DATA


@programs
@pytest.mark.parametrize(
    ("peer", "method"), cases(*([method for method in methods if "chacha20" in method] for methods in (LIBEV, RUST_2022)))
)
async def test_chunks_of_every_length(peer, method, program: Tool, tmp_path) -> None:
    """Checks the module's own cipher, which processes 512 bytes at once, and the rest in one of several ways."""
    path = tmp_path / "server.json"
    path.write_text(config(method))
    async with echo() as port, program.listen(MODULE, f"{HOST}:{port}", f"--config={path}") as running:
        server = int(running.address.rpartition(":")[2])
        async with peer.client(tmp_path, method, server) as socks, asyncio.timeout(60):
            reader, writer = await connect(socks, "any.example", 9)
            for length in range(1, 1200):
                writer.write(DATA[:length])
                assert await reader.readexactly(length) == DATA[:length]
            writer.close()


@contextlib.asynccontextmanager
async def dialled(program: Tool, fixed: bool, server: int, flag: str) -> AsyncIterator[Dialled]:
    """Opens a connection in one of the two roles of a client."""
    to = f"{HOST}:{server}"
    dial = program.fixed(MODULE, flag, f"--allow={to}") if fixed else program.dial(MODULE, to, flag)
    async with dial as near:
        yield near


@programs
@pytest.mark.parametrize("fixed", [False, True], ids=["dial", "fixed"])
@pytest.mark.parametrize(("peer", "method"), cases(LIBEV, RUST_2022))
async def test_servers_streams(peer, method, fixed, program: Tool, tmp_path: Path) -> None:
    path = tmp_path / "client.json"
    async with listening() as upstream, peer.server(tmp_path, method) as server:
        path.write_text(config(method, server=HOST, server_port=server, target=upstream.address))
        async with dialled(program, fixed, server, f"--config={path}") as near:
            await near.send(b"question")
            far = await upstream.accept()
            assert await far.receive(8) == b"question"
            await near.send_pattern(300_000)
            await far.receive_pattern(300_000)
            await far.send_pattern(300_000)
            await near.receive_pattern(300_000)
