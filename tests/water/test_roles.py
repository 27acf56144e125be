"""Every module in every role, with plain TCP on its other sides: the bytes on the wire."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from watm_test_support import pattern

from .cases import loads
from .ends import End, Listening, connected, listening
from .modules import PIECE, Module
from .tools import WATM, Running, Tool

SIZES = (1, 2, 64, 512, PIECE)


async def talk(near: End, far: End, module: Module, offset: int = 0) -> None:
    """Exchanges messages in turns between the two ends of a module."""
    for size in SIZES:
        message = pattern.piece(offset + size, size)
        await near.send(message)
        assert await far.receive(size) == module.on_the_wire(message)
        answer = pattern.piece(offset + 2 * size, size)
        await far.send(module.on_the_wire(answer))
        assert await near.receive(size) == answer


@loads()
async def test_a_dialer_carries_both_ways(tool: Tool, module: Module) -> None:
    async with listening() as server, tool.dial(module, server.address) as near:
        far = await server.accept()
        await talk(near, far, module)
        await far.close()
        await near.ended()
        near.end()
        # Modules of the WATER project end both directions at once, which this runtime reports as a
        # failure.
        assert await near.exit_code() == 0 or (tool is WATM and not module.own), near.said()


@loads()
async def test_a_configuration_is_in_nobodys_way(tool: Tool, module: Module, tmp_path) -> None:
    """Checks a configuration, which shifts the numbers of the module's descriptors."""
    config = tmp_path / "module.conf"
    config.write_text("# nothing\n")
    async with listening() as server, tool.dial(module, server.address, f"--config={config}") as near:
        await talk(near, await server.accept(), module)


@loads(own=True)
async def test_a_wrong_configuration_is_an_error_that_names_the_key(tool: Tool, module: Module, tmp_path) -> None:
    config = tmp_path / "module.conf"
    config.write_text('remot = "localhost:1"\n')
    # The log level that shows the output of a WATER module.
    flags = ["--log=debug"] if tool is WATM else []
    async with listening() as server, tool.dial(module, server.address, f"--config={config}", *flags) as near:
        assert await near.exit_code() == 1
        assert "remot" in near.said()


@loads(fixed=True)
async def test_a_fixed_dialer_goes_where_the_module_wants(tool: Tool, module: Module, tmp_path) -> None:
    async with listening(tool.port(module)) as server:
        async with tool.fixed(module, *tool.lead(module, server.address, tmp_path)) as near:
            await talk(near, await server.accept(), module)


@loads(fixed=True)
async def test_a_fixed_dialer_goes_nowhere_without_leave(tool: Tool, module: Module) -> None:
    async with tool.fixed(module) as near:
        assert await near.exit_code() == 1
        await near.ended()


@loads()
async def test_a_dial_that_is_refused_is_an_error(tool: Tool, module: Module) -> None:
    async with listening() as server:
        free = server.address
    async with tool.dial(module, free) as near:
        assert await near.exit_code() == 1
        # A component reports the failure after the connection is accepted.
        assert free in near.said() or "connection refused" in near.said()


@loads()
async def test_a_listener_has_many_connections(tool: Tool, module: Module) -> None:
    async with listening() as upstream, tool.listen(module, upstream.address) as running:
        async with crowd(tool, module, running, upstream) as pairs:
            for _, far in pairs:
                await far.close()
            for near, _ in pairs:
                await near.ended()


@loads()
async def test_a_relay_has_many_connections(tool: Tool, module: Module) -> None:
    async with listening() as upstream, tool.relay(module, upstream.address) as running:
        async with crowd(tool, module, running, upstream) as pairs:
            for near, _ in pairs:
                await near.close()
            for _, far in pairs:
                await far.ended()


@contextlib.asynccontextmanager
async def crowd(
    tool: Tool, module: Module, running: Running, upstream: Listening
) -> AsyncIterator[list[tuple[End, End]]]:
    """Opens connections to a server, each with its end behind the module, and uses all at once.

    They are opened one after the other, and close after all were opened: the Go runtime crashes
    when one opens while another closes.
    """
    async with contextlib.AsyncExitStack() as stack:
        pairs = []
        for index in range(connections(module)):
            near = await stack.enter_async_context(connected(running.address))
            far = await upstream.accept()
            pairs.append((near, far))
            await talk(near, far, module, index)
        async with asyncio.TaskGroup() as group:
            for index, (near, far) in enumerate(pairs):
                group.create_task(talk(near, far, module, 1000 * index))
        await tool.settled(running, len(pairs))
        yield pairs


def connections(module: Module) -> int:
    """Returns the number of connections: some modules of the other project keep a CPU busy for each."""
    return 30 if module.own else 6
