"""Two modules as the ends of a connection, in both programs and from both projects."""

from .cases import pairs
from .ends import listening
from .modules import PIECE, Module
from .tools import Tool


@pairs()
async def test_what_one_end_encodes_the_other_decodes(
    dialling: tuple[Tool, Module], serving: tuple[Tool, Module]
) -> None:
    (dialler, outgoing), (server, incoming) = dialling, serving
    async with (
        listening() as upstream,
        server.listen(incoming, upstream.address) as running,
        dialler.dial(outgoing, running.address) as near,
    ):
        far = await upstream.accept()
        await near.exchange(far, (1, 100, PIECE, 100, PIECE))
        await server.settled(running, 1)
        await far.close()
        await near.ended()


@pairs()
async def test_a_relay_decodes_what_a_dialer_encodes(
    dialling: tuple[Tool, Module], serving: tuple[Tool, Module]
) -> None:
    (dialler, outgoing), (server, incoming) = dialling, serving
    async with (
        listening() as upstream,
        server.relay(incoming, upstream.address) as running,
        dialler.dial(outgoing, running.address) as near,
    ):
        await near.send(b"question")
        far = await upstream.accept()
        assert await far.receive(8) == b"question"
        await far.send(b"answer")
        assert await near.receive(6) == b"answer"
        await server.settled(running, 1)
        await far.close()
        await near.ended()
