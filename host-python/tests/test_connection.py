"""Connections through modules, and relays."""

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
import threading

import pytest

import mitmproxy_watm
from watm_test_support.ports import free_port
from watm_test_support.repository import MODULES
from watm_test_support.upper_case import upper

COMPONENT = MODULES / "plain.wasm"
"""The component of `plain`; the packaged modules are WATER modules."""

EACH = pytest.mark.parametrize("module", ["plain", "reverse", COMPONENT, MODULES / "reverse.wasm"])
PLAIN = pytest.mark.parametrize("module", ["plain", COMPONENT])


async def echo(stream):
    while data := await stream.read(65536):
        stream.write(data)
        await stream.drain()
    stream.write_eof()


@PLAIN
async def test_a_connection_reads_on_after_its_own_end(module):
    async with upper() as port:
        stream = await mitmproxy_watm.open_connection(module, "127.0.0.1", port, unsealed=True)
        assert stream.get_extra_info("peername") == ("127.0.0.1", port)
        assert stream.get_extra_info("sockname")[1] > 0
        stream.write(b"hello")
        stream.write_eof()
        assert await stream.read() == b"HELLO"
        assert stream.at_eof()
        stream.close()
        await stream.wait_closed()


@EACH
async def test_what_is_dialed_is_accepted(module):
    module = await mitmproxy_watm.load_module(module, unsealed=True)
    async with await mitmproxy_watm.start_server(module, "127.0.0.1", 0, handle_tcp_stream=echo, unsealed=True) as server:
        streams = [await mitmproxy_watm.open_connection(module, *server.getsockname(), unsealed=True) for _ in range(20)]
        python, all_threads = threading.active_count(), len(os.listdir("/proc/self/task"))
        for number, stream in enumerate(streams):
            stream.write(bytes([number]) * 1000)
        for number, stream in enumerate(streams):
            assert await stream.readexactly(1000) == bytes([number]) * 1000
            stream.write_eof()
            assert await stream.read() == b""
        more = [await mitmproxy_watm.open_connection(module, *server.getsockname(), unsealed=True) for _ in range(20)]
        assert threading.active_count() == python
        # The runtime's pool may have started or ended a thread since, but there is not one for
        # each.
        assert len(os.listdir("/proc/self/task")) < all_threads + 5
        for stream in streams + more:
            stream.close()


async def test_a_relay_passes_on():
    async with upper() as port:
        relay = await mitmproxy_watm.start_relay("plain", "127.0.0.1", 0, "127.0.0.1", port)
        async with relay:
            reader, writer = await asyncio.open_connection(*relay.getsockname())
            writer.write(b"through")
            assert await reader.readexactly(7) == b"THROUGH"
            assert relay.connections() == 1
            with pytest.raises(OSError) as error:
                await mitmproxy_watm.start_relay("plain", *relay.getsockname(), "127.0.0.1", port)
            assert error.value.errno == errno.EADDRINUSE
            address = relay.getsockname()
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        await relay.wait_closed()


@PLAIN
async def test_a_fixed_dialer_needs_leave(module):
    async with upper() as port:
        config = f'remote = "127.0.0.1:{port}"\n'
        with pytest.raises(PermissionError, match=f'the pattern "127.0.0.1:{port}" would allow it'):
            await mitmproxy_watm.open_fixed_connection(module, config=config, unsealed=True)
        stream = await mitmproxy_watm.open_fixed_connection(module, config=config, allow=[f"127.0.0.1:{port}"], unsealed=True)
        stream.write(b"x")
        assert await stream.readexactly(1) == b"X"
        stream.close()


@PLAIN
async def test_each_connection_has_its_own_configuration(module):
    # More than the number of kept dialers.
    async with contextlib.AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(upper()) for _ in range(20)]
        streams = await asyncio.gather(
            *(
                mitmproxy_watm.open_fixed_connection(module, config=f'remote = "127.0.0.1:{port}"', allow=["*"], unsealed=True)
                for port in ports
            )
        )
        for port, stream in zip(ports, streams, strict=True):
            assert stream.get_extra_info("peername") == ("127.0.0.1", port)
            stream.write(b"mine")
            assert await stream.readexactly(4) == b"MINE"
            stream.close()


@PLAIN
async def test_failures_name_the_address(module):
    port = free_port()
    with pytest.raises(ConnectionRefusedError, match=f"127.0.0.1:{port}"):
        await mitmproxy_watm.open_connection(module, "127.0.0.1", port, unsealed=True)
    with pytest.raises(OSError, match="nowhere.invalid"):
        await mitmproxy_watm.open_connection(module, "nowhere.invalid", 1, unsealed=True)


async def test_a_component_refuses_what_it_cannot_use():
    with pytest.raises(ValueError, match='remot: unknown field; expected one of remote'):
        await mitmproxy_watm.open_connection(COMPONENT, "127.0.0.1", 1, config='remot = "x"', unsealed=True)
    with pytest.raises(ValueError, match='does not open a udp socket; the one granted as "listen" must be tcp'):
        await mitmproxy_watm.start_server(COMPONENT, "127.0.0.1", 0, transport="udp", unsealed=True)


async def test_errors_name_their_cause(tmp_path):
    port = free_port()
    with pytest.raises(ValueError, match="reach"):
        await mitmproxy_watm.open_connection("plain", "127.0.0.1", port, allow=["http://x"])
    with pytest.raises(OverflowError):
        await mitmproxy_watm.open_connection("plain", "127.0.0.1", 65536)
    with pytest.raises(FileNotFoundError, match="absent.wasm"):
        await mitmproxy_watm.open_connection(tmp_path / "absent.wasm", "127.0.0.1", port)
    with pytest.raises(mitmproxy_watm.ModuleError):
        await mitmproxy_watm.open_connection(b"\0asm\1\0\0\0", "127.0.0.1", port, unsealed=True)
    with pytest.raises(OSError):
        await mitmproxy_watm.open_connection("plain", "127.0.0.1", port, config='remot = "x"')


async def test_a_dial_that_is_cancelled_harms_no_other():
    async with await mitmproxy_watm.start_server("plain", "127.0.0.1", 0, handle_tcp_stream=echo) as server:
        module = await mitmproxy_watm.load_module("plain")
        stream = await mitmproxy_watm.open_connection(module, *server.getsockname(), unsealed=True)
        for _ in range(20):
            dial = asyncio.create_task(mitmproxy_watm.open_connection(module, *server.getsockname(), unsealed=True))
            await asyncio.sleep(0)
            dial.cancel()
            # It may have been faster.
            with contextlib.suppress(asyncio.CancelledError):
                (await dial).close()
        stream.write(b"alive")
        assert await stream.readexactly(5) == b"alive"
        stream.close()


async def test_a_connection_outlives_the_task_that_dialed():
    async with await mitmproxy_watm.start_server("plain", "127.0.0.1", 0, handle_tcp_stream=echo) as server:
        async with asyncio.timeout(10):
            stream = await asyncio.create_task(mitmproxy_watm.open_connection("plain", *server.getsockname()))
        stream.write(b"alive")
        assert await stream.readexactly(5) == b"alive"
        stream.close()


async def test_event_loops_do_not_see_each_other():
    async with upper() as port:

        async def once():
            stream = await mitmproxy_watm.open_connection("plain", "127.0.0.1", port)
            stream.write(b"loop")
            assert await stream.readexactly(4) == b"LOOP"
            stream.close()

        await asyncio.gather(once(), *(asyncio.to_thread(asyncio.run, once()) for _ in range(3)))


async def test_large_data_arrives_whole():
    data = os.urandom(65536) * 64
    async with await mitmproxy_watm.start_server("plain", "127.0.0.1", 0, handle_tcp_stream=echo) as server:
        stream = await mitmproxy_watm.open_connection("plain", *server.getsockname())

        async def send():
            for start in range(0, len(data), 65536):
                stream.write(data[start : start + 65536])
                await stream.drain()
            stream.write_eof()

        sending = asyncio.create_task(send())
        assert await stream.read() == data
        await sending
        stream.close()


@PLAIN
def test_a_program_ends_with_connections_open(module):
    program = """
import asyncio, mitmproxy_watm, sys
async def main():
    global keep
    module = sys.argv[1]
    server = await mitmproxy_watm.start_server(module, "127.0.0.1", 0, handle_tcp_stream=lambda stream: None, unsealed=True)
    relay = await mitmproxy_watm.start_relay(module, "127.0.0.1", 0, *server.getsockname(), unsealed=True)
    keep = server, relay, await mitmproxy_watm.open_connection(module, *relay.getsockname(), unsealed=True)
    print("open")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program, module], capture_output=True, text=True, timeout=30)
    said = [line for line in done.stderr.splitlines() if "not sealed" not in line]
    assert (done.returncode, done.stdout, said) == (0, "open\n", [])
