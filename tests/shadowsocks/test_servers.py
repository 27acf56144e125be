"""The module as a server for other clients."""

import asyncio
import random

import pytest

from .methods import EIH, LIBEV, RUST, password
from .ours import config, proxy
from .peers import HOST, LIMIT, Rust, cases
from .services import associate, connect, echo, exchange

DATA = random.Random(1).randbytes(1_000_000)


@pytest.mark.parametrize(("peer", "method"), cases(LIBEV, RUST))
async def test_clients_streams_and_datagrams(peer, method, tmp_path) -> None:
    async with echo() as port, proxy(config(method)) as server, peer.client(tmp_path, method, server.port) as socks:
        assert await exchange(*await connect(socks, "localhost", port), DATA) == DATA
        assert server.seen[-1]["sockname"] == ("localhost", port)
        # ss-local carries datagrams of less than 1500 bytes including headers by default.
        sent = [DATA[:length] for length in (1, 512, 1300)]
        assert await associate(socks, port, sent) == sent
        assert server.seen[-1]["sockname"] == (HOST, port)
        assert server.seen[-1]["kind"] == "udp"


@pytest.mark.parametrize(("peer", "method"), cases(LIBEV[3:4], RUST[3:4]))
async def test_curl(peer, method, tmp_path) -> None:
    async with echo() as port, proxy(config(method)) as server, peer.client(tmp_path, method, server.port) as socks:
        command = ["curl", "-sS", "--socks5-hostname", f"{HOST}:{socks}", f"http://localhost:{port}/page"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await asyncio.wait_for(process.communicate(), LIMIT)
        assert output == b"from inside /page"


@pytest.mark.parametrize("method", EIH)
async def test_users_have_names(method, tmp_path) -> None:
    users = [{"name": name, "password": password(method, seed)} for name, seed in (("alice", 2), ("bob", 3))]
    async with echo() as port, proxy(config(method, users=users)) as server:
        for seed, name in ((2, "alice"), (3, "bob")):
            both = f"{password(method)}:{password(method, seed)}"
            async with Rust.client(tmp_path, method, server.port, password=both) as socks:
                assert await exchange(*await connect(socks, "localhost", port), DATA[:5000]) == DATA[:5000]
                assert server.seen[-1]["peer"] == name
                assert await associate(socks, port, [b"hello"]) == [b"hello"]
                assert server.seen[-1]["peer"] == name
                assert server.seen[-1]["kind"] == "udp"
