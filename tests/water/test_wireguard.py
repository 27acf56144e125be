"""WireGuard over streams, in the Go runtime and in this one, at both ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

import mitmproxy_watm
from watm_test_support import pattern

from .ends import HOST, Listening, connected, listening
from .modules import own, shipped
from .test_programs import SIZES, run, web_server
from .tools import GO, WATM, Dialled, Running, Tool
from .tunnels import TARGET, WIREGUARD, WIREGUARD_COMPONENT, tunnel

# Several times the capacity of the sockets, pipes, queues and windows on the way.
BULK = 16_000_000
# More than sockets and queues on the way hold while nobody reads: see test_streams.py.
STALLED = 64_000_000

dialling = pytest.mark.parametrize("dialler", [GO, WATM], ids=str)
serving = pytest.mark.parametrize("server", [GO, WATM], ids=str)


@contextlib.asynccontextmanager
async def tunnelled(dialler: Tool, server: Tool, folder) -> AsyncIterator[tuple[Dialled, Listening, Running]]:
    """Yields a connection through a tunnel, its other end, and the server."""
    keys = tunnel(folder)
    async with (
        listening() as upstream,
        server.listen(WIREGUARD, upstream.address, keys.serving()) as running,
        dialler.dial(WIREGUARD, running.address, keys.dialling()) as near,
    ):
        yield near, upstream, running


@dialling
@serving
async def test_a_tunnel_carries_both_ways(dialler: Tool, server: Tool, tmp_path) -> None:
    async with tunnelled(dialler, server, tmp_path) as (near, upstream, running):
        await near.send(b"first")
        far = await upstream.accept()
        assert await far.receive(5) == b"first"
        await near.exchange(far, (1, 100, 1420, 65536))
        await server.settled(running, 1)
        await far.close()
        await near.ended()
        near.end()
        assert await near.exit_code() == 0, near.said()


@dialling
@serving
async def test_a_tunnel_streams_both_ways_at_once(dialler: Tool, server: Tool, tmp_path) -> None:
    async with tunnelled(dialler, server, tmp_path) as (near, upstream, _):
        far = await upstream.accept()
        async with asyncio.TaskGroup() as group:
            for end in (near, far):
                group.create_task(end.send_pattern(BULK))
                group.create_task(end.receive_pattern(BULK))


@dialling
async def test_a_reader_that_stalls_gets_everything(dialler: Tool, tmp_path) -> None:
    async with tunnelled(dialler, WATM, tmp_path) as (near, upstream, _):
        far = await upstream.accept()
        sending = asyncio.create_task(near.send_pattern(STALLED))
        await asyncio.sleep(1.5)
        assert not sending.done(), "nothing on the way holds so much"
        # The other direction continues meanwhile.
        await far.send(b"patience")
        assert await near.receive(8) == b"patience"
        await far.receive_pattern(STALLED)
        await sending


@dialling
async def test_each_direction_ends_by_itself(dialler: Tool, tmp_path) -> None:
    async with tunnelled(dialler, WATM, tmp_path) as (near, upstream, _):
        far = await upstream.accept()
        await far.send(b"the last word")
        far.end()
        assert await near.receive(13) == b"the last word"
        await near.ended()
        await near.send(b"not mine")
        assert await far.receive(8) == b"not mine"
        near.end()
        await far.ended()
        assert await near.exit_code() == 0, near.said()


async def test_what_was_written_before_the_end_arrives(tmp_path) -> None:
    async with tunnelled(WATM, WATM, tmp_path) as (near, upstream, _):
        await near.send_pattern(BULK // 4)
        near.end()
        far = await upstream.accept()
        await far.receive_pattern(BULK // 4)
        await far.ended()
        await far.send(b"thanks")
        await far.close()
        assert await near.receive(6) == b"thanks"
        await near.ended()
        assert await near.exit_code() == 0, near.said()


@dialling
@serving
async def test_many_tunnels_side_by_side(dialler: Tool, server: Tool, tmp_path) -> None:
    keys = tunnel(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(listening())
        running = await stack.enter_async_context(server.listen(WIREGUARD, upstream.address, keys.serving()))
        ends = []
        for number in range(8):
            near = await stack.enter_async_context(dialler.dial(WIREGUARD, running.address, keys.dialling()))
            far = await upstream.accept()
            await near.send(bytes([number]) * 1000)
            ends.append((near, far))
            await server.settled(running, number + 1)
        for number, (near, far) in enumerate(ends):
            assert await far.receive(1000) == bytes([number]) * 1000
            await far.send(bytes([number]) * 2000)
        for number, (near, _) in enumerate(ends):
            assert await near.receive(2000) == bytes([number]) * 2000


@dialling
async def test_a_fixed_dialer_goes_to_the_endpoint(dialler: Tool, tmp_path) -> None:
    keys = tunnel(tmp_path)
    async with listening() as upstream, WATM.listen(WIREGUARD, upstream.address, keys.serving()) as running:
        flags = [keys.dialling(running.address), f"--allow={running.address}"]
        async with dialler.fixed(WIREGUARD, *flags) as near:
            await near.send(b"question")
            far = await upstream.accept()
            assert await far.receive(8) == b"question"
            await far.send(b"answer")
            assert await near.receive(6) == b"answer"


@dialling
@serving
async def test_curl_fetches_pages_through_a_relay(dialler: Tool, server: Tool, tmp_path) -> None:
    keys = tunnel(tmp_path)
    site = tmp_path / "site"
    site.mkdir()
    for size in SIZES:
        (site / str(size)).write_bytes(bytes(size))
    with web_server(site) as address:
        async with (
            server.listen(WIREGUARD, address, keys.serving()) as running,
            dialler.relay(WIREGUARD, running.address, keys.dialling()) as relay,
        ):
            wanted = [f"http://{relay.address}/{size}" for size in SIZES]
            await run(["curl", "-sSf", "--output-dir", tmp_path, "--remote-name-all", *wanted])
    for size in SIZES:
        assert (tmp_path / str(size)).read_bytes() == bytes(size)


@dialling
async def test_a_module_reaches_the_server_that_tools_load(dialler: Tool, tmp_path) -> None:
    """Checks the same WireGuard as a component in a Python program."""
    keys = tunnel(tmp_path)
    seen = []

    async def echo(stream) -> None:
        seen.append((stream.get_extra_info("sockname"), stream.get_extra_info("peername")))
        while data := await stream.read(65536):
            stream.write(data)
            await stream.drain()
        stream.close()

    async with await mitmproxy_watm.start_server(
        "wireguard", HOST, 0, config=keys.server, transport="tcp", handle_tcp_stream=echo
    ) as server:
        to = "{}:{}".format(*server.getsockname()[:2])
        async with dialler.dial(WIREGUARD, to, keys.dialling()) as near:
            async with asyncio.TaskGroup() as group:
                group.create_task(near.send_pattern(BULK // 4))
                group.create_task(near.receive_pattern(BULK // 4))
            near.end()
            await near.ended()
    host, _, port = TARGET.rpartition(":")
    assert seen[0][0] == (host, int(port))
    assert seen[0][1][0] == "10.0.0.1"


async def test_a_component_dials_anywhere_in_the_tunnel(tmp_path) -> None:
    keys = tunnel(tmp_path)
    async with listening() as upstream, WATM.listen(WIREGUARD, upstream.address, keys.serving()) as running:
        flags = [keys.dialling(running.address, target=None), f"--allow={running.address}"]
        async with WATM.dial(WIREGUARD_COMPONENT, "10.1.2.3:443", *flags) as near:
            await near.send(b"question")
            far = await upstream.accept()
            assert await far.receive(8) == b"question"
            await far.send(b"answer")
            await far.close()
            assert await near.receive(6) == b"answer"
            await near.ended()
            near.end()
            assert await near.exit_code() == 0, near.said()


# Modules that do not reverse bytes, because reversal depends on the boundaries of reads.
CARRIERS = [module for module in [*own(), *shipped()] if module.name in ("own-plain", "v0-plain-go")]


@pytest.mark.parametrize("carrier", CARRIERS, ids=str)
async def test_another_transport_carries_the_tunnel(carrier, tmp_path) -> None:
    keys = tunnel(tmp_path)
    async with (
        listening() as upstream,
        GO.listen(WIREGUARD, upstream.address, keys.serving()) as server,
        WATM.listen(carrier, server.address) as decoding,
        WATM._serve(["dial", "--unsealed", carrier.path, decoding.address, "--listen", f"{HOST}:0"]) as encoding,
        WATM.dial(WIREGUARD, encoding.address, keys.dialling()) as near,
    ):
        for size in (10, 1000, 20_000):
            message = pattern.piece(size, size)
            await near.send(message)
            if size == 10:
                far = await upstream.accept()
            assert await far.receive(size) == message
            await far.send(message)
            assert await near.receive(size) == message


@dialling
async def test_a_server_that_goes_away_ends_the_connection(dialler: Tool, tmp_path) -> None:
    async with tunnelled(dialler, WATM, tmp_path) as (near, upstream, running):
        await near.send(b"hello")
        far = await upstream.accept()
        assert await far.receive(5) == b"hello"
        await running.stop()
        await near.ended()


@serving
async def test_strangers_get_no_answer_and_cost_themselves_alone(server: Tool, tmp_path) -> None:
    keys = tunnel(tmp_path)
    async with (
        listening() as upstream,
        server.listen(WIREGUARD, upstream.address, keys.serving()) as running,
        connected(running.address) as stranger,
    ):
        await stranger.send(b"GET / HTTP/1.1\r\n\r\n" + bytes(70_000))
        # This runtime passes a client on only after the handshake.
        if server is not WATM:
            await upstream.accept()
        async with WATM.dial(WIREGUARD, running.address, keys.dialling()) as near:
            await near.send(b"hello")
            far = await upstream.accept()
            assert await far.receive(5) == b"hello"
            await server.settled(running, 2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await stranger.reader.read(1)


@dialling
async def test_a_tunnel_without_a_target_is_an_error_that_names_it(dialler: Tool, tmp_path) -> None:
    keys = tunnel(tmp_path)
    flags = ["--log=debug"] if dialler is WATM else []
    async with listening() as server:
        async with dialler.dial(WIREGUARD, server.address, keys.dialling(target=None), *flags) as near:
            assert await near.exit_code() == 1
            assert "[Watm] has no Target" in near.said()


@dialling
async def test_a_wrong_configuration_names_its_line(dialler: Tool, tmp_path) -> None:
    config = tmp_path / "wrong.conf"
    config.write_text("[Interface]\nPrivateKy = x\n")
    flags = ["--log=debug"] if dialler is WATM else []
    async with listening() as server:
        async with dialler.dial(WIREGUARD, server.address, f"--config={config}", *flags) as near:
            assert await near.exit_code() == 1
            assert "line 2: [Interface]" in near.said()
