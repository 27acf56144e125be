"""Modules of this project under load, and with one direction closed before the other."""

import asyncio

from .cases import loads
from .ends import connected, listening
from .modules import Module
from .tools import GO, Tool

BULK = 16_000_000
# More than the sockets, pipes and queues on the way hold while nobody reads: a kernel may let the buffer of a connection
# grow to 32 MiB (tcp_rmem).
STALLED = 64_000_000


@loads(own=True, plain=True)
async def test_bytes_stream_both_ways_at_once(tool: Tool, module: Module) -> None:
    async with listening() as server, tool.dial(module, server.address) as near:
        far = await server.accept()
        async with asyncio.TaskGroup() as group:
            for end in (near, far):
                group.create_task(end.send_pattern(BULK))
                group.create_task(end.receive_pattern(BULK))


@loads(own=True, plain=True)
async def test_a_reader_that_stalls_gets_everything(tool: Tool, module: Module) -> None:
    async with listening() as server, tool.dial(module, server.address) as near:
        far = await server.accept()
        sending = asyncio.create_task(near.send_pattern(STALLED))
        await asyncio.sleep(1.5)
        assert not sending.done(), "nothing on the way holds so much"
        await far.receive_pattern(STALLED)
        await sending


@loads(own=True)
async def test_a_dialer_writes_on_after_the_other_end(tool: Tool, module: Module) -> None:
    async with listening() as server, tool.dial(module, server.address) as near:
        far = await server.accept()
        await far.send(module.on_the_wire(b"the last word"))
        far.end()
        assert await near.receive(13) == b"the last word"
        await near.ended()
        for size in (1, 1000):
            await near.send(bytes(size))
            assert await far.receive(size) == bytes(size)
        near.end()
        await far.ended()
        assert await near.exit_code() == 0, near.said()


@loads(own=True)
async def test_a_dialer_reads_on_after_its_own_end(tool: Tool, module: Module) -> None:
    async with listening() as server, tool.dial(module, server.address) as near:
        far = await server.accept()
        await near.send(b"a question")
        near.end()
        assert await far.receive(10) == module.on_the_wire(b"a question")
        if tool is not GO:  # the Go runtime cannot close one direction
            await far.ended()
        for size in (1, 1000):
            await far.send(bytes(size))
            assert await near.receive(size) == bytes(size)
        await far.close()
        await near.ended()
        assert await near.exit_code() == 0, near.said()


@loads(own=True)
async def test_a_reset_ends_a_dialer(tool: Tool, module: Module) -> None:
    async with listening() as server, tool.dial(module, server.address) as near:
        far = await server.accept()
        await near.send(b"x")
        assert await far.receive(1) == b"x"
        far.abort()
        await near.ended()
        near.end()
        await near.exit_code()


@loads(own=True)
async def test_a_listener_answers_after_the_other_end(tool: Tool, module: Module) -> None:
    async with listening() as upstream, tool.listen(module, upstream.address) as running:
        async with connected(running.address) as near:
            far = await upstream.accept()
            await tool.settled(running, 1)
            await half_close(near, far, module)


@loads(own=True)
async def test_a_relay_passes_on_each_end(tool: Tool, module: Module) -> None:
    async with listening() as upstream, tool.relay(module, upstream.address) as running:
        async with connected(running.address) as near:
            far = await upstream.accept()
            async with connected(running.address) as other:
                beyond = await upstream.accept()
                await tool.settled(running, 2)
                await half_close(near, far, module)
                await half_close(beyond, other, module)


async def half_close(near, far, module: Module) -> None:
    await near.send(b"a question")
    near.end()
    assert await far.receive(10) == module.on_the_wire(b"a question")
    await far.ended()
    await far.send(module.on_the_wire(b"an answer"))
    assert await near.receive(9) == b"an answer"
    far.end()
    await near.ended()
