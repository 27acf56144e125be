"""Swaps of the module under traffic of a real WireGuard client: neither side notices."""

import asyncio

import pytest

import mitmproxy_watm
from mitmproxy_watm.wireguard import genkey
from tests.swap.run import marked, run
from watm_test_support.repository import ROOT
from watm_test_support.tunnels import V4, Peer, config, serving

MODULE = (ROOT / "watm/target/modules/wireguard.wasm").read_bytes()


async def test_everything_goes_on_through_ten_swaps() -> None:
    result = await run(15, 10, MODULE, probation=0.3)
    assert result.errors == []
    assert result.generation == 10
    download, shell, requests, echo = result.parts.values()
    assert (shell.done, download.done > 100, requests.done > 300, echo.done > 300) == (shell.done, True, True, True)
    assert shell.done >= 3 and echo.lost == 0
    # New flows go to the new module.
    assert max(result.served) < 2


async def test_a_hundred_swaps_leave_nothing_behind() -> None:
    peer = Peer()
    modules = [await mitmproxy_watm.load_module(marked(MODULE, mark), unsealed=True) for mark in (0, 1)]
    async with serving(peer, module=modules[0]) as running, running.client(peer) as client:
        async with client.tcp(f"{V4}:7") as conn:
            for number in range(100):
                await running.server.swap(modules[(number + 1) % 2], probation=0)
                await conn.write(b"still the same connection")
                assert await conn.read_exactly(25) == b"still the same connection"
                if number % 10 == 0:
                    assert (await client.do("http", url=f"http://{V4}/"))["status"] == 200
                await asyncio.sleep(0.03)

            async def others() -> list[int]:
                return [known.number for known in running.server.status().generations][1:-1]

            # Generations without flows end once the client has answered, or some time later.
            for _ in range(80):
                if not await others():
                    break
                await asyncio.sleep(0.5)
            assert await others() == []
            status = running.server.status()
            assert (status.generation, status.flows) == (100, 1)
            await conn.write(b"x")
            assert await conn.read_exactly(1) == b"x"


async def test_another_configuration_comes_with_the_swap() -> None:
    stays, goes, comes = (Peer((f"10.0.0.{n}",)) for n in (1, 2, 3))
    key = genkey()
    async with serving(stays, goes, private_key=key) as running:
        async with running.client(stays) as client, running.client(goes) as removed:
            assert (await removed.do("echo", messages=1))["messages"] == 1
            async with client.tcp(f"{V4}:7") as conn:
                await running.server.swap("wireguard", config=config(key, [stays, comes]))
                await conn.write(b"x")
                assert await conn.read_exactly(1) == b"x"
            async with running.client(comes) as added:
                assert (await added.do("echo", messages=1))["messages"] == 1
            with pytest.raises(Exception, match="deadline|time"):
                await removed.do("echo", messages=1, timeout=2)


async def test_what_does_not_fit_is_refused_and_nothing_changes() -> None:
    peer = Peer()
    async with serving(peer) as running, running.client(peer) as client, client.tcp(f"{V4}:7") as conn:
        with pytest.raises(mitmproxy_watm.ModuleError, match="must be tcp|WATER"):
            await running.server.swap("plain")
        with pytest.raises(ValueError, match="PrivateKey"):
            await running.server.swap("wireguard", config="[Interface]\nPrivateKey = short\n")
        with pytest.raises(mitmproxy_watm.ModuleError, match="not WebAssembly"):
            await running.server.swap(b"text", unsealed=True)
        await conn.write(b"x")
        assert await conn.read_exactly(1) == b"x"
        assert running.server.status().generation <= 1
