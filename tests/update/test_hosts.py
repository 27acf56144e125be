"""Updates in running hosts: Python, mitmproxy and the command."""

import asyncio
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

import mitmproxy_watm
from watm_test_support.mitmproxy_programs import start
from watm_test_support.ports import free_port
from watm_test_support.repository import ROOT, WATM

from .authority import EXPIRES, Authority, done, watm
from .servers import Certificates, web_server

# The name that the authority may sign.
PLAIN = ROOT / "watm/target/modules/plain.wasm"
MAY = {"sockets": ["tcp listen"], "memory-bytes": 1 << 29, "cpu-permille": 1000, "flows": 100, "instances": 4}
COMPONENT = {"world": "watm:transport/module@0.1.0"}
# The time limit of each step, which takes one or two seconds.
LIMIT = 30


def sealed(authority: Authority, release: str, **more: object) -> bytes:
    """Returns a module of this release."""
    marked = PLAIN.read_bytes() + b"\x00\x0a\x04mark" + release.encode().rjust(5)
    return authority.seal_body(marked, release, capabilities=MAY | more, **EXPIRES)


@pytest.fixture
def user(authority: Authority, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Returns a user who trusts the authority and has approved the first release."""
    for variable, folder in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(variable, str(tmp_path / folder))
    done("trust", authority.root)
    module = tmp_path / "plain.wasm"
    module.write_bytes(sealed(authority, "1.1"))
    done("trust", "--approve", module)
    return module


@contextlib.asynccontextmanager
async def serving(module: pathlib.Path, **options: object) -> AsyncIterator[mitmproxy_watm.Server]:
    async with await mitmproxy_watm.start_server(module, "127.0.0.1", 0, **options) as server:
        yield server


async def until(true: Callable[[], object], server: mitmproxy_watm.Server) -> None:
    deadline = time.monotonic() + LIMIT
    while not true():
        status = server.updates.status
        assert time.monotonic() < deadline, (status.error, status.waiting, status.release, server.status().generation)
        await asyncio.sleep(0.05)


def test_a_running_server_takes_what_is_newer(
    authority: Authority, user: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "web"
    folder.mkdir()
    offered = folder / "wireguard.wasm"

    def offer(content: bytes) -> None:
        offered.write_bytes(content)
        # The server compares dates, which have a resolution of one second.
        dates[0] += 10
        os.utime(offered, (dates[0], dates[0]))

    dates = [1_700_000_000]

    async def run(url: str, answered: list[int]) -> None:
        told: list[str | None] = []
        source = mitmproxy_watm.UpdateSource(
            source=f"{url}/wireguard.wasm",
            every=0.2,
            probation=0.1,
            on_change=lambda status: told.append(status.error),
        )
        async with serving(user, updates=source) as server:
            status = server.updates.status
            assert (status.source, status.release) == (f"{url}/wireguard.wasm", None)
            # There is no module yet. The host keeps running.
            await until(lambda: server.updates.status.error, server)
            assert server.updates.status.code == "status"
            server.updates.check()
            offer(sealed(authority, "1.2"))
            server.updates.check()
            await until(lambda: server.updates.status.release == "1.2", server)
            status = server.updates.status
            assert (status.name, status.error, status.waiting) == ("wireguard", None, None)
            assert abs(status.checked - time.time()) < LIMIT
            assert server.status().generation == 1
            assert told and told[-1] is None

            # A module that is damaged, older or does not run changes nothing, and the status has
            # the reason.
            whole = sealed(authority, "1.3")
            for bad, code in (
                (whole[:-1] + bytes([whole[-1] ^ 1]), "bad-hash"),
                (sealed(authority, "1.1"), "rollback"),
                (b"<html>not found</html>", "not-wasm"),
                (authority.seal_body(b"\0asm\x0d\0\1\0", "1.3", capabilities=MAY, **COMPONENT, **EXPIRES), "swap"),
            ):
                offer(bad)
                server.updates.check()
                await until(lambda code=code: server.updates.status.code == code, server)
                assert server.updates.status.release == "1.2"
                assert server.status().generation == 1

            # A release that asks for more waits for approval.
            offer(sealed(authority, "1.4", flows=200))
            server.updates.check()
            await until(lambda: server.updates.status.waiting == "1.4", server)
            status = server.updates.status
            assert any("200" in asked for asked in status.more) and status.file.read_bytes() == offered.read_bytes()
            assert server.status().generation == 1
            with pytest.raises(mitmproxy_watm.ModuleError, match=r"1\.4"):
                await server.updates.approve("1.5")
            await server.updates.approve("1.4")
            await until(lambda: server.updates.status.release == "1.4", server)
            assert server.updates.status.waiting is None
            assert server.status().generation == 2
            # A known module is not fetched again.
            await until(lambda: answered[-1] == 304, server)

        # The next start uses the newer release, because the older one is refused.
        with pytest.raises(mitmproxy_watm.ModuleError, match="1.4"):
            await mitmproxy_watm.load_module(user)
        offered.unlink()
        async with serving(user, updates=source) as server:
            assert server.status().generation == 0
            assert server.updates.status.release == "1.4"

    with web_server(folder) as (url, answered):
        asyncio.run(run(url, answered))


def test_a_server_follows_a_registry_over_tls_and_a_folder(
    authority: Authority, user: pathlib.Path, tmp_path: pathlib.Path, plain_registry: str, certificates: Certificates
) -> None:
    new = tmp_path / "new.wasm"
    new.write_bytes(sealed(authority, "1.2"))
    tag = f"oci://{plain_registry}/hosts/wireguard:stable"
    done("publish", new, tag, "--plain-http")
    folder = tmp_path / "folder"
    folder.mkdir()

    async def run(url: str) -> None:
        source = mitmproxy_watm.UpdateSource(source=tag, plain_http=True, every=60, probation=0.1)
        async with serving(user, updates=source) as server:
            await until(lambda: server.updates.status.release == "1.2", server)
        (folder / "b.wasm").write_bytes(sealed(authority, "1.3"))
        (folder / "a.wasm").write_bytes(b"<html>")
        source = mitmproxy_watm.UpdateSource(source=folder, every=60, probation=0.1)
        async with serving(new, updates=source) as server:
            await until(lambda: server.updates.status.release == "1.3", server)
        # The server is not trusted by default.
        source = mitmproxy_watm.UpdateSource(source=f"{url}/b.wasm", every=60, probation=0.1)
        async with serving(folder / "b.wasm", updates=source) as server:
            await until(lambda: server.updates.status.code == "connection", server)
        source = mitmproxy_watm.UpdateSource(source=f"{url}/b.wasm", ca=certificates.authority, every=60)
        async with serving(folder / "b.wasm", updates=source) as server:
            await until(lambda: server.updates.status.checked, server)
            assert server.updates.status.error is None

    with web_server(folder, certificates) as (url, _):
        asyncio.run(run(url))


def test_what_cannot_be_followed_is_refused_at_once(
    authority: Authority, user: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(error: type[Exception], match: str, **options: object) -> None:
        with pytest.raises(error, match=match):
            async with serving(user, updates=mitmproxy_watm.UpdateSource(**options)):
                pass

    async def run() -> None:
        await refused(ValueError, "ftp", source="ftp://example.com/x.wasm")
        await refused(ValueError, "every", source="x.wasm", every=0)
        await refused(ValueError, "note", source="x.wasm", note="ftp://example.com/note")
        await refused(ValueError, "credentials", source="x.wasm", credentials="nothing")
        await refused(FileNotFoundError, "missing.pem", source="x.wasm", ca=str(tmp_path / "missing.pem"))
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nobody"))
        await refused(mitmproxy_watm.ModuleError, "no root is trusted", source="x.wasm")

    asyncio.run(run())


def test_mitmproxy_takes_what_is_newer_and_asks_before_it_gives_more(
    authority: Authority, user: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "web"
    folder.mkdir()
    offered = folder / "wireguard.wasm"
    offered.write_bytes(sealed(authority, "1.2"))

    async def run(url: str) -> None:
        port = free_port()
        spec = f"watm:{user}?update={url}/wireguard.wasm&every=1s@127.0.0.1:{port}"
        async with start("mitmdump-watm", tmp_path, "--mode", spec) as program:
            await program.wait_for(r": now running wireguard 1\.2")

            async def status() -> dict:
                (server,) = json.loads(await program.ask(command="watm.status.json"))
                return server

            shown = await status()
            assert shown["updates"]["release"] == "1.2" and shown["updates"]["error"] is None
            assert shown["seal"]["release"] == "1.2", "it is the one that serves"
            assert shown["used"]["sockets"] == [f"tcp listen 127.0.0.1:{port}"]
            assert shown["used"]["instances"] >= 1 and shown["used"]["memory_peak_bytes"] > 1 << 16
            offered.write_bytes(sealed(authority, "1.3", flows=200))
            await program.ask(command=f"watm.update {spec}")
            await program.wait_for(r"wireguard 1\.3 asks for more than is approved and waits for approval: .*200")
            shown = await status()
            assert (shown["updates"]["waiting"], shown["seal"]["release"]) == ("1.3", "1.2")
            assert "no release 1.4 waits" in await program.ask(command=f"watm.approve {spec} 1.4")
            await program.ask(command=f"watm.approve {spec} 1.3")
            await program.wait_for(r": now running wireguard 1\.3")
            shown = await status()
            assert (shown["seal"]["release"], shown["asked"]["flows"], shown["granted"]["flows"]) == ("1.3", 200, 200)
        assert "Traceback" not in program.text

    with web_server(folder) as (url, _):
        asyncio.run(run(url))


@contextlib.contextmanager
def listening(module: pathlib.Path, *more: object) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Runs `watm listen`. Yields its port."""
    command = [WATM, "relay", module, "127.0.0.1:0", "127.0.0.1:9", *more]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        assert line.startswith("listening on "), line
        yield int(line.rpartition(":")[2]), process
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_the_command_takes_what_is_newer(authority: Authority, user: pathlib.Path, tmp_path: pathlib.Path) -> None:
    plain = (ROOT / "watm/target/modules/plain.watm1.wasm").read_bytes()
    may = {"capabilities": {"memory-bytes": 1 << 27, "cpu-permille": 1000, "flows": 100, "instances": 100}}
    may |= {"world": "water-v1", "roles": ["relay", "dialer", "listener"]} | EXPIRES
    first, second = (authority.seal_body(plain, release, **may) for release in ("1.2", "1.3"))
    user.write_bytes(first)
    done("trust", "--approve", user)
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "new.wasm").write_bytes(second)
    with web_server(folder) as (url, _):
        with listening(user, "--update", f"{url}/new.wasm", "--every", "1s") as (port, process):
            assert process.stderr.readline() == "swapped in wireguard 1.3\n"
            with socket.create_connection(("127.0.0.1", port), timeout=LIMIT):
                pass
    # The updated release serves at the next start with the option. Without it the older release is
    # refused.
    with listening(user, "--update", f"{url}/new.wasm") as (_, process):
        pass
    run = watm("relay", user, "127.0.0.1:0", "127.0.0.1:9")
    assert run.returncode == 2 and "1.3" in run.stderr, run.stderr
    for more, expected in (
        (["--every", "1s"], "--update"),
        (["--ca", authority.root], "--ca, --plain-http and --credentials go with --update"),
        (["--update", "x.wasm", "--watch"], "cannot be used with"),
    ):
        run = watm("relay", user, "127.0.0.1:0", "127.0.0.1:9", *more)
        assert run.returncode == 2 and expected in run.stderr, run.stderr


@pytest.mark.parametrize("program", ["relay", "serve"])
def test_a_file_is_followed_for_the_module_that_it_had(program: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority", ["wireguard", "other"])
    trusting = ["--state", tmp_path / "state"]
    done("trust", authority.root, *trusting)
    module, aside = tmp_path / "plain.wasm", tmp_path / "aside.wasm"
    may = {"capabilities": MAY | {"instances": 100}}
    may |= {"world": "water-v1", "roles": ["relay", "listener"]} | EXPIRES
    plain = (ROOT / "watm/target/modules/plain.watm1.wasm").read_bytes()

    def put(name: str, release: str) -> None:
        """Replaces an approved module the way `watm update` does."""
        aside.write_bytes(authority.seal_body(plain, release, name=name, **may))
        done("trust", "--approve", aside, *trusting)
        aside.rename(module)

    put("wireguard", "1.1")
    arguments = {
        "relay": [module, "127.0.0.1:0", "127.0.0.1:9"],
        "serve": [module, "--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:9", "--workers", "1"],
    }[program]
    command = [WATM, program, *arguments, "--watch", *trusting]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)

    def said(*texts: str) -> str:
        return next(line for line in iter(process.stderr.readline, "") if any(text in line for text in texts))

    try:
        said("listening")
        put("other", "1.9")
        assert "other: its name is other; must be wireguard" in said("keeping the previous", "swapped in")
        put("wireguard", "1.2")
        assert "swapped in" in said("keeping the previous", "swapped in")
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)


def test_mitmproxy_follows_a_file_for_the_module_that_it_had(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, folder in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(variable, str(tmp_path / folder))
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority", ["wireguard", "other"])
    done("trust", authority.root)
    module, aside = tmp_path / "plain.wasm", tmp_path / "aside.wasm"

    def put(name: str, release: str) -> None:
        aside.write_bytes(authority.seal_body(PLAIN.read_bytes(), release, name=name, capabilities=MAY, **EXPIRES))
        done("trust", "--approve", aside)
        aside.rename(module)

    async def run() -> None:
        spec = f"watm:{module}@127.0.0.1:{free_port()}"
        async with start("mitmdump-watm", tmp_path, "--mode", spec) as program:
            await program.wait_for("server listening at")
            put("other", "1.9")
            said = await program.wait_for("its name is other; must be wireguard|now running .* as generation 1")
            assert "must be" in said.group()
            put("wireguard", "1.2")
            await program.wait_for("now running .* as generation 1")

    put("wireguard", "1.1")
    asyncio.run(run())
