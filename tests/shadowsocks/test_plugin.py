"""Modules as plugins (SIP003) of other shadowsocks programs, with datagrams, which bypass a plugin."""

import asyncio
import random
import re
from pathlib import Path

import pytest

from watm_test_support.repository import WATM

from .methods import LIBEV, RUST_2022
from .ours import WATER
from .peers import HOST, LIMIT, cases
from .services import associate, connect, echo, exchange

PLAIN = WATER.with_name("plain.watm1.wasm")
DATA = random.Random(5).randbytes(300_000)


async def started(folder: Path) -> None:
    """Waits for both plugins. The client listens before its plugin does."""
    async with asyncio.timeout(LIMIT):
        while not all(re.search("^listening on ", log.read_text(), re.MULTILINE) for log in folder.glob("*.log")):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("peer", "method"), cases(LIBEV[2:3], RUST_2022[1:2]))
async def test_datagrams_go_past_a_plugin(peer, method, tmp_path) -> None:
    options = f"unsealed;module={PLAIN}"
    serving = {"plugin": str(WATM), "plugin_opts": f"server;{options}"}
    dialling = {"plugin": str(WATM), "plugin_opts": options}
    async with (
        echo() as port,
        peer.server(tmp_path, method, **serving) as server,
        peer.client(tmp_path, method, server, **dialling) as socks,
    ):
        await started(tmp_path)
        assert await exchange(*await connect(socks, HOST, port), DATA) == DATA
        assert await associate(socks, port, [b"hello", DATA[:1000]]) == [b"hello", DATA[:1000]]
