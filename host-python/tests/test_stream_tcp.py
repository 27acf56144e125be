"""A TCP connection as a stream, with a real client at the other end."""

import asyncio
import gc

import pytest

from watm_test_support.wgclient import WgClientError
from watm_test_support.wireguard_server import serve

MIB = 1 << 20


async def test_bytes_go_both_ways():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"hello")
        assert await stream.read(65535) == b"hello"
        stream.write(b"world")
        await stream.drain()
        assert await socket.read() == b"world"


async def test_read_returns_what_is_there_up_to_n():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"abcdef")
        assert await stream.read(2) == b"ab"
        assert await stream.read(100) == b"cdef"
        assert await stream.read(0) == b""


async def test_read_without_a_bound_reads_to_the_end():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"x" * 200_000)
        await socket.close_write()
        assert await stream.read() == b"x" * 200_000
        assert await stream.read(-1) == b""


async def test_the_end_is_empty_again_and_again_and_the_other_direction_stays_open():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"last words")
        await socket.close_write()
        assert not stream.at_eof()
        assert await stream.read(100) == b"last words"
        for _ in range(3):
            assert await stream.read(100) == b""
        assert stream.at_eof()
        assert not stream.is_closing()
        stream.write(b"answer")
        await stream.drain()
        assert await socket.read() == b"answer"


async def test_write_eof_closes_one_direction_after_what_is_queued():
    async with serve() as served, served.tcp() as (socket, stream):
        assert stream.can_write_eof()
        stream.write(b"y" * 200_000)  # not drained
        stream.write_eof()
        stream.write_eof()
        assert await socket.read_all() == b"y" * 200_000
        with pytest.raises(OSError):
            stream.write(b"too late")
        await stream.drain()
        await socket.write(b"still read")
        assert await stream.read(100) == b"still read"


async def test_close_delivers_what_is_queued():
    async with serve() as served, served.tcp() as (socket, stream):
        stream.write(b"z" * 200_000)
        stream.close()
        stream.close()
        assert stream.is_closing()
        assert await socket.read_all() == b"z" * 200_000
        await stream.wait_closed()


async def test_after_close_reads_are_empty_and_writes_fail():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"unread")
        stream.close()
        assert await stream.read(100) == b""
        assert stream.at_eof()
        with pytest.raises(OSError):
            stream.write(b"more")
        stream.write_eof()
        await stream.drain()


async def test_close_ends_a_pending_read():
    async with serve() as served, served.tcp() as (_, stream):
        reading = asyncio.create_task(stream.read(100))
        await asyncio.sleep(0.05)
        assert not reading.done()
        stream.close()
        assert await reading == b""


async def test_a_second_read_fails_and_the_first_goes_on():
    async with serve() as served, served.tcp() as (socket, stream):
        reading = asyncio.create_task(stream.read(100))
        await asyncio.sleep(0)
        for second in (stream.read(100), stream.readexactly(1), stream.readline()):
            with pytest.raises(RuntimeError, match="already waiting"):
                await second
        await socket.write(b"for the first")
        assert await reading == b"for the first"
        await socket.write(b"for the next")
        assert await stream.read(100) == b"for the next"


async def test_a_cancelled_read_loses_nothing():
    async with serve() as served, served.tcp() as (socket, stream):
        received, cancelled = b"", 0
        for number in range(50):
            while len(received) < number:
                received += await stream.read(100)
            reading = asyncio.create_task(stream.read(100))
            await asyncio.sleep(0)
            sending = asyncio.create_task(socket.write(bytes([number])))
            # Sooner than the byte can arrive, about then, and later.
            await asyncio.sleep(number % 5 * 0.0005)
            reading.cancel()
            try:
                received += await reading
            except asyncio.CancelledError:
                cancelled += 1
            await sending
        while len(received) < 50:
            received += await stream.read(100)
        assert received == bytes(range(50))
        assert cancelled >= 10


async def test_a_cancelled_readexactly_keeps_what_came():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"half")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await stream.readexactly(8)
        await socket.write(b"done")
        assert await stream.readexactly(8) == b"halfdone"


async def test_readexactly_readuntil_readline_and_iteration():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"0123one\ntwo\r\n\r\nthree\nfour")
        await socket.close_write()
        assert await stream.readexactly(4) == b"0123"
        assert await stream.readexactly(0) == b""
        assert await stream.readline() == b"one\n"
        assert await stream.readuntil(b"\r\n\r\n") == b"two\r\n\r\n"
        assert [line async for line in stream] == [b"three\n", b"four"]
        assert await stream.readline() == b""


async def test_an_end_too_soon_is_told_with_what_came():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"abc")
        await socket.close_write()
        with pytest.raises(asyncio.IncompleteReadError) as error:
            await stream.readexactly(5)
        assert (error.value.partial, error.value.expected) == (b"abc", 5)
        with pytest.raises(asyncio.IncompleteReadError) as error:
            await stream.readuntil(b";")
        assert error.value.partial == b""


async def test_a_line_beyond_the_limit_is_refused_and_can_still_be_read():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.write(b"x" * 100_000 + b"\n")
        with pytest.raises(asyncio.LimitOverrunError):
            await stream.readuntil(b"\n")
        assert await stream.readexactly(100_000) == b"x" * 100_000
        assert await stream.readline() == b"\n"


async def test_arguments_are_checked_as_in_asyncio():
    async with serve() as served, served.tcp() as (_, stream):
        with pytest.raises(ValueError):
            await stream.readexactly(-1)
        with pytest.raises(ValueError):
            await stream.readuntil(b"")
        with pytest.raises(TypeError):
            stream.write("text")


async def test_every_kind_of_bytes_can_be_written():
    async with serve() as served, served.tcp() as (socket, stream):
        stream.write(bytearray(b"a"))
        stream.write(memoryview(b"xbx")[1:2])
        stream.writelines([b"c", bytearray(b"d"), memoryview(b"e")])
        stream.write(b"")
        await stream.drain()
        assert await socket.read_exactly(5) == b"abcde"


async def test_drain_waits_until_the_other_end_reads():
    async with serve() as served, served.tcp() as (socket, stream):
        stream.write(b"s" * 1000)
        async with asyncio.timeout(1):
            await stream.drain()  # below the mark: at once
        block = b"b" * 65536
        written = 1000
        with pytest.raises(TimeoutError):
            while written < 64 * MIB:
                stream.write(block)
                written += len(block)
                async with asyncio.timeout(0.5):
                    await stream.drain()
        assert written < 32 * MIB  # the capacity of the far window, the buffers and the mark
        waiting = [asyncio.create_task(stream.drain()) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        received = 0
        while received < written:
            received += len(await socket.read(1 << 18))
        await asyncio.gather(*waiting)
        assert received == written


async def test_a_reader_that_stops_stops_the_sender():
    async with serve() as served, served.tcp() as (socket, stream):
        block = bytes(MIB)
        sent = 0
        with pytest.raises(WgClientError):
            while sent < 64 * MIB:
                await socket.write(block, timeout=0.5)
                sent += len(block)
        assert sent < 32 * MIB
        # Buffered data arrives once somebody reads, and the sender continues.
        received = 0
        while received < sent:
            received += len(await stream.read(MIB))


async def test_a_reset_is_an_error_in_read_and_drain():
    async with serve() as served, served.tcp() as (socket, stream):
        await socket.abort()
        with pytest.raises(ConnectionResetError):
            await stream.read(100)
        assert stream.is_closing()
        stream.write(b"into the void")  # as in asyncio: dropped
        with pytest.raises(ConnectionResetError):
            await stream.drain()
        await stream.wait_closed()
        stream.close()


async def test_a_reset_ends_a_pending_drain():
    async with serve() as served, served.tcp() as (socket, stream):
        stream.write(bytes(32 * MIB))
        draining = asyncio.create_task(stream.drain())
        await asyncio.sleep(0.2)
        assert not draining.done()
        await socket.abort()
        with pytest.raises(ConnectionResetError):
            await draining


async def test_abort_resets_the_connection():
    async with serve() as served, served.tcp() as (socket, stream):
        stream.abort()
        with pytest.raises(WgClientError, match="reset"):
            await socket.read()
        assert stream.is_closing()
        assert await stream.read(10) == b""


async def test_a_stream_that_nobody_refers_to_is_closed():
    async with serve() as served, served.client.tcp("10.9.8.7:80") as socket:
        stream = await served.streams.get()
        stream.write(b"bye")
        del stream
        gc.collect()
        assert await socket.read_all() == b"bye"


async def test_extra_info():
    async with serve() as served, served.tcp("10.9.8.7:8080") as (socket, stream):
        facts = {
            "transport_protocol": "tcp",
            "peername": ("10.0.0.1", int(socket.local.rpartition(":")[2])),
            "sockname": ("10.9.8.7", 8080),
            "original_dst": served.server.getsockname(),
            "attributes": {},
        }
        assert {name: stream.get_extra_info(name) for name in facts} == facts
        assert stream.get_extra_info("original_src")[0] == "127.0.0.1"
        assert stream.get_extra_info("peer") == served.server.status().peers[0].name
        assert stream.get_extra_info("ssl_object") is None
        assert stream.get_extra_info("ssl_object", 1) == 1
        assert "10.9.8.7" in repr(stream)


async def test_ipv6_inside():
    async with serve(client_flags={"address": "10.0.0.1,fd77:6174:6d::1"}) as served:
        async with served.tcp("[fd00::9]:443") as (socket, stream):
            assert stream.get_extra_info("sockname") == ("fd00::9", 443)
            assert stream.get_extra_info("peername")[0] == "fd77:6174:6d::1"
            await socket.write(b"six")
            assert await stream.read(10) == b"six"


async def test_reads_are_coroutines_and_many_connections_do_not_mix():
    async with serve() as served:

        async def once(number: int) -> None:
            async with served.client.tcp(f"10.9.8.7:{1000 + number}") as socket:
                await socket.write(str(number).encode())
                assert await socket.read_all() == str(number).encode()

        async def echo() -> None:
            stream = await served.streams.get()
            port = stream.get_extra_info("sockname")[1]
            data = await asyncio.create_task(stream.read(100))
            assert data == str(port - 1000).encode()
            stream.write(data)
            stream.close()

        await asyncio.gather(*(once(number) for number in range(50)), *(echo() for _ in range(50)))
