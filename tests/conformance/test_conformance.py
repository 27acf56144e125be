"""The module behaves like the crate: the same client sees the same flows from both."""

import asyncio
import contextlib
import json
import pathlib
import sys
from collections.abc import AsyncIterator

import pytest

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.repository import ROOT
from watm_test_support.wgclient import WgClient, WgClientError

PROGRAMS = {
    "crate": [str(ROOT / "watm" / "target" / "release" / "watm-native")],
    "module": [sys.executable, str(ROOT / "tests" / "conformance" / "module_server.py")],
}
# Seconds without traffic until a UDP flow ends and is reported.
UDP_IDLE = 1
# The limit for the whole test, on a busy machine.
LIMIT = 120


@contextlib.asynccontextmanager
async def running(command: list[str], config: pathlib.Path) -> AsyncIterator[tuple[int, list[dict]]]:
    """Runs a server. Yields its port, and its flows: all of them after the block."""
    process = await asyncio.create_subprocess_exec(
        *command, "--listen", "127.0.0.1:0", "--config", str(config), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    flows: list[dict] = []
    try:
        port = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))["port"]

        async def collect() -> None:
            while line := await process.stdout.readline():
                flows.append(json.loads(line))

        collecting = asyncio.create_task(collect())
        yield port, flows
        process.terminate()
        await collecting
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()


async def script(client: WgClient) -> list[object]:
    """Runs the client's part, from fixed ports. Returns what it sees."""
    seen: list[object] = []
    hosts = ("10.9.8.7", "[fd00:9::7]")
    for number, host in enumerate(hosts):
        ports = iter(range(20_000 + 100 * number, 20_100 + 100 * number))

        for size in (1, 1380, 1381, 300_000):
            data = bytes(i * 7 % 251 for i in range(size))
            async with client.tcp(f"{host}:80", local_port=next(ports)) as conn:
                await conn.write(data)
                await conn.close_write()
                seen.append(await conn.read_all() == data)

        async with client.tcp(f"{host}:81", local_port=next(ports)) as conn:
            await conn.write(b"soon gone")
            seen.append(await conn.read_exactly(9))
            await conn.abort()

        async with client.tcp(f"{host}:65535", local_port=next(ports)) as conn:
            await conn.close_write()
            seen.append(await conn.read_all())

        for sizes in ((0, 1, 100), (1392, 1393, 8000, 60_000)):
            async with client.udp(f"{host}:53", local_port=next(ports)) as conn:
                for size in sizes:
                    await conn.write(b"d" * size)
                    seen.append(len(await conn.read(65535)))

        ping = await client.do("ping", to=host.strip("[]"), count=3)
        seen.append((ping["replies"], ping["lost"]))
    with pytest.raises(WgClientError):  # a destination that no network has
        await client.do("open", name="none", network="tcp", to="224.0.0.1:80", timeout=2)
    return seen


async def observe(command: list[str], config: pathlib.Path, client_key: str, server_key: str, flows: int):
    """Returns what the client saw, and the flows that the server reported."""
    async with asyncio.timeout(LIMIT), running(command, config) as (port, reported):
        options = {"address": ["10.0.0.1", "fd00::1"], "server": f"127.0.0.1:{port}"}
        async with WgClient.start(private_key=client_key, peer_public_key=pubkey(server_key), **options) as client:
            seen = await script(client)
            while len(reported) < flows:
                await asyncio.sleep(0.1)
    return seen, sorted(reported, key=lambda flow: (flow["kind"], flow["source"]))


def test_the_same_client_sees_the_same_and_makes_the_same_flows(tmp_path: pathlib.Path) -> None:
    server_key, client_key = genkey(), genkey()
    config = tmp_path / "wireguard.conf"
    keys = {"server_key": server_key, "client_key": client_key}
    config.write_text(json.dumps(keys | {"udp_idle_timeout": UDP_IDLE}))

    # For each address family: six connections and two flows of datagrams.
    results = {
        name: asyncio.run(observe(command, config, client_key, server_key, flows=16))
        for name, command in PROGRAMS.items()
    }

    seen, flows = results["crate"]
    assert seen[:8] == [True] * 4 + [b"soon gone", b"", 0, 1]
    assert [flow["kind"] for flow in flows] == ["tcp"] * 12 + ["udp"] * 4
    assert {flow["peer"] for flow in flows} == {pubkey(client_key)}
    assert results["module"] == results["crate"]
