"""Runs the runtime, built for other machines, in emulation against a real client."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mitmproxy_watm.wireguard import genkey, pubkey
from watm_test_support.repository import MODULES, ROOT

MODULE = MODULES / "wireguard.wasm"
WGCLIENT = ROOT / "build" / "wgclient"

# Seconds. The compiler of modules is emulated, and built without link-time optimization.
BUILD, START, REQUEST, STOP = 1800, 300, 60, 30

MESSAGES = ("--messages=50", "--size=1000")


@dataclass(frozen=True)
class Machine:
    """Another kind of machine."""

    target: str
    """The target triple."""
    emulator: list[str]
    """The emulator and its arguments."""

    def program(self, name: str, *build: str) -> list[str]:
        """Returns the command that runs this program, which a cargo command builds."""
        command = ["cargo", *build, "--message-format=json", "--profile=cross", "--locked", f"--target={self.target}"]
        output = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=BUILD).stdout
        artifacts = [json.loads(line) for line in output.splitlines()]
        (program,) = (a["executable"] for a in artifacts if a.get("executable") and a["target"]["name"] == name)
        return [*self.emulator, program]


@pytest.fixture(
    params=[
        Machine("aarch64-unknown-linux-gnu", ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]),
        Machine("x86_64-pc-windows-gnu", [str(ROOT / "tests" / "cross" / "wine.sh")]),
    ],
    ids=lambda machine: machine.target,
)
def machine(request: pytest.FixtureRequest) -> Machine:
    return request.param


@contextlib.contextmanager
def serving(program: list[str], home: pathlib.Path, config: str) -> Iterator[int]:
    """Runs the example for a user with this home until the block ends, and yields its port."""
    (home / "wg0.conf").write_text(config)
    process = subprocess.Popen(
        # Both address families: wine lacks an option of IPv4-only sockets.
        [*program, "--unsealed", str(MODULE), "wg0.conf", "[::]:0"],
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


def test_the_runtimes_unit_tests_pass(machine, tmp_path):
    program = machine.program("watm_runtime", "test", "--no-run", "--workspace", "--lib")
    environment = os.environ | {"WINEPREFIX": str(tmp_path / "wine")}
    done = subprocess.run(program, env=environment, stdout=subprocess.PIPE, timeout=START, text=True)
    output = done.stdout
    assert done.returncode == 0, output
    assert "it_rings_until_it_is_cleared" in output
    assert re.search(r"test result: ok\. [1-9]\d* passed", output)


def test_a_real_client_is_served_and_the_second_start_is_from_the_cache(machine, tmp_path):
    program = machine.program("serve", "build", "--workspace", "--lib", "--bins", "--examples")
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
