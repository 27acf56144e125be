"""Connections through WATER modules, in mitmdump."""

import asyncio
import contextlib

import pytest
from test_connection import COMPONENT

import mitmproxy_watm
from watm_test_support.mitmproxy_programs import start
from watm_test_support.ports import free_port
from watm_test_support.upper_case import upper

PATTERN = r"Plain TCP server listening at .*:(\d+)"


@contextlib.asynccontextmanager
async def dialed(program, pattern=PATTERN):
    port = int((await program.wait_for(pattern)).group(1))
    stream = await mitmproxy_watm.open_connection("plain", "127.0.0.1", port)
    try:
        yield stream
    finally:
        stream.close()


async def request(stream, host: str) -> bytes:
    stream.write(f"GET /page HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    async with asyncio.timeout(20):
        return await stream.read()


@pytest.mark.limit(60)
async def test_flows_go_where_the_option_says(tmp_path):
    async with upper() as port:
        mode = f"watm:plain?to=127.0.0.1:{port}@127.0.0.1:0"
        async with start("mitmdump-watm", tmp_path, "--mode", mode) as program:
            async with dialed(program) as stream:
                answer = await request(stream, "site.example")
                assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"from inside /page")
                flow = await program.flow(flow="http", url="http://site.example/page")
                assert flow["server"] == ["127.0.0.1", port]
                assert flow["peername"] == list(stream.get_extra_info("sockname"))
                assert flow["sockname"] == list(stream.get_extra_info("peername"))
            async with dialed(program) as stream:
                stream.write(b"\0raw bytes")
                assert await stream.readexactly(10) == b"\0RAW BYTES"
                stream.write_eof()
                assert await stream.read() == b""
            await program.flow(flow="tcp", content="\0RAW BYTES", from_client=False)
    assert "Traceback" not in program.text


@pytest.mark.limit(60)
async def test_with_a_scheme_they_are_handled_as_in_reverse_mode(tmp_path):
    async with upper() as port:
        mode = f"watm:plain?to=http://127.0.0.1:{port}@127.0.0.1:0"
        async with start("mitmdump-watm", tmp_path, "--mode", mode) as program:
            async with dialed(program) as stream:
                assert (await request(stream, "site.example")).startswith(b"HTTP/1.1 200 OK\r\n")
                flow = await program.flow(flow="http", url=f"http://127.0.0.1:{port}/page")
                assert flow["mode"] == f"reverse:http://127.0.0.1:{port}"


@pytest.mark.limit(60)
async def test_a_module_without_a_destination_is_refused(tmp_path):
    arguments = ("--mode", "watm:plain@127.0.0.1:0")
    async with start("mitmdump-watm", tmp_path, *arguments, observed=False) as program:
        await program.wait_for(r"watm:plain@.* have no destination; add the option to: watm:plain\?to=")


@pytest.mark.limit(60)
async def test_a_component_without_a_description_says_itself_that_it_listens_by_tcp(tmp_path):
    component = tmp_path / "own.wasm"
    component.write_bytes(COMPONENT.read_bytes().replace(b"watm.about", b"nobody.has"))
    mode = f"watm:{component}@127.0.0.1:0"
    unsealed = ("--set", "watm_unsealed=true")
    async with start("mitmdump-watm", tmp_path, *unsealed, "--mode", mode, observed=False) as program:
        async with dialed(program, r"own server listening at .*:(\d+)") as stream:
            with contextlib.suppress(ConnectionError):
                assert await stream.read() == b""
        # Only a connection reveals it, since other modules with such a listener know the
        # destination.
        await program.wait_for(rf"watm:{component}@.* have no destination; add the option to: ")


@pytest.mark.limit(60)
async def test_an_upstream_that_is_not_there_ends_the_connection(tmp_path):
    mode = f"watm:plain?to=127.0.0.1:{free_port()}@127.0.0.1:0"
    async with start("mitmdump-watm", tmp_path, "--mode", mode) as program:
        async with dialed(program) as stream:
            stream.write(b"\0raw")
            with contextlib.suppress(ConnectionError):
                assert await stream.read() == b""
