"""Datagrams of strangers, and datagrams of a peer over a bad path."""

import asyncio
import contextlib
import logging
import pathlib
import sys

import pytest

from watm_test_support import outer, paths
from watm_test_support.tunnels import HOST, V4, Peer, Running, serving
from watm_test_support.wgclient import WgClient, WgClientError

from . import packets
from .neighbour import counted, undisturbed, until

MB = 1_000_000
DROPPED = "wireguard.dropped."
# Seconds in which a client begins no second handshake (WireGuard paper, 6.1).
REKEY_TIMEOUT = 5


def two_peers() -> tuple[Peer, Peer]:
    one, two = (Peer(addresses=(f"10.0.{n}.1", f"fd00:{n}::1")) for n in (1, 2))
    return one, two


def port_of(running: Running) -> int:
    return running.server.getsockname()[1]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture):
    """Checks that strangers cause no record above DEBUG. INFO records are about peers that connected, or count dropped
    records if one of those was INFO.
    """
    caplog.set_level(logging.DEBUG)
    yield
    ours = [record for record in caplog.get_records("call") if record.name.startswith("mitmproxy_watm")]
    assert ours
    assert [record.getMessage() for record in ours if record.levelno > logging.INFO] == []
    informed = [record.getMessage() for record in ours if record.levelno == logging.INFO]
    assert [text for text in informed if "connected from" not in text and "logs too fast" not in text] == []


# The datagrams, and their counters.
STRANGERS = {
    "empty": (b"", "not_wireguard"),
    "a byte": (b"\x04", "not_wireguard"),
    "text": (b"GET / HTTP/1.1\r\n\r\n", "not_wireguard"),
    "zeros": (bytes(148), "not_wireguard"),
    "an unknown type": (b"\x05\0\0\0" + bytes(60), "not_wireguard"),
    "reserved bits": (b"\x01\xff\xff\xff" + bytes(144), "not_wireguard"),
    "a short initiation": (outer.initiation()[:-1], "not_wireguard"),
    "a long initiation": (outer.initiation() + b"\0", "not_wireguard"),
    "a short response": (outer.RESPONSE + bytes(87), "not_wireguard"),
    "a short cookie": (outer.COOKIE + bytes(59), "not_wireguard"),
    "data without room for a tag": (outer.DATA + bytes(27), "not_wireguard"),
    "as much as UDP holds": (b"\xff" * outer.LARGEST, "not_wireguard"),
    "an initiation without mac1": (outer.initiation(), "invalid_mac"),
    "a response to nothing": (outer.RESPONSE + bytes(88), "no_session"),
    "a cookie for nobody": (outer.COOKIE + bytes(60), "no_session"),
    "data of no session": (outer.DATA + bytes(28), "no_session"),
    "data as large as UDP allows": (outer.DATA + bytes(outer.LARGEST - 4), "no_session"),
}


async def test_what_strangers_send_is_counted_by_its_fault_and_never_answered() -> None:
    peer = Peer()
    async with serving(peer) as running, undisturbed(running, peer):
        expected = dict.fromkeys((fault for _, fault in STRANGERS.values()), 0) | {"not_authentic": 0}
        cases = [*STRANGERS.values(), (outer.initiation(running.public_key), "not_authentic")]
        with outer.stranger(port_of(running)) as stranger:
            for datagram, fault in cases:
                stranger.send(datagram)
                expected[fault] += 1
            for fault, count in expected.items():
                await until(fault, lambda fault=fault, count=count: counted(running, DROPPED + fault) >= count)
            assert {fault: counted(running, DROPPED + fault) for fault in expected} == expected
            with pytest.raises(BlockingIOError):
                stranger.recv(2048)


async def test_a_handshake_by_an_unknown_key_is_counted_and_not_answered() -> None:
    peer, unknown = two_peers()
    async with serving(peer) as running, undisturbed(running, peer), running.client(unknown) as client:
        with pytest.raises(WgClientError, match="no handshake"):
            await client.do("handshake", timeout=1)
        assert counted(running, DROPPED + "unknown_peer") >= 1
        assert (await client.do("status"))["received_bytes"] == 0


async def test_what_was_sent_once_is_not_taken_again() -> None:
    neighbour, peer = two_peers()
    async with serving(neighbour, peer) as running, undisturbed(running, neighbour):
        async with outer.path(port_of(running)) as path, running.client(peer, server=path.address) as client:
            await client.do("echo", messages=100)
            endpoint = running.server.status().peers[1].endpoint
            await asyncio.sleep(0.1)
            seen = list(path.seen)
            assert sum(datagram.startswith(outer.INITIATION) for datagram in seen) == 1
            assert counted(running, DROPPED + "replay") == 0
            with outer.stranger(port_of(running)) as stranger:
                for datagram in seen:
                    stranger.send(datagram)
                await until("all refused", lambda: counted(running, DROPPED + "replay") == len(seen))
                with pytest.raises(BlockingIOError):
                    stranger.recv(2048)
            assert running.server.status().peers[1].endpoint == endpoint
            await client.do("echo", messages=5)


async def test_a_path_that_doubles_datagrams_changes_nothing() -> None:
    neighbour, peer = two_peers()
    async with serving(neighbour, peer) as running, undisturbed(running, neighbour):
        async with (
            outer.path(port_of(running), lambda datagram: [datagram, datagram]) as path,
            running.client(peer, server=path.address) as client,
        ):
            await client.do("udp-echo", messages=100)
            assert counted(running, DROPPED + "replay") >= 100
            for action in ("bulk-up", "bulk-down"):
                await client.do(action, bytes=2 * MB, timeout=20)


async def test_a_path_that_reorders_datagrams_changes_nothing() -> None:
    neighbour, peer = two_peers()
    async with serving(neighbour, peer) as running, undisturbed(running, neighbour):
        with paths.path(port_of(running), "--jitter", "0s-3ms", "--reordering") as path:
            async with running.client(peer, server=path.address) as client:
                for action in ("bulk-up", "bulk-down"):
                    await client.do(action, bytes=MB, timeout=30)
                assert (await client.do("udp-echo", messages=200, window=20))["lost"] == 0
                # A late datagram is no replay.
                assert counted(running, DROPPED + "replay") == 0


async def test_damaged_copies_of_a_peers_datagrams_harm_nobody() -> None:
    neighbour, peer = two_peers()

    def damage(datagram: bytes) -> list[bytes]:
        if not datagram.startswith(outer.DATA):
            return [datagram]
        flipped = bytearray(datagram)
        flipped[-1] ^= 1
        counter = bytearray(datagram)
        counter[12] ^= 1
        return [datagram[:-1], bytes(flipped), bytes(counter), datagram.ljust(60_000, b"\0"), datagram]

    async with serving(neighbour, peer) as running, undisturbed(running, neighbour):
        async with (
            outer.path(port_of(running), damage) as path,
            running.client(peer, server=path.address) as client,
        ):
            await client.do("echo", messages=50)
            sent = sum(datagram.startswith(outer.DATA) for datagram in path.seen)
            assert sent > 100
            await until("all refused", lambda: counted(running, DROPPED + "not_authentic") >= 4 * sent)
            assert counted(running, DROPPED + "replay") == 0
            await client.do("bulk-up", bytes=MB, timeout=20)
            await client.do("bulk-down", bytes=MB, timeout=20)


@pytest.mark.parametrize(
    ("knows_the_key", "first", "addresses"),
    [
        pytest.param(False, outer.HOST, 1, id="wrong mac1"),
        # The client's own address, and another.
        pytest.param(True, outer.HOST, 1, id="right mac1, one port"),
        pytest.param(True, "127.0.1.1", 1, id="right mac1, another address"),
        pytest.param(True, "127.0.1.1", 150, id="right mac1, many addresses"),
    ],
)
async def test_a_flood_of_handshakes_stalls_nobody(knows_the_key: bool, first: str, addresses: int) -> None:
    """Only a flood from more addresses than handshakes per second makes newcomers prove their address, which takes
    wireguard-go five seconds.
    """
    neighbour, newcomer = two_peers()
    rate, seconds = 2000, 5
    async with serving(neighbour, newcomer) as running, undisturbed(running, neighbour) as others:
        program = pathlib.Path(__file__).with_name("flood.py")
        key = [running.public_key] if knows_the_key else []
        arguments = map(str, [program, port_of(running), seconds, rate, first, addresses, *key])
        flood = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
        try:
            reason = "wireguard.cookies_sent" if knows_the_key else DROPPED + "invalid_mac"
            await until("the flood has begun", lambda: counted(running, reason) > rate)
            async with (
                outer.path(port_of(running)) as path,
                running.client(newcomer, server=path.address) as client,
            ):
                await client.do("echo", messages=5, timeout=15)
                initiations = sum(datagram.startswith(outer.INITIATION) for datagram in path.seen)
                assert initiations == 1 or addresses > 100
            await others.more()
        finally:
            if flood.returncode is None:
                await asyncio.wait_for(flood.wait(), 2 * seconds)
        sent = int(await flood.stdout.read())
        assert sent > rate
        if knows_the_key:
            # A hundred per second get a key exchange, the others a cookie.
            assert 0 < counted(running, DROPPED + "not_authentic") <= 100 * (seconds + 2)
        assert counted(running, reason) <= sent


async def handshake_with(server: Running, client: WgClient) -> None:
    """The client begins a handshake at least five seconds after the previous one, and sends to the server that it heard
    from last.
    """
    for _ in range(4):
        await client.do("server", address=f"{HOST}:{port_of(server)}")
        with contextlib.suppress(WgClientError):
            return await client.do("handshake", timeout=REKEY_TIMEOUT + 1)
    raise AssertionError("no handshake")


async def test_a_client_goes_from_one_server_to_another_with_the_same_key() -> None:
    neighbour, peer = two_peers()
    async with serving(neighbour, peer) as one, undisturbed(one, neighbour):
        async with serving(neighbour, peer, private_key=one.private_key) as two, undisturbed(two, neighbour):
            async with one.client(peer) as client:
                await client.do("echo", messages=3)
                # This server does not know the sessions of the other one. A late packet of the other server makes the
                # client return to it.
                while counted(two, DROPPED + "no_session") == 0:
                    await client.do("server", address=f"{HOST}:{port_of(two)}")
                    await client.inject(packets.udp_over_ipv4(("10.0.2.1", 1), (V4, 7), b"to the other"))
                    await asyncio.sleep(0.05)
                await handshake_with(two, client)
                await client.do("echo", messages=3)
                assert [server.server.status().peers[1].endpoint for server in (one, two)] == [
                    f"{HOST}:{(await client.do('status'))['listen_port']}"
                ] * 2
