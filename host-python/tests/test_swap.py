"""Swaps of a running mitmproxy's module: by command, by its file, from the page."""

import asyncio
import contextlib
import json
import os
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from test_mitmdump import MODULE
from test_mitmweb import fetch

from watm_test_support.mitmproxy_programs import client, start
from watm_test_support.mitmweb import HAS_LOGIN, Visitor, log_in, start_web
from watm_test_support.ports import free_port

UNSEALED = ("--set", "watm_unsealed=true")


def put(path: Path, mark: int) -> Path:
    """Writes a module of its own to this path, atomically: with a custom section at the end."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(MODULE.read_bytes() + b"\x00\x06\x04mark" + bytes([mark]))
    os.replace(fresh, path)
    return path


@pytest.mark.limit(60)
async def test_a_file_that_changes_is_swapped_in_and_a_bad_one_is_not(tmp_path):
    path, port = put(tmp_path / "wireguard.wasm", 0), free_port()
    async with start("mitmdump-watm", tmp_path, *UNSEALED, "--mode", f"watm:{path}@127.0.0.1:{port}") as program:
        await program.wait_for(rf"listening at 127.0.0.1:{port}")
        async with client(tmp_path, port) as inside, inside.tcp("10.9.8.7:80") as connection:
            await fetch(connection, "/before")
            put(path, 1)
            await program.wait_for("now running .* as generation 1")
            await fetch(connection, "/still")
            path.write_bytes(b"\0asm cut short")
            await program.wait_for("The swap failed: .*wireguard.wasm")
            await fetch(connection, "/unimpressed")
            (server,) = json.loads(await program.ask(command="watm.status.json"))
            assert "cut short or damaged" in server["swap_error"]
            old, new = server["generations"]
            assert (old["number"], new["number"], new["draining"]) == (0, 1, None)
            assert old["sha256"] != new["sha256"] and old["flows"] == 1
            put(path, 2)
            await program.wait_for("now running .* as generation 2")
            await fetch(connection, "/again")
            (server,) = json.loads(await program.ask(command="watm.status.json"))
            assert server["swap_error"] is None
    assert "Traceback" not in program.text


@pytest.mark.limit(60)
async def test_a_command_swaps_a_module_that_was_named(tmp_path):
    path, port = put(tmp_path / "wireguard-2.wasm", 0), free_port()
    mode = f"wireguard@127.0.0.1:{port}"
    with_options = f"watm:wireguard?mtu=1400@127.0.0.1:{port}"
    async with start("mitmdump-watm", tmp_path, *UNSEALED, "--mode", with_options) as program:
        await program.wait_for(rf"listening at 127.0.0.1:{port}")
        async with client(tmp_path, port) as inside, inside.tcp("10.9.8.7:80") as connection:
            await fetch(connection, "/before")
            assert "has no previous module" in await program.ask(command=f"watm.rollback {mode}")
            await program.ask(command=f"watm.swap {mode} {path}")
            await program.wait_for("now running .* as generation 1")
            await fetch(connection, "/still")
            # A packaged module can be swapped in without the development option.
            await program.ask(command=f"watm.swap {with_options} wireguard")
            await program.wait_for("now running wireguard as generation 2")
            await fetch(connection, "/back")
            # A command fails with the reason, and the module in service continues.
            assert "does not run" in await program.ask(command="watm.swap wireguard@9 wireguard")
            for module, why in (
                ("plain", "cannot replace"),
                ("/nonexistent.wasm", "CommandError: /nonexistent.wasm: No such file or directory"),
                (tmp_path / "text.wasm", "text.wasm: "),
            ):
                (tmp_path / "text.wasm").write_text("text")
                assert why in await program.ask(command=f"watm.swap wireguard {module}")
            await fetch(connection, "/unimpressed")
            assert await program.ask(command=f"watm.swap wireguard {path}") is None
            await program.wait_for("now running .* as generation 3")
            # And back.
            assert await program.ask(command="watm.rollback wireguard") is None
            await program.wait_for("now running wireguard as generation 4")
            await fetch(connection, "/back-again")
            said = "\n".join(await program.ask(command="watm.status"))
            for part in (
                f"server {with_options}\n  running on 127.0.0.1 port {port}, uses ",
                "  the module may accept TCP and UDP; may connect by TCP to any address; may send UDP to any address; ",
                "; cannot read or write files; cannot start other programs\n",
                "  generation 4, wireguard: in service for ",
                "finishes 1 flow, for ",
                ": handshake ",
                "127.0.0.1:",
            ):
                assert part in said, said
            assert "True" not in said and "4294967296" not in said
            assert "part of mitmweb, which does not run" in await program.ask(command="watm.page")


@pytest.mark.limit(60)
async def test_a_command_names_the_switch_that_allows_modules_without_a_seal(tmp_path):
    port = free_port()
    async with start("mitmdump-watm", tmp_path, "--mode", f"watm:wireguard@127.0.0.1:{port}") as program:
        await program.wait_for(rf"listening at 127.0.0.1:{port}")
        for command in (f"watm.swap wireguard {MODULE}", f"watm.load {MODULE}@127.0.0.1:{free_port()}"):
            answer = await program.ask(command=command)
            assert "not sealed" in answer and "--set watm_unsealed=true" in answer
        assert await program.ask(modes=True) == [f"watm:wireguard@127.0.0.1:{port}"]


@pytest.mark.limit(60)
async def test_the_page_swaps_and_shows_the_result(tmp_path):
    path, port = put(tmp_path / "other.wasm", 0), free_port()
    mode = f"watm:wireguard@127.0.0.1:{port}"
    async with start_web(tmp_path, *UNSEALED, "--mode", mode) as (_, link):
        visitor = await log_in(link)
        async with client(tmp_path, port) as inside, inside.tcp("10.9.8.7:80") as connection:
            await fetch(connection, "/before")
            answer = await visitor.post("/watm/rollback", {"spec": mode})
            assert answer.status == 409 and "no previous module" in answer.text
            answer = await visitor.post("/watm/swap", {"spec": mode, "module": str(path)})
            assert json.loads(answer.text) == {"swapped": True, "error": None, "module": str(path)}
            await fetch(connection, "/still")
            shown = (await visitor.get("/watm/servers")).text
            assert re.search(r"other\.wasm.*In service for.*wireguard.*Finishes 1 flow", shown, re.DOTALL)
            answer = await visitor.post("/watm/swap", {"spec": mode, "module": str(tmp_path / "absent.wasm")})
            assert json.loads(answer.text)["swapped"] is False
            assert "The swap failed" in (await visitor.get("/watm/servers")).text
            answer = await visitor.post("/watm/rollback", {"spec": mode})
            assert json.loads(answer.text) == {"swapped": True, "error": None, "module": "wireguard"}
            await fetch(connection, "/back")
        for content, status in (({"spec": "watm:nobody", "module": "x"}, 404), ({"module": "x"}, 400), ([], 400)):
            assert (await visitor.post("/watm/swap", content)).status == status
        for content, status in (({"spec": "watm:nobody"}, 404), ({"spec": 1}, 400), ([], 400)):
            assert (await visitor.post("/watm/rollback", content)).status == status
        # A foreign page has no access.
        visitor.cookies.clear()
        assert (await visitor.post("/watm/swap", {"spec": mode, "module": str(path)})).status == 403
        assert (await visitor.post("/watm/rollback", {"spec": mode})).status == 403


@pytest.mark.limit(60)
async def test_the_page_checks_a_file_that_a_browser_sends(tmp_path):
    content, port = put(tmp_path / "other.wasm", 0).read_bytes(), free_port()
    mode = f"watm:wireguard@127.0.0.1:{port}"
    query = f"/watm/upload?{urlencode({'spec': mode, 'name': '../up/a<b>.wasm'})}"
    async with start_web(tmp_path, "--mode", mode) as (program, link):
        visitor = await log_in(link)

        async def refused(sent: bytes) -> str:
            answer = json.loads((await visitor.post_bytes(query, sent)).text)
            assert answer["swapped"] is False and answer["module"] == "wireguard"
            return answer["error"]

        # As for every other swap, the file needs a seal that the user trusts.
        assert "a_b_.wasm: not sealed" in await refused(content)
        assert "a_b_.wasm: not WebAssembly; a .wasm file is expected. wireguard stays in service" in await refused(b"text")
        assert "the file is empty" in await refused(b"")
        await program.ask(options={"watm_unsealed": True})
        answer = await visitor.post_bytes(query, content)
        assert json.loads(answer.text) == {"swapped": True, "error": None, "module": "a_b_.wasm"}
        await program.wait_for("now running a_b_.wasm as generation 1")
        assert (await visitor.post_bytes("/watm/upload?spec=watm:nobody&name=x", content)).status == 404


@pytest.mark.limit(60)
async def test_nobody_can_send_the_page_more_than_a_module(tmp_path):
    mode = f"watm:wireguard@127.0.0.1:{free_port()}"
    async with start_web(tmp_path, "--mode", mode) as (_, link):
        visitor = await log_in(link)
        path = f"/watm/upload?{urlencode({'spec': mode, 'name': 'big.wasm'})}"
        # Refused by its header, before the body is sent.
        answer = await visitor.begin(path, {"Content-Length": str((64 << 20) + 1)})
        assert answer.startswith("HTTP/1.1 413 ") and "64 MiB, the limit for modules" in answer
        # Refused as soon as it is too long, if no header says how long it is: the answer may get lost.
        chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
        answer = ""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            answer = await visitor.begin(path, {"Transfer-Encoding": "chunked"}, chunk * 64 + b"1\r\nx\r\n0\r\n\r\n")
        assert answer == "" or answer.startswith("HTTP/1.1 400 ")
        if HAS_LOGIN:
            # A request without a login is refused before the body is sent.
            stranger = Visitor(visitor.url)
            answer = await stranger.begin(path, {"Content-Length": "1000000", "Cookie": "_mitmproxy_xsrf=x; _xsrf=x", "X-XSRFToken": "x"})
            assert answer.startswith("HTTP/1.1 403 ")
