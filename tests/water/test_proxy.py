"""The transport for the PROXY protocol in both runtimes: the headers that it writes and removes."""

import pytest

from watm_test_support.repository import MODULES

from .ends import connected, listening
from .modules import Module
from .tools import GO, WATM, Tool

PROXY = Module("own-proxy", MODULES / "proxy-protocol.watm1.wasm", turns=False, destination="", own=True)
SAYS = 'send = "v1"\nsource = "192.0.2.7:5555"\ndestination = "198.51.100.2:443"\n'
LINE = b"PROXY TCP4 192.0.2.7 198.51.100.2 5555 443\r\n"

tools = pytest.mark.parametrize("tool", [GO, WATM], ids=str)


def config(folder, text: str) -> str:
    path = folder / "proxy.conf"
    path.write_text(text)
    return f"--config={path}"


@tools
async def test_a_dialled_connection_begins_with_the_line(tool: Tool, tmp_path) -> None:
    async with listening() as server, tool.dial(PROXY, server.address, config(tmp_path, SAYS)) as near:
        far = await server.accept()
        assert await far.receive(len(LINE)) == LINE
        await near.send(b"hello")
        assert await far.receive(5) == b"hello"
        await far.send(b"answer")
        assert await near.receive(6) == b"answer"


@tools
async def test_a_listener_takes_it_off(tool: Tool, tmp_path) -> None:
    flag = config(tmp_path, 'from = "any"\n')
    async with listening() as upstream, tool.listen(PROXY, upstream.address, flag) as running:
        async with connected(running.address) as near:
            for piece in (LINE[:10], LINE[10:] + b"hel", b"lo"):
                await near.send(piece)
            far = await upstream.accept()
            assert await far.receive(5) == b"hello"
            await far.send(b"answer")
            assert await near.receive(6) == b"answer"
            await tool.settled(running, 1)
