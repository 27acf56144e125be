"""Runs the artefacts in dist/ for other machines in emulation, with a real client: wine for Windows, QEMU for arm64.

`make test-emulated` prepares the emulators. Artefacts that dist/ lacks are not in the list of tests.
"""

import asyncio
import contextlib
import json
import subprocess
import tarfile
import zipfile
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.tunnel.programs import INSIDE, Program, curl, peer
from watm_test_support.every_flow import check_every_kind_of_flow
from watm_test_support.mitmproxy_programs import start
from watm_test_support.repository import ROOT
from watm_test_support.upper_case import upper

PYTHONS = sorted((ROOT / "build" / "pythons").glob("*/bin/mitmdump-watm"))
# Seconds. The compiler of modules is emulated, and Python starts slowly.
START, RUN = 400, 300

EMULATORS = {
    "x86_64-pc-windows-gnullvm": (str(ROOT / "tests" / "cross" / "wine.sh"),),
    "aarch64-unknown-linux-musl": ("qemu-aarch64",),
    "x86_64-unknown-linux-musl": (),
}
ARCHIVES = {file: target for target in EMULATORS for file in (ROOT / "dist").glob(f"watm-*-{target}.*")}


@pytest.fixture(autouse=True)
def a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the programs' caches and states inside the test's folder."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("WINEPREFIX", str(tmp_path / "wine"))


def test_there_is_something_to_run():
    assert PYTHONS or ARCHIVES, "dist/ has no artefact for an emulator"


@pytest.mark.limit(1200)
@pytest.mark.parametrize("program", PYTHONS, ids=lambda program: program.parts[-3])
async def test_a_real_clients_flows_reach_mitmdump(program: Path, tmp_path: Path):
    async with upper() as echo:
        # Both address families: wine lacks an option of IPv4-only sockets.
        mode = ("--mode", "watm:wireguard@0", "--set", f"echo_port={echo}")
        async with start(str(program), tmp_path, *mode, patience=START) as running:
            await check_every_kind_of_flow(running, tmp_path, await running.port())
    assert "Traceback" not in running.text


@pytest.fixture(params=ARCHIVES, ids=ARCHIVES.get)
def watm(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Unpacks an archive, and returns the command that runs its program."""
    unpacked = tmp_path / "unpacked"
    if request.param.suffix == ".zip":
        with zipfile.ZipFile(request.param) as archive:
            archive.extractall(unpacked)
    else:
        with tarfile.open(request.param) as archive:
            archive.extractall(unpacked, filter="data")
    [program] = unpacked.glob("*/watm*")
    return [*EMULATORS[ARCHIVES[request.param]], str(program)]


def module(watm: list[str]) -> Path:
    """Returns the WireGuard module beside a program."""
    return Path(watm[-1]).parent / "modules" / "wireguard.wasm"


def run(watm: list[str], *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [*watm, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, stdin=subprocess.PIPE, capture_output=True, text=True, timeout=RUN)


@pytest.mark.limit(1200)
def test_a_program_knows_its_modules_and_its_machine(watm: list[str], tmp_path: Path):
    # Under the root that is built in.
    verified = run(watm, "verify", module(watm), folder=tmp_path)
    assert verified.returncode == 0 and "watm/wireguard" in verified.stdout, verified
    examined = run(watm, "doctor", "--json", folder=tmp_path)
    checks = {check["name"]: check for check in json.loads(examined.stdout)["checks"]}
    del checks["descriptors"]  # This machine's limit.
    assert {name for name, check in checks.items() if not check["ok"]} == set(), checks
    assert checks["engine"]["found"] == "modules run as machine code"


@pytest.mark.limit(1200)
async def test_a_programs_tunnel_carries_curl(watm: list[str], tmp_path: Path):
    approved = run(watm, "trust", "--approve", module(watm), folder=tmp_path)
    assert approved.returncode == 0, approved.stderr
    async with peer() as other:
        (tmp_path / "wg0.conf").write_text(other.config)
        async with tunnelling(watm, tmp_path) as near:
            assert await curl("--socks5", f"127.0.0.1:{near.ports['socks5']}", f"http://{INSIDE}/") == (0, "inside")


@contextlib.asynccontextmanager
async def tunnelling(watm: list[str], folder: Path):
    """Runs `watm tunnel` with SOCKS5 for the block."""
    command = [*watm, "tunnel", "wg0.conf", "--socks5", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    lines = []
    try:
        async with asyncio.timeout(START):
            while "listening on " not in (line := (await process.stderr.readline()).decode()):
                assert line, "".join(lines)
                lines.append(line)
        address = line.strip().partition("listening on ")[2].partition(" for ")[0]
        yield Program({"socks5": int(address.rpartition(":")[2])}, process)
    finally:
        process.terminate()
        await process.communicate()
