"""Paths whose round trip varies: all data arrives, and no stream stalls.

Time limits are many times the usual durations, so a failure is a stall.
"""

import asyncio
import contextlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support import pattern, services
from watm_test_support.children import child
from watm_test_support.paths import Path, path
from watm_test_support.ports import free_port
from watm_test_support.spaces import Space, spaces, wireguard_go
from watm_test_support.tunnels import HOST, V4, Peer, config, serving

from . import pushes

HERE = pathlib.Path(__file__).parent
# Extra delays of each datagram in each direction. The order is kept.
ALTERNATING, RANDOM, SHORT = "1ms,8ms", "2ms-20ms", "500us-6ms"
STREAMS = 10
# Seconds for all transfers of a test, which take a few seconds.
LIMIT = 40


class Browsing:
    """mitmdump-watm, and a namespace whose traffic goes through it over an emulated path."""

    def __init__(self, between: Path, inner: Space) -> None:
        self.path, self._inner = between, inner

    def run(self, *command: str | pathlib.Path) -> str:
        """Runs a program in the namespace whose only route is the tunnel."""
        return self._inner.run(*command)


@pytest.fixture(scope="module")
def browsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    folder = tmp_path_factory.mktemp("jitter")
    server_key, peer, port = genkey(), Peer(), free_port()
    file = folder / "wg0.conf"
    file.touch(mode=0o600)
    file.write_text(config(server_key, [peer]))
    with spaces(2) as (outer, inner), contextlib.ExitStack() as stack:
        command = outer.command(sys.executable, HERE / "pushes.py", "serve")
        server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(server.terminate)
        settings = {
            "confdir": folder,
            # mitmproxy offers HTTP/2 only while it does not know the server.
            "connection_strategy": "lazy",
            "local_server": server.stdout.readline().strip(),
        }
        command = outer.command(
            pathlib.Path(sys.executable).with_name("mitmdump-watm"),
            *("--mode", f"watm:wireguard?config={file}@{HOST}:{port}"),
            *("-s", HERE / "local_addon.py"),
        )
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        process = stack.enter_context(child("mitmdump-watm", command, folder / "mitmdump.log"))
        process.wait_for("the server did not start", lambda: f"listening at {HOST}:{port}" in process.said(), 60)
        between = stack.enter_context(path(port, inside=outer.command))
        client = (
            f"[Interface]\nPrivateKey = {peer.private_key}\n"
            f"[Peer]\nPublicKey = {pubkey(server_key)}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {between.address}\n"
        )
        name = stack.enter_context(wireguard_go(outer, inner, client, [f"{peer.addresses[0]}/32"]))
        inner.run("ip", "route", "add", "default", "dev", name)
        yield Browsing(between, inner)


@pytest.mark.parametrize("jitter", [ALTERNATING, RANDOM])
def test_websockets_get_every_message_that_is_pushed(browsing: Browsing, jitter: str) -> None:
    browsing.path.change("--jitter", jitter)
    watched = json.loads(browsing.run(sys.executable, HERE / "pushes.py", "watch", V4, "80", str(STREAMS)))
    stuck = [connection for connection in watched if connection["came"] != connection["sent"]]
    assert (len(watched), stuck) == (STREAMS, [])


@pytest.mark.parametrize("jitter", [ALTERNATING, RANDOM])
def test_curl_downloads_by_http_2_after_many_small_answers(browsing: Browsing, jitter: str) -> None:
    browsing.path.change("--jitter", jitter)
    small, size = range(100, 300), 20_000_000
    command = ["timeout", str(LIMIT), "curl", "-sSk", "--http2", "--parallel", "--parallel-max", "8"]
    for what in (f"[{small.start}-{small.stop - 1}]", size):
        command += ["-o", "/dev/null", f"https://{V4}/{what}"]
    downloaded = browsing.run(*command, "-w", "%{http_version} %{size_download}\n")
    assert sorted(downloaded.splitlines()) == sorted(f"2 {each}" for each in (*small, size))


@pytest.mark.parametrize("jitter", [SHORT, ALTERNATING, RANDOM])
async def test_streams_that_push_little_by_little_stay_alive(jitter: str) -> None:
    peer = Peer()

    async def push(stream) -> None:
        sent = 0
        for sizes, pause in pushes.bursts(seed=stream.get_extra_info("peername")[1]):
            for size in sizes:
                stream.write(pattern.piece(sent, size))
                sent += size
                await stream.drain()
            await asyncio.sleep(pause)
        stream.write_eof()

    async with serving(peer, handle_tcp=push) as running:
        with path(running.server.getsockname()[1], "--jitter", jitter) as between:
            async with running.client(peer, server=between.address) as client:

                async def read(port: int) -> int:
                    """Returns the number of bytes missing or wrong at the end of the stream."""
                    sent = sum(sum(sizes) for sizes, _ in pushes.bursts(seed=port))
                    async with client.tcp(f"{V4}:4000", local_port=port) as conn:
                        came = await conn.read_exactly(sent + 1, timeout=LIMIT)
                    assert pattern.matches(came, 0)
                    return sent - len(came)

                ports = range(5000, 5000 + STREAMS)
                assert await asyncio.gather(*map(read, ports)) == [0] * STREAMS


@pytest.mark.parametrize(("round_trip", "size"), [("60ms", 100), ("20ms", 1000)])
async def test_a_lot_follows_a_little_on_a_path_that_has_become_longer(round_trip: str, size: int) -> None:
    peer = Peer()
    async with serving(peer) as running:
        with path(running.server.getsockname()[1]) as between:
            async with (
                running.client(peer, server=between.address) as client,
                client.tcp(f"{V4}:{services.TRICKLE}") as conn,
            ):
                for _ in range(50):
                    await conn.write(bytes(8))
                    assert await conn.read_exactly(8) == bytes(8)
                between.change("--round-trip", round_trip)
                await conn.write(size.to_bytes(8, "little"))
                sent = services.FEW * size + services.LOT
                came = await conn.read_exactly(sent + 1, timeout=LIMIT)
                assert (len(came), pattern.matches(came, 0)) == (sent, True)
