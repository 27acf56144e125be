"""Recordings of servers with real traffic, and their replay by the program `watm`."""

import stat
import subprocess
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import mitmproxy_watm
from watm_test_support.repository import ROOT
from watm_test_support.wireguard_server import serve

MODULE = Path(str(resources.files("mitmproxy_watm") / "modules" / "wireguard.wasm"))
SIZE = 300_000
BUILD = 1800  # seconds; `watm` is built if it is not there yet


def replay(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs `watm replay` with a state of its own, because the user's may trust another root."""
    with TemporaryDirectory() as state:
        options = ["--root", str(MODULE.with_name("root.watm")), "--state", f"{state}/trust"]
        return subprocess.run(
            ["cargo", "run", "--release", "--locked", "--quiet", "--bin=watm", "--", "replay"]
            + [*options, *(str(argument) for argument in arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=BUILD,
        )


async def record(path: Path, **options: object) -> None:
    """Records a handshake, a TCP connection and a UDP flow, with data both ways."""
    async with serve(record=path, **options) as served:
        async with served.tcp() as (socket, stream):
            await socket.write(b"x" * SIZE)
            await socket.close_write()
            assert await stream.read() == b"x" * SIZE
            stream.write(b"y" * SIZE)
            stream.write_eof()
            assert await socket.read_all() == b"y" * SIZE
        async with served.udp() as (socket, stream):
            assert await stream.read(100) == b"first"
            stream.write(b"answer")
            assert await socket.read() == b"answer"
        served.server.stats()
        served.server.client_configs()


@pytest.mark.parametrize("host_crypto", [True, False])
async def test_a_recorded_life_is_the_same_again(tmp_path, host_crypto):
    path = tmp_path / "life.watm"
    await record(path, host_crypto=host_crypto)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # It contains the client's data, and not the module's output.
    assert SIZE < path.stat().st_size < 3 * SIZE
    for flags in ([], ["--lenient"]):
        result = replay(*flags, path, MODULE)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "the one that was recorded" in result.stdout
        assert "the server was closed" in result.stdout
        assert result.stdout.endswith("identical\n")


async def test_a_recording_replaces_no_file(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(ValueError, match="notes.txt already exists"):
        await record(path)
    assert path.read_text() == "mine"


async def test_a_recording_ends_at_its_limit(tmp_path):
    path = tmp_path / "life.watm"
    await record(path, limits=mitmproxy_watm.Limits(record_bytes=100_000))
    assert 30_000 < path.stat().st_size <= 100_000
    result = replay(path, MODULE)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "the size limit of 100000 bytes was reached" in result.stdout
