"""The module as a client of other servers."""

import random

import pytest

from .methods import EIH, LIBEV, RUST, password
from .ours import config, dial
from .peers import HOST, Rust, cases
from .services import echo, exchange

DATA = random.Random(2).randbytes(1_000_000)


@pytest.mark.parametrize(("peer", "method"), cases(LIBEV, RUST))
async def test_servers_streams(peer, method, tmp_path) -> None:
    async with echo() as port, peer.server(tmp_path, method) as server:
        configuration = config(method, server=HOST, server_port=server)
        for target in (HOST, "localhost"):
            stream = await dial(configuration, target, port, server)
            assert await exchange(stream, stream, DATA) == DATA


@pytest.mark.parametrize("prefix", ["HTTP/1.1", "\x16\x03\x01\x00\u00a8\x01\x01"])
@pytest.mark.parametrize(("peer", "method"), cases(LIBEV[3:4], RUST[2:4]))
async def test_servers_take_a_salt_with_a_prefix(peer, method, prefix, tmp_path) -> None:
    async with echo() as port, peer.server(tmp_path, method) as server:
        configuration = config(method, server=HOST, server_port=server, prefix=prefix)
        stream = await dial(configuration, HOST, port, server)
        assert await exchange(stream, stream, b"hello") == b"hello"


@pytest.mark.parametrize("method", EIH)
async def test_a_user_of_a_server_with_users(method, tmp_path) -> None:
    users = [{"name": "alice", "password": password(method, 2)}]
    async with echo() as port, Rust.server(tmp_path, method, users=users) as server:
        both = f"{password(method)}:{password(method, 2)}"
        configuration = config(method, server=HOST, server_port=server, password=both)
        stream = await dial(configuration, HOST, port, server)
        assert await exchange(stream, stream, DATA[:70_000]) == DATA[:70_000]
