"""Flows of wireguard-go with gVisor's TCP/IP."""

import asyncio
import contextlib

import pytest

from watm_test_support.tunnels import V4, V6, Peer, serving
from watm_test_support.wgclient import WgClientError, WgClientTimeout

from . import packets

MB = 1_000_000


@pytest.mark.parametrize("to", [V4, f"[{V6}]"], ids=["ipv4", "ipv6"])
async def test_tcp_udp_and_bulk_carry_the_right_content(to: str) -> None:
    peer = Peer()
    async with serving(peer) as running, running.client(peer) as client:
        assert (await client.do("echo", to=f"{to}:7", messages=100, size=1000))["messages"] == 100
        assert (await client.do("echo", to=f"{to}:7", messages=3, size=100_000, connections=5))["messages"] == 15
        assert (await client.do("udp-echo", to=f"{to}:7", messages=200, size=100))["lost"] == 0
        assert (await client.do("bulk-up", to=f"{to}:9", bytes=10 * MB, timeout=30))["bytes"] == 10 * MB
        assert (await client.do("bulk-down", to=f"{to}:19", bytes=10 * MB, timeout=30))["bytes"] == 10 * MB


async def test_transfers_side_by_side_keep_their_content() -> None:
    peer = Peer()
    async with serving(peer) as running, running.client(peer) as client:
        transfers = [client.do(action, bytes=2 * MB, connections=4, timeout=30) for action in ("bulk-up", "bulk-down")]
        for result in await asyncio.gather(*transfers, client.do("echo", messages=50, timeout=30)):
            assert result


@pytest.mark.parametrize("to", [V4, V6], ids=["icmp", "icmpv6"])
async def test_ping_is_answered(to: str) -> None:
    peer = Peer()
    async with serving(peer) as running, running.client(peer) as client:
        for size in (0, 56, 1300):
            result = await client.do("ping", to=to, count=5, size=size)
            assert (result["replies"], result["lost"]) == (5, 0)


async def test_the_ends_of_a_connection_are_known_to_the_handler() -> None:
    peer = Peer()
    seen = asyncio.Queue()

    async def handle(stream) -> None:
        names = ("transport_protocol", "peername", "sockname", "peer", "original_src", "original_dst")
        seen.put_nowait({name: stream.get_extra_info(name) for name in names})
        stream.write(await stream.read(100))

    async with serving(peer, handle_tcp=handle, handle_udp=handle) as running, running.client(peer) as client:
        outer = ("127.0.0.1", (await client.do("status"))["listen_port"])
        for network, open_socket in (("tcp", client.tcp), ("udp", client.udp)):
            for source, to in (("10.0.0.1", V4), ("fd00::1", V6)):
                target = f"[{to}]:4000" if ":" in to else f"{to}:4000"
                async with open_socket(target) as conn:
                    await conn.write(b"hello")
                    assert await conn.read() == b"hello"
                    info = await seen.get()
                    port = int(conn.local.rpartition(":")[2])
                    assert info == {
                        "transport_protocol": network,
                        "peername": (source, port),
                        "sockname": (to, 4000),
                        "peer": peer.public_key,
                        "original_src": outer,
                        "original_dst": running.server.getsockname()[:2],
                    }


async def test_both_directions_are_closed_on_their_own() -> None:
    peer = Peer()

    async def handle(stream) -> None:
        # The server sends its FIN first, and still receives data of the client.
        stream.write(b"all I have to say")
        stream.write_eof()
        received = b""
        while data := await stream.read(65536):
            received += data
        heard.set_result(received)
        stream.close()

    heard = asyncio.get_running_loop().create_future()
    async with serving(peer, handle_tcp=handle) as running, running.client(peer) as client:
        async with client.tcp(f"{V4}:4000") as conn:
            assert await conn.read_all() == b"all I have to say"
            await conn.write(b"still here" * 10_000)
            await conn.close_write()
            assert await asyncio.wait_for(heard, 10) == b"still here" * 10_000

    async with serving(peer) as running, running.client(peer) as client:
        result = await client.do("halfclose", size=500_000)
        assert (result["sent"], result["received"]) == (500_000, 500_000)


async def test_a_reset_reaches_the_other_side_both_ways() -> None:
    peer = Peer()
    outcome = asyncio.Queue()

    async def handle(stream) -> None:
        if stream.get_extra_info("sockname")[1] == 4001:
            await stream.read(10)
            stream.abort()
            return
        try:
            while data := await stream.read(10):
                stream.write(data)
            outcome.put_nowait("end")
        except ConnectionResetError:
            outcome.put_nowait("reset")

    async with serving(peer, handle_tcp=handle) as running, running.client(peer) as client:
        async with client.tcp(f"{V4}:4000") as conn:
            await conn.write(b"x")
            assert await conn.read() == b"x"
            await conn.abort()
        assert await asyncio.wait_for(outcome.get(), 10) == "reset"
        async with client.tcp(f"{V4}:4001") as conn:
            await conn.write(b"x")
            with pytest.raises(WgClientError, match="reset"):
                await conn.read()


async def test_a_reader_that_stops_holds_the_sender_back_and_loses_nothing() -> None:
    peer = Peer()
    go_on = asyncio.Event()
    total = 8 * MB

    async def handle(stream) -> None:
        await go_on.wait()
        received = 0
        while data := await stream.read(65536):
            received += len(data)
        stream.write(str(received).encode())
        stream.close()

    async with serving(peer, handle_tcp=handle) as running, running.client(peer) as client:
        async with client.tcp(f"{V4}:4000") as conn:
            writing = asyncio.create_task(conn.write(b"x" * total, timeout=30))
            done, _ = await asyncio.wait([writing], timeout=2)
            assert not done, "8 MB were taken although nobody reads"
            go_on.set()
            await writing
            await conn.close_write()
            assert await conn.read_all() == str(total).encode()


async def test_a_client_that_stops_reading_holds_drain_back_and_loses_nothing() -> None:
    peer = Peer()
    written = 0
    total = 16 * MB

    async def handle(stream) -> None:
        nonlocal written
        while written < total:
            stream.write(b"y" * 65_536)
            written += 65_536
            await stream.drain()
        stream.write_eof()

    async with serving(peer, handle_tcp=handle) as running, running.client(peer) as client:
        async with client.tcp(f"{V4}:4000") as conn:
            await asyncio.sleep(2)
            held = written
            assert held < total, "drain() let everything through although nobody reads"
            received = 0
            while data := await conn.read(MB):
                assert data == b"y" * len(data)
                received += len(data)
            assert received == written >= total


@pytest.mark.parametrize("size", [1, 1391, 1392, 1393, 2000, 8000])
async def test_a_datagram_of_any_size_comes_whole(size: int) -> None:
    peer = Peer()
    seen = asyncio.Queue()

    async def handle(stream) -> None:
        data = await stream.read(65535)
        seen.put_nowait(len(data))
        stream.write(data)
        await stream.read(1)

    async with serving(peer, handle_udp=handle) as running, running.client(peer) as client:
        async with client.udp(f"{V4}:4000") as conn:
            await conn.write(b"z" * size)
            assert await asyncio.wait_for(seen.get(), 5) == size
            assert await conn.read() == b"z" * size


async def test_a_udp_flow_that_was_closed_comes_back_as_a_new_one() -> None:
    peer = Peer()
    flows = 0

    async def handle(stream) -> None:
        nonlocal flows
        flows += 1
        stream.write(await stream.read(100))
        await stream.drain()
        stream.close()

    async with serving(peer, handle_udp=handle) as running, running.client(peer) as client:
        async with client.udp(f"{V4}:4000", local_port=5555) as conn:
            for count in range(1, 4):
                answer = None
                while answer is None:  # the previous flow may still be closing
                    await conn.write(b"again")
                    with contextlib.suppress(WgClientTimeout):
                        answer = await conn.read(timeout=1)
                assert answer == b"again"
                assert flows >= count


async def test_flows_that_are_not_carried_are_refused_and_not_left_waiting() -> None:
    peer = Peer()
    async with serving(peer, handle_tcp=None, handle_udp=None) as running, running.client(peer) as client:
        with pytest.raises(WgClientError, match=r"refused|reset"):
            async with client.tcp(f"{V4}:4000", timeout=5) as conn:
                await conn.read()


async def test_protocols_that_are_not_carried_get_an_icmp_error() -> None:
    peer = Peer()
    async with serving(peer) as running, running.client(peer) as client:
        await client.do("capture", on=True)
        await client.inject(packets.ipv4(packets.GRE, "10.0.0.1", V4, b"not carried"))
        await client.inject(packets.ipv6(packets.GRE, "fd00::1", V6, b"not carried"))
        async with asyncio.timeout(5):
            errors = set()
            while len(errors) < 2:
                for packet in await client.captured():
                    if packet[0] >> 4 == 4 and packet[9] == 1:
                        errors.add(("icmp", packet[20], packet[21]))
                    if packet[0] >> 4 == 6 and packet[6] == 58:
                        errors.add(("icmpv6", packet[40], packet[41]))
                await asyncio.sleep(0.02)
        # Protocol unreachable (RFC 792), unrecognized next header (RFC 4443, 3.4).
        assert errors == {("icmp", 3, 2), ("icmpv6", 4, 1)}


@pytest.mark.parametrize("action", ["bulk-up", "bulk-down"])
async def test_a_long_path_is_filled(action: str) -> None:
    peer = Peer()
    # A window of 64 KiB for a round trip of 100 ms would mean 0.66 MB/s.
    async with serving(peer) as running, running.client(peer, delay="100ms") as client:
        result = await client.do(action, bytes=20 * MB, timeout=30)
        assert result["mb_per_second"] > 4


@pytest.mark.parametrize("action", ["bulk-up", "bulk-down"])
async def test_a_lossy_path_only_slows(action: str) -> None:
    peer = Peer()
    async with serving(peer) as running, running.client(peer, delay="10ms", loss=0.02, seed=7) as client:
        assert (await client.do(action, bytes=2 * MB, timeout=40))["bytes"] == 2 * MB


async def test_many_connections_at_once() -> None:
    peer = Peer()
    async with serving(peer) as running, running.client(peer) as client:
        result = await client.do("connect", count=1000, parallel=100, timeout=30)
        assert result["connections"] == 1000


async def test_a_client_that_forgot_its_connection_opens_it_again_at_once() -> None:
    peer = Peer()
    async with serving(peer) as running:
        for _ in range(3):  # the previous flow has been removed
            async with running.client(peer) as client, client.tcp(f"{V4}:7", local_port=5000, timeout=5) as conn:
                await conn.write(b"hello")
                assert await conn.read_exactly(5) == b"hello"
                client.process.kill()
                await client.process.wait()
