"""The starter in C that `watm new` writes, in both programs."""

import pytest

from watm_test_support import starters

from .ends import listening
from .modules import Module
from .tools import GO, WATM, Tool


@pytest.fixture(scope="module")
def starter(tmp_path_factory) -> Module:
    module = starters.build("c", tmp_path_factory.mktemp("starter"))
    return Module("starter", module, turns=False, destination=None, own=True)


@pytest.mark.parametrize(("dialler", "server"), [(GO, WATM), (WATM, GO), (GO, GO)], ids=str)
async def test_it_carries_a_stream(starter, dialler: Tool, server: Tool) -> None:
    async with (
        listening() as upstream,
        server.listen(starter, upstream.address) as running,
        dialler.dial(starter, running.address) as near,
    ):
        far = await upstream.accept()
        await near.exchange(far, (1, 100, 100_000))
        await server.settled(running, 1)
        await far.close()
        await near.ended()
