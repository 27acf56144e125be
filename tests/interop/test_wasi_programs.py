"""Programs of WASI 0.2 that know nothing of this host, in mitmdump."""

import asyncio

import pytest

from watm_test_support.mitmproxy_programs import start
from watm_test_support.repository import ROOT
from watm_test_support.upper_case import upper

# One in Rust and one in C, which `make test-guest` builds.
PROGRAMS = [ROOT / "target/tmp/guests/wasm32-wasip2/release/forward.wasm", ROOT / "build/forward-c.wasm"]
LISTENING = r" server listening at .*:(\d+)"
LIMIT = 20


@pytest.mark.limit(60)
@pytest.mark.parametrize("forward", PROGRAMS, ids=["rust", "c"])
async def test_connections_of_a_program_are_flows(tmp_path, forward) -> None:
    async with upper() as port:
        mode = f"watm:{forward}?to=127.0.0.1:{port}@127.0.0.1:0"
        async with start("mitmdump-watm", tmp_path, "--set", "watm_unsealed=true", "--mode", mode) as program:
            near = int((await program.wait_for(LISTENING)).group(1))
            reader, writer = await asyncio.open_connection("127.0.0.1", near)
            async with asyncio.timeout(LIMIT):
                writer.write(b"GET /page HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
                assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"from inside /page")
                flow = await program.flow(flow="http", url="http://site.example/page")
            assert flow["server"] == ["127.0.0.1", port]
            assert flow["peername"] == list(writer.get_extra_info("sockname"))
            writer.close()
            # Its module starts again with another one, and the address stays.
            async with asyncio.timeout(LIMIT):
                assert await program.ask(command=f"watm.swap {mode} {forward}") is None
            _, writer = await asyncio.open_connection("127.0.0.1", near)
            writer.close()
    assert "Traceback" not in program.text
