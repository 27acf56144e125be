"""Updates from a web server: TLS, redirects, and a program that is killed during an update."""

import os
import pathlib
import random
import signal
import subprocess
import time

from watm_test_support.repository import WATM

from .authority import Authority, Host, watm
from .servers import Certificates, web_server


def test_only_what_is_new_is_fetched(authority: Authority, host: Host, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "module.wasm"
    file.write_bytes(authority.seal("1.1"))
    # The server compares dates, which have a resolution of one second.
    os.utime(file, (1_700_000_000, 1_700_000_000))
    with web_server(tmp_path) as (url, answered):
        assert host.update(f"{url}/module.wasm")[1]["outcome"] == "updated"
        assert host.update(f"{url}/module.wasm")[1]["outcome"] == "unchanged"
        assert answered == [200, 304]
        status, report = host.update(f"{url}/missing.wasm")
        assert (status, report["code"]) == (1, "status")


def test_tls(authority: Authority, certificates: Certificates, host: Host, tmp_path: pathlib.Path) -> None:
    (tmp_path / "module.wasm").write_bytes(authority.seal("1.1"))
    with web_server(tmp_path, certificates) as (url, answered):
        status, report = host.update(f"{url}/module.wasm")
        assert (status, report["code"]) == (1, "connection")
        assert "certificate" in report["reason"], report
        assert not answered
        status, report = host.update(f"{url}/module.wasm", "--ca", certificates.authority)
        assert (status, report["outcome"]) == (0, "updated")


def test_nobody_is_led_away_from_tls(
    authority: Authority, certificates: Certificates, host: Host, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "module.wasm").write_bytes(authority.seal("1.1"))
    with web_server(tmp_path) as (plain, answered):
        moved = {"/plain": f"{plain}/module.wasm", "/here": "/module.wasm"}
        with web_server(tmp_path, certificates, moved) as (url, _):
            trusting = ("--ca", certificates.authority)
            status, report = host.update(f"{url}/plain", *trusting)
            assert (status, report["code"]) == (1, "redirect")
            assert "HTTPS" in report["reason"]
            assert not answered and not host.place.exists()
            assert host.update(f"{url}/here", *trusting)[1]["outcome"] == "updated"
            # With `--plain-http` the redirect is followed.
            assert host.update(f"{url}/plain", *trusting, "--plain-http")[1]["outcome"] == "unchanged"
            assert answered == [200]


def test_what_is_said_to_people(authority: Authority, host: Host, tmp_path: pathlib.Path) -> None:
    (tmp_path / "module.wasm").write_bytes(authority.seal("1.1"))
    note = tmp_path / "note.watm"
    note.write_bytes(authority.note("1.2"))
    run = watm("update", tmp_path / "module.wasm", *host.options, "--note", note)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0] == "updated   wireguard 1.1"
    assert "warning   is release 1.1, but 1.2 was announced" in lines
    asking = {"capabilities": {"connect": ["tcp://*.example.com:443"], "flows": 10}}
    (tmp_path / "module.wasm").write_bytes(authority.seal("1.2", **asking))
    run = watm("update", tmp_path / "module.wasm", *host.options)
    assert (run.returncode, run.stderr) == (1, "")
    lines = run.stdout.splitlines()
    assert lines[0] == "pending   wireguard 1.2"
    asked = [line for line in lines if line.startswith("asks for ")]
    assert any("*.example.com:443" in line for line in asked), lines
    assert host.update(tmp_path / "module.wasm")[1]["more"]
    assert "approve   the same command with --approve 1.2" in lines
    assert host.update(tmp_path / "module.wasm", "--approve", "1.3")[1]["code"] == "wrong-name"
    assert host.update(tmp_path / "module.wasm", "--approve", "1.2")[1]["outcome"] == "updated"
    assert host.update(tmp_path / "module.wasm")[1]["outcome"] == "unchanged"


def test_what_cannot_be_done_is_not_tried(host: Host, tmp_path: pathlib.Path) -> None:
    for source, more in (
        ("ftp://example.com/a", []),
        ("oci://nowhere", []),
        ("a.wasm", ["--every", "0s"]),
        ("a.wasm", ["--ca", tmp_path / "missing.pem"]),
        ("a.wasm", ["--credentials", host.options[3]]),
    ):
        run = watm("update", source, *host.options, *more)
        assert run.returncode == 2, (source, more, run.stderr)


def test_a_watched_folder(authority: Authority, host: Host, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.wasm").write_bytes(authority.seal("1.1"))
    (folder / "b.wasm").write_bytes(b"<html>")
    command = [WATM, "update", folder, *host.options, "--every", "1s"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "updated   wireguard 1.1\n"
        new = authority.seal("1.2")
        (folder / "c.wasm").write_bytes(new)
        line = ""
        while not line.startswith("updated"):
            line = process.stdout.readline()
            assert line, "it has ended"
        assert line == "updated   wireguard 1.2, from 1.1\n"
        assert host.place.read_bytes() == new
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == 0


def state(file: pathlib.Path) -> tuple[int, ...]:
    """Returns numbers that change with each write to the file and with each file in its place."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def content(file: pathlib.Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def test_whenever_it_is_killed_there_is_a_whole_module(
    authority: Authority, host: Host, tmp_path: pathlib.Path
) -> None:
    releases = [authority.seal(f"1.{number}", 4_000_000) for number in range(1, 13)]
    source = tmp_path / "module.wasm"
    chance = random.Random(1)
    current, outcomes = None, set()
    with web_server(tmp_path) as (url, _):
        for release in releases:
            source.write_bytes(release)
            for moment in ("some", "some", "some", "changed"):
                command = list(map(str, [WATM, "update", f"{url}/module.wasm", *host.options]))
                before = state(host.place)
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                if moment == "some":
                    time.sleep(chance.uniform(0, 0.06))
                else:
                    until = time.monotonic() + 10
                    while state(host.place) == before and content(host.place) != release:
                        assert time.monotonic() < until, "it was not placed"
                process.kill()
                process.wait(10)
                found = content(host.place)
                assert found in (current, release), f"killed at {moment}: a part of the module is in its place"
                outcomes.add(found == release)
            # Leftover files do not prevent the next update.
            assert host.update(f"{url}/module.wasm")[1]["outcome"] in ("updated", "unchanged")
            assert host.place.read_bytes() == release
            current = release
    assert outcomes == {True, False}, "it was killed before and after"
