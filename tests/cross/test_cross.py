"""The runtime, built for other machines, runs: in emulation, against a real client."""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from mitmproxy_watm.wireguard import genkey, pubkey

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = ROOT / "watm" / "target" / "modules" / "wireguard.wasm"
WGCLIENT = ROOT / "build" / "wgclient"

# Seconds; the compiler of modules is emulated, and not optimized as a whole.
START, REQUEST, STOP = 300, 60, 30

MESSAGES = ("--messages=50", "--size=1000")


# Each kind of machine: cargo's name of it, the end of a program's name, what runs it here.
MACHINES = {
    "aarch64 Linux": ("aarch64-unknown-linux-gnu", "", ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]),
    "x86_64 Windows": ("x86_64-pc-windows-gnu", ".exe", [str(ROOT / "tests" / "cross" / "wine.sh")]),
}


@pytest.fixture(params=MACHINES)
def program(request: pytest.FixtureRequest) -> list[str]:
    """The example of the runtime, and what runs it."""
    target, suffix, emulator = MACHINES[request.param]
    return [*emulator, str(ROOT / "target" / target / "cross" / "examples" / f"serve{suffix}")]


@contextlib.contextmanager
def serving(program: list[str], home: pathlib.Path, config: str) -> Iterator[int]:
    """The port that the example serves on for a user with this home, until the block ends."""
    (home / "wg0.conf").write_text(config)
    process = subprocess.Popen(
        # Both families: wine lacks an option of sockets that are for IPv4 alone.
        [*program, str(MODULE), "wg0.conf", "[::]:0"],
        cwd=home,
        env=os.environ | {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "WINEPREFIX": str(home / "wine")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    port: list[int] = []
    ready = threading.Event()

    def read() -> None:
        for line in process.stdout:
            lines.append(line)
            if found := re.match(r"serving on \[::\]:(\d+)", line):
                port.append(int(found[1]))
                ready.set()
        ready.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        ready.wait(START)
        assert port, "".join(lines)
        yield port[0]
    finally:
        process.terminate()
        process.wait(STOP)
        reader.join(STOP)
        sys.stdout.writelines(lines)


def test_a_real_client_is_served_and_the_second_start_is_from_the_cache(program, tmp_path):
    server_key, client_key = genkey(), genkey()
    config = f"""
[Interface]
PrivateKey = {server_key}
[Peer]
PublicKey = {pubkey(client_key)}
AllowedIPs = 10.0.0.2/32
"""
    compiled = []
    for _ in range(2):
        with serving(program, tmp_path, config) as port:
            for action in (
                ["udp-echo", *MESSAGES],
                ["echo", "--to=10.1.2.3:7", *MESSAGES],
                ["http", "--url=http://10.1.2.3/"],
            ):
                subprocess.run(
                    [
                        WGCLIENT,
                        action[0],
                        f"--server=127.0.0.1:{port}",
                        f"--private-key={client_key}",
                        f"--peer-public-key={pubkey(server_key)}",
                        "--address=10.0.0.2",
                        *action[1:],
                    ],
                    check=True,
                    timeout=REQUEST,
                )
        compiled.append({path: path.stat().st_mtime_ns for path in tmp_path.rglob("watm/*.bin")})
    first, second = compiled
    assert len(first) == 1
    assert second == first
