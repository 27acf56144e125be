"""A UDP flow as a stream, with a real client at the other end."""

import asyncio

import pytest

from watm_test_support.wgclient import WgClientTimeout
from watm_test_support.wireguard_server import TARGET, serve


async def test_a_read_is_a_datagram_and_a_write_is_a_datagram():
    async with serve() as served, served.udp(b"one") as (socket, stream):
        await socket.write(b"two")
        assert await stream.read(65535) == b"one"
        assert await stream.read(1) == b"two"  # whole, whatever n is
        stream.write(b"three")
        stream.writelines([b"four", b"five"])
        await stream.drain()
        assert [await socket.read() for _ in range(3)] == [b"three", b"four", b"five"]


async def test_one_flow_a_pair_of_addresses():
    async with serve() as served, served.udp() as (socket, stream):
        async with served.client.udp(TARGET) as other:
            await other.write(b"from another port")
            second = await served.streams.get()
            assert await second.read(100) == b"from another port"
            assert second.get_extra_info("peername") != stream.get_extra_info("peername")
        assert stream.get_extra_info("transport_protocol") == "udp"
        assert stream.get_extra_info("sockname") == ("10.9.8.7", 80)


async def test_an_empty_datagram_is_not_the_end():
    async with serve() as served, served.udp(b"") as (socket, stream):
        assert await stream.read(100) == b""
        assert not stream.at_eof()
        await socket.write(b"more")
        assert await stream.read(100) == b"more"
        stream.write(b"")
        assert await socket.read() == b""


async def test_large_datagrams_pass_in_fragments():
    async with serve() as served, served.udp() as (socket, stream):
        assert await stream.read(100) == b"first"
        for size in (1392, 1393, 2000, 8000):
            await socket.write(bytes([size % 251]) * size)
            assert await stream.read(65535) == bytes([size % 251]) * size
            stream.write(bytes([size % 241]) * size)
            assert await socket.read() == bytes([size % 241]) * size


async def test_after_close_reads_are_empty_and_writes_fail():
    async with serve() as served, served.udp() as (socket, stream):
        assert not stream.can_write_eof()
        stream.close()
        assert stream.is_closing()
        assert await stream.read(100) == b""
        assert stream.at_eof()
        with pytest.raises(OSError):
            stream.write(b"more")
        await stream.drain()
        await stream.wait_closed()


async def test_close_ends_a_pending_read():
    async with serve() as served, served.udp() as (_, stream):
        assert await stream.read(100) == b"first"
        reading = asyncio.create_task(stream.read(100))
        await asyncio.sleep(0.05)
        stream.close()
        assert await reading == b""


async def test_a_closed_flow_comes_back_with_the_next_datagram():
    async with serve() as served, served.udp() as (socket, stream):
        stream.close()
        await asyncio.sleep(0.2)
        await socket.write(b"again")
        second = await served.streams.get()
        assert await second.read(100) == b"again"
        second.write(b"answer")
        assert await socket.read() == b"answer"


async def test_a_second_read_fails_and_the_first_goes_on():
    async with serve() as served, served.udp() as (socket, stream):
        assert await stream.read(100) == b"first"
        reading = asyncio.create_task(stream.read(100))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError):
            await stream.read(100)
        await socket.write(b"second")
        assert await reading == b"second"


async def test_a_cancelled_read_loses_nothing():
    async with serve() as served, served.udp() as (socket, stream):
        assert await stream.read(100) == b"first"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await stream.read(100)
        await socket.write(b"kept")
        assert await stream.read(100) == b"kept"


async def test_a_flow_without_a_handler_gets_no_answer():
    async with serve(handle_udp_stream=None) as served, served.client.udp(TARGET) as socket:
        await socket.write(b"anybody there?")
        with pytest.raises(WgClientTimeout):
            await socket.read(timeout=0.5)
        async with served.tcp() as (connection, stream):
            await connection.write(b"tcp is served")
            assert await stream.read(100) == b"tcp is served"
