"""Invalid module files, and modules that fail: the user sees an error, and everything else in the process keeps
running. runtime/tests covers each fault in the runtime.
"""

import asyncio
import contextlib
import datetime
import json
import logging
import pathlib
import socket
import threading
from collections.abc import Callable

import pytest

import mitmproxy_watm
from watm_test_support import module_files
from watm_test_support.mitmproxy_programs import start
from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES
from watm_test_support.tunnels import HOST, Peer, serving
from watm_test_support.wgclient import WgClient
from watm_test_support.wireguard_server import Keys

from .neighbour import undisturbed, until

PLAIN = MODULES / "plain.watm1.wasm"
UNSEALED = ("--set", "watm_unsealed=true")
LIMITS = mitmproxy_watm.Limits(memory_bytes=32 << 20, cpu_per_call=datetime.timedelta(milliseconds=100))


async def test_a_file_that_is_no_module_is_refused_in_one_line_that_names_it(tmp_path: pathlib.Path) -> None:
    peer = Peer()
    async with serving(peer) as running, undisturbed(running, peer):
        for file, words in module_files.bad_files(tmp_path).items():
            with pytest.raises((mitmproxy_watm.ModuleError, OSError)) as refused:
                await mitmproxy_watm.start_server(file, HOST, 0, unsealed=True)
            text = str(refused.value)
            assert file.name in text and words.lower() in text.lower() and "\n" not in text, text
            assert isinstance(refused.value, OSError) == (file.name in ("missing.wasm", "directory.wasm"))


@pytest.mark.parametrize(("config", "words"), [("trap", "unreachable"), ("spin", "CPU time")])
async def test_a_module_that_fails_at_the_start_is_an_error(config: str, words: str) -> None:
    peer = Peer()
    async with serving(peer) as running, undisturbed(running, peer):
        with pytest.raises(mitmproxy_watm.ModuleError, match=words) as failed:
            await mitmproxy_watm.start_server(module_files.GUEST, HOST, 0, config=config, limits=LIMITS, unsealed=True)
        assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("!trap", "unreachable"),
        ("!spin", "100ms of CPU time"),
        ("!eat", "out of memory (limit 32 MiB)"),
        ("!foreign", "unknown handle index"),
    ],
)
async def test_a_module_that_fails_later_is_started_again(
    command: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer()
    ended: asyncio.Queue[type] = asyncio.Queue()
    begun = asyncio.Event()

    async def handle(stream) -> None:
        begun.set()
        try:
            while data := await stream.read(65535):
                stream.write(data)
        except OSError as error:
            ended.put_nowait(type(error))

    async with serving(peer) as running, undisturbed(running, peer) as others:
        async with await mitmproxy_watm.start_server(
            module_files.GUEST, HOST, 0, handle_udp_stream=handle, limits=LIMITS, unsealed=True
        ) as guest:
            port = guest.getsockname()[1]
            module_files.tell(port, "a flow")
            # A flow that is not accepted yet ends without an event.
            await asyncio.wait_for(begun.wait(), 10)
            assert guest.status().flows == 1
            module_files.tell(port, command)
            assert await asyncio.wait_for(ended.get(), 10) is ConnectionResetError
            await until("restarted", lambda: guest.status().generation == 1 and guest.status().phase == "running")
            assert guest.stats()["host.restarts"] == 1
            module_files.tell(port, "another flow")
            await until("a flow", lambda: guest.status().flows == 1)
            await others.more()
    await until("a record", lambda: any(words in record.getMessage() for record in caplog.records))
    loud = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(loud) == 1 and words in loud[0].getMessage()


async def test_a_module_that_lies_about_lengths_harms_nobody() -> None:
    peer = Peer()
    async with serving(peer) as running, undisturbed(running, peer):
        async with await mitmproxy_watm.start_server(module_files.GUEST, HOST, 0, limits=LIMITS, unsealed=True) as guest:
            module_files.tell(guest.getsockname()[1], "!lie")
            await until("it has lied", lambda: guest.stats()["host.datagrams_sent"] == 1)
            assert guest.status().generation == 0


@pytest.mark.limit(120)
async def test_mitmdump_does_not_start_with_a_bad_file_and_says_why(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "trap"
    config.write_text("trap")
    bad = module_files.bad_files(tmp_path)
    chosen = [tmp_path / f"{name}.wasm" for name in ("missing", "text", "truncated", "imports")]
    cases = {f"watm:{file}@{HOST}:0": (file, bad[file]) for file in chosen}
    cases[f"watm:{module_files.GUEST}?config={config}@{HOST}:0"] = (module_files.GUEST, "unreachable")
    for mode, (file, words) in cases.items():
        async with start("mitmdump-watm", tmp_path, *UNSEALED, "--mode", mode, observed=False) as program:
            assert await program.ended() == 1, program.text
        assert "Traceback" not in program.text
        [line] = [line for line in program.lines if words.lower() in line.lower()]
        assert file.name in line


def open_datagrams(port: int, ended: threading.Event) -> None:
    """Makes the module open a flow again and again, since each sender is new to it."""
    while not ended.wait(0.0005):
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            sender.sendto(b"hello", (HOST, port))


def open_streams(port: int, ended: threading.Event) -> None:
    """Opens a connection again and again."""
    while not ended.wait(0.0005):
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=5) as sender:
            sender.sendall(b"hello")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the same."""
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@pytest.mark.limit(120)
@pytest.mark.parametrize("open_flows", [open_datagrams, open_streams])
async def test_mitmdump_serves_others_and_ends_while_a_module_opens_flows_without_end(
    open_flows: Callable[[int, threading.Event], None], tmp_path: pathlib.Path
) -> None:
    ended = threading.Event()
    async with await asyncio.start_server(echo, HOST, 0) as server:
        through = f"watm:{PLAIN}?to=tcp://{HOST}:{server.sockets[0].getsockname()[1]}@{HOST}"
        flooded, other = free_port(), free_port()
        module = f"watm:{module_files.GUEST}@{HOST}" if open_flows is open_datagrams else through
        modes = ("--mode", f"{module}:{flooded}", "--mode", f"{through}:{other}")
        async with start("mitmdump-watm", tmp_path, *UNSEALED, *modes, observed=False) as program:
            for port in (flooded, other):
                await program.wait_for(rf"listening at .*:{port}\b")
            opening = asyncio.create_task(asyncio.to_thread(open_flows, flooded, ended))
            try:
                async with asyncio.timeout(60):
                    while sum("client connect" in line for line in program.lines) < 500:
                        await asyncio.sleep(0.1)
                reader, writer = await asyncio.open_connection(HOST, other)
                for number in range(5):
                    writer.write(b"%d" % number)
                    assert await asyncio.wait_for(reader.read(1), 5) == b"%d" % number
                program.process.terminate()
                assert await asyncio.wait_for(program.ended(), 15) == 0
                writer.close()
            finally:
                ended.set()
                await opening


async def test_a_running_mitmdump_refuses_a_bad_file_and_goes_on(tmp_path: pathlib.Path) -> None:
    async with start("mitmdump-watm", tmp_path, *UNSEALED, "--mode", f"watm:wireguard@{HOST}:0") as program:
        port = await program.port()
        keys = json.loads((tmp_path / "wireguard.conf").read_text())
        options = Keys(keys["server_key"], keys["client_key"]).client_options(port)
        before = await program.ask(modes=True)
        async with WgClient.start(**options) as client:
            async with client.tcp("10.9.8.7:80") as connection:
                for file, words in module_files.bad_files(tmp_path).items():
                    told = await program.ask(command=f"watm.load {file}@{HOST}:{free_port()}")
                    assert file.name in told and words.lower() in told.lower()
                assert await program.ask(modes=True) == before
                # The earlier connection is unaffected.
                await connection.write(b"GET /still HTTP/1.1\r\nHost: 10.9.8.7\r\nConnection: close\r\n\r\n")
                assert b"from inside /still" in await connection.read_all()
    assert "Traceback" not in program.text
