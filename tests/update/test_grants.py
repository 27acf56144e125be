"""A module's requests, grants and usage, as the command and Python show them; and disks that are full or read-only."""

import asyncio
import contextlib
import json
import os
import pathlib
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

import mitmproxy_watm
from watm_test_support.repository import ROOT, WATM

from .authority import EXPIRES, Authority, done, watm
from .test_hosts import MAY, sealed, serving

PLAIN = ROOT / "watm/target/modules/plain.watm1.wasm"
# Seconds.
LIMIT = 30


def plain(authority: Authority, release: str) -> bytes:
    shape = {"world": "water-v1", "roles": ["relay", "dialer", "listener"]} | EXPIRES
    return authority.seal_body(PLAIN.read_bytes(), release, capabilities=MAY | {"instances": 100}, **shape)


def inspect(module: pathlib.Path, *more: object) -> dict:
    run = watm("inspect", module, *more, "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@contextlib.contextmanager
def echo() -> Iterator[int]:
    """Runs an echo server. Yields its port."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(ConnectionError):
            while data := connection.recv(4096):
                connection.sendall(data)

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=[connection], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=[listener], daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Returns a user's folder without any state."""
    for variable, folder in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(variable, str(tmp_path / folder))
    return tmp_path


def test_inspect_shows_what_is_asked_allowed_granted_and_used(authority: Authority, home: pathlib.Path) -> None:
    module = home / "plain.wasm"
    module.write_bytes(plain(authority, "1.1"))
    shown = inspect(module)
    assert shown["ceiling"]["flows"] == MAY["flows"] and "dial" in shown["requests"]
    assert shown["granted"] is None and "no root is trusted" in shown["refused"]
    # The root is trusted for one command, and then permanently.
    assert "--approve" in inspect(module, "--root", authority.root)["refused"]
    done("trust", authority.root)
    assert "--approve" in inspect(module)["refused"]
    lines = done("inspect", module).splitlines()
    assert "used      not run yet" in lines
    assert any(line.startswith("granted   nothing: ") for line in lines), lines
    done("trust", "--approve", module)
    assert inspect(module)["granted"] == shown["ceiling"]
    grants = home / "grants.toml"
    grants.write_text('[wireguard]\nflows = 7\nconnect = ["127.0.0.1"]\n')
    assert inspect(module, "--grants", grants)["granted"]["flows"] == 7
    assert inspect(module)["used"] is None

    with echo() as port:
        command = [WATM, "relay", module, "127.0.0.1:0", f"127.0.0.1:{port}"]
        process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
        try:
            line = process.stderr.readline()
            assert line.startswith("listening on "), line
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", int(line.rpartition(":")[2])), timeout=LIMIT) as tcp:
                    tcp.sendall(b"hello")
                    assert tcp.recv(5) == b"hello"
        finally:
            process.terminate()
            process.communicate(timeout=LIMIT)
    used = inspect(module)["used"]
    assert used["release"] == "1.1" and used["since"] <= used["until"]
    (destination,) = used["used"]["destinations"]
    assert destination == {"target": f"127.0.0.1:{port}", "connections": 3, "failures": 0}
    assert used["used"]["memory-peak-bytes"] > 1 << 16
    lines = done("inspect", module).splitlines()
    assert f"used      connect to 127.0.0.1:{port}: 3 times, 0 failed" in lines, lines
    assert "used      last run: release 1.1, " in "\n".join(lines)
    file = home / "state" / "watm" / "used" / "wireguard.json"
    assert file.stat().st_mode & 0o777 == 0o600
    # A damaged record counts as missing, because nothing depends on it.
    file.write_text("{")
    assert inspect(module)["used"] is None


@pytest.mark.parametrize("command", ["listen", "relay", "serve", "dial"])
def test_what_was_used_is_written_down_when_a_signal_ends_it(
    command: str, authority: Authority, home: pathlib.Path
) -> None:
    module = home / "plain.wasm"
    module.write_bytes(plain(authority, "1.1"))
    done("trust", authority.root)
    done("trust", "--approve", module)
    here = "127.0.0.1:0"
    with echo() as port:
        there = f"127.0.0.1:{port}"
        arguments = {
            "listen": [here, "--forward", there],
            "relay": [here, there],
            "serve": ["--listen", here, "--upstream", there, "--workers", "1"],
            "dial": [there, "--listen", here],
        }[command]
        started = [str(part) for part in (WATM, command, module, *arguments)]
        with subprocess.Popen(started, stderr=subprocess.PIPE, text=True) as process:
            line = process.stderr.readline()
            assert line.startswith("listening on "), line
            at = int(line.rpartition(":")[2])
            # A connection is open when the program ends.
            with socket.create_connection(("127.0.0.1", at), timeout=LIMIT) as tcp:
                tcp.sendall(b"hello")
                assert tcp.recv(5) == b"hello"
                process.terminate()
                if command == "serve":
                    # `watm serve` waits for it until a second signal.
                    assert "draining\n" in iter(process.stderr.readline, "")
                    process.terminate()
                process.communicate(timeout=LIMIT)
    record = inspect(module)["used"]
    assert record["release"] == "1.1" and record["since"] <= record["until"]
    used = record["used"]
    assert used["memory-peak-bytes"] > 1 << 16
    # A dialer has no socket of its own. Its destinations are recorded.
    assert used["sockets"] == ([] if command == "dial" else [f"tcp listen 127.0.0.1:{at}"])
    connects = command in ("relay", "dial")
    assert [each["target"] for each in used["destinations"]] == ([there] if connects else [])


def test_a_root_on_the_command_line_is_the_one_that_holds(authority: Authority, home: pathlib.Path) -> None:
    module = home / "plain.wasm"
    module.write_bytes(plain(authority, "1.1"))
    (home / "other").mkdir()
    other = Authority(home / "other")
    done("trust", other.root)
    known = json.loads(done("trust", "--json"))["root"]
    refused = watm("listen", module, "127.0.0.1:0", "--root", authority.root)
    assert refused.returncode == 2
    own = json.loads(done("root", "show", authority.root, "--json"))["id"]
    assert f"{authority.root}: --root: is the root {own}" in refused.stderr
    assert f"trusts {known}; pass that root, or another file with --state" in refused.stderr
    # The approval applies with a state of its own.
    state = home / "own-state"
    refused = watm("listen", module, "127.0.0.1:0", "--root", authority.root, "--state", state)
    assert refused.returncode == 2 and "--approve" in refused.stderr


def test_python_shows_it_of_what_runs(authority: Authority, home: pathlib.Path) -> None:
    module = home / "first.wasm"
    module.write_bytes(sealed(authority, "1.1"))
    done("trust", authority.root)
    done("trust", "--approve", module)

    async def run() -> None:
        async with serving(module) as server:
            status = server.status()
            assert status.module.seal.release == "1.1"
            assert (status.asked.flows, status.granted.flows) == (MAY["flows"], MAY["flows"])
            used = status.used
            assert used.sockets == [f"tcp listen 127.0.0.1:{server.getsockname()[1]}"]
            assert (used.instances, used.flows, used.destinations) == (1, 0, [])
            assert 0 < used.memory_bytes <= used.memory_peak_bytes
            assert not (home / "state" / "watm" / "used").exists(), "nothing is written before a minute"
        status = server.status()
        assert (status.phase, status.module, status.used.instances) == ("closed", None, 0)

    asyncio.run(run())
    assert inspect(module)["used"]["used"]["sockets"][0].startswith("tcp listen 127.0.0.1:")


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Makes every write to a file fail in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("shape", [sealed, plain])
def test_a_module_that_cannot_be_remembered_does_not_serve(authority: Authority, home: pathlib.Path, shape) -> None:
    first, second = home / "first.wasm", home / "second.wasm"
    first.write_bytes(shape(authority, "1.1"))
    second.write_bytes(shape(authority, "1.2"))
    done("trust", authority.root)
    done("trust", "--approve", first)

    async def run() -> None:
        new = await mitmproxy_watm.load_module(second)
        async with await mitmproxy_watm.start_server(first, "127.0.0.1", 0) as server:

            def serves() -> tuple[int, str]:
                status = server.status()
                return status.generation, status.module.seal.release

            with full_disk(), pytest.raises(OSError, match="too large"):
                await server.swap(new)
            assert serves() == (0, "1.1")
            # The disk may also become full during probation.
            swapping = asyncio.create_task(server.swap(new, probation=0.5))
            while serves()[1] != "1.2":
                await asyncio.sleep(0.01)
            with full_disk(), pytest.raises(OSError, match="too large"):
                await swapping
            assert serves() == (0, "1.1")
            assert "1.2" not in done("trust")
            await server.swap(new, probation=0.1)
            assert serves()[1] == "1.2"
        assert "accepted 1.2" in done("trust")

    asyncio.run(run())


# Runs a program with a folder on a disk of its own, full or read-only, with the same files.
OWN_DISK = """
set -eu
folder=$1 state=$2; shift 2
rm -rf "$folder.copy"
cp -r "$folder" "$folder.copy"
mount -t tmpfs -o size=64k none "$folder"
cp -r "$folder.copy/." "$folder"
case $state in
full) head -c 1M /dev/zero > "$folder/filling" 2> "$folder.copy/full" || true; test -s "$folder.copy/full" ;;
read-only) mount -o remount,ro "$folder" ;;
esac
exec "$@"
"""


@pytest.mark.parametrize("disk", ["full", "read-only"])
def test_an_accepted_release_runs_although_the_state_cannot_be_written(
    disk: str, authority: Authority, home: pathlib.Path
) -> None:
    older, module, newer = (home / name for name in ("older.wasm", "plain.wasm", "newer.wasm"))
    older.write_bytes(plain(authority, "1.1"))
    module.write_bytes(plain(authority, "1.2"))
    newer.write_bytes(plain(authority, "1.3"))
    done("trust", authority.root)
    done("verify", module, "--accept")
    state = home / "state" / "watm"
    # In the same second nothing changes, not even the time.
    time.sleep(1.1)

    def listen(file: pathlib.Path, port: int) -> subprocess.Popen[str]:
        namespace = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--mount", "--map-root-user"]
        own_disk = [*namespace, "sh", "-c", OWN_DISK, "sh", state, disk]
        command = [*own_disk, WATM, "listen", file, "127.0.0.1:0", "--forward", f"127.0.0.1:{port}"]
        return subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)

    said = []
    with echo() as port:
        process = listen(module, port)
        try:
            for line in iter(process.stderr.readline, ""):
                said.append(line)
                if line.startswith("listening on "):
                    break
            assert said[-1].startswith("listening on "), said
            with socket.create_connection(("127.0.0.1", int(said[-1].rpartition(":")[2])), timeout=LIMIT) as tcp:
                tcp.sendall(b"hello")
                assert tcp.recv(5) == b"hello"
        finally:
            process.terminate()
            said.append(process.communicate(timeout=LIMIT)[1])
    assert process.returncode == 0
    unwritable = f"{state}/trust: the state cannot be written: "
    assert unwritable in "".join(said) and "running wireguard 1.2, which was accepted before" in "".join(said)
    # A new release must be written to the state first. An older one is refused without a write.
    for file, expected in ((newer, unwritable), (older, "is older than 1.2")):
        process = listen(file, 9)
        assert expected in process.communicate(timeout=LIMIT)[1]
        assert process.returncode == 2
