"""Several clients: their identities, their permitted addresses, and their isolation."""

import asyncio

import pytest

from mitmproxy_watm.wireguard import genkey, pubkey, start_wireguard_server
from watm_test_support.tunnels import HOST, V4, Peer, preshared_key, serving
from watm_test_support.wgclient import WgClient, WgClientTimeout

from . import packets


def three_peers() -> list[Peer]:
    return [Peer(addresses=(f"10.0.{n}.1", f"fd00:{n}::1"), preshared_key=preshared_key()) for n in (1, 2, 3)]


async def test_every_peer_is_told_apart() -> None:
    peers = three_peers()
    seen = asyncio.Queue()

    async def handle(stream) -> None:
        seen.put_nowait((stream.get_extra_info("peer"), stream.get_extra_info("peername")[0]))
        stream.write(await stream.read(100))
        stream.close()

    async with serving(*peers, handle_tcp=handle) as running:
        for peer in peers:
            async with running.client(peer) as client:
                await client.do("connect", to=f"{V4}:4000", count=1)
                assert await seen.get() == (peer.public_key, peer.addresses[0])
        status = running.server.status()
        assert {entry.name for entry in status.peers} == {peer.public_key for peer in peers}
        assert all(entry.last_handshake is not None for entry in status.peers)


async def test_strangers_and_wrong_preshared_keys_stay_outside() -> None:
    known = Peer(preshared_key=preshared_key())
    async with serving(known) as running:
        wrong = Peer(private_key=known.private_key, preshared_key=preshared_key())
        without = Peer(private_key=known.private_key)
        for outsider in (wrong, without, Peer()):
            async with running.client(outsider) as client:
                with pytest.raises(WgClientTimeout):
                    await client.do("connect", count=1, timeout=1.5)
        async with running.client(known) as client:
            assert (await client.do("echo", messages=3))["messages"] == 3


async def test_a_source_outside_the_allowed_addresses_is_dropped() -> None:
    peer = Peer()
    sources = []

    async def handle(stream) -> None:
        sources.append(stream.get_extra_info("peername")[0])
        await stream.read(10)

    async with serving(peer, handle_udp=handle) as running, running.client(peer) as client:
        await client.do("handshake")
        for source in ("10.0.0.2", "192.0.2.1", "10.0.0.1"):
            await client.inject(packets.udp_over_ipv4((source, 1000), (V4, 2000), b"hello"))
        async with asyncio.timeout(5):
            while "10.0.0.1" not in sources:
                await asyncio.sleep(0.02)
        assert sources == ["10.0.0.1"]
        assert any("allowed" in name and count >= 2 for name, count in running.server.stats().items())


async def test_a_peers_packets_never_reach_another_peer() -> None:
    one, two, _ = peers = three_peers()
    async with serving(*peers) as running, running.client(one) as first, running.client(two) as second:
        await second.do("echo", messages=1)
        await second.do("capture", on=True)
        # The other client's address is a destination like any other: the server answers for it.
        target = two.addresses[0]
        assert (await first.do("ping", to=target, count=3))["replies"] == 3
        assert (await first.do("echo", to=f"{target}:7", messages=3))["messages"] == 3
        assert (await first.do("udp-echo", to=f"{target}:7", messages=3))["lost"] == 0
        assert (await second.do("ping", count=1))["replies"] == 1
        sources = {packet[12:16] for packet in await second.captured() if packet[0] >> 4 == 4}
        assert sources == {bytes(map(int, V4.split(".")))}


async def test_two_clients_with_the_same_inner_address_and_port() -> None:
    # mitmproxy's own interface configures peers without addresses.
    server_key, peers = genkey(), [Peer(), Peer()]
    taken = asyncio.Queue()

    async def handle(stream) -> None:
        name = stream.get_extra_info("peer").encode()
        taken.put_nowait((stream.get_extra_info("peer"), stream.get_extra_info("peername")))
        while data := await stream.read(1000):
            stream.write(name + b":" + data)
            await stream.drain()

    public_keys = [peer.public_key for peer in peers]
    server = await start_wireguard_server(HOST, 0, server_key, public_keys, handle, handle)
    try:

        def client(peer: Peer):
            return WgClient.start(
                server=f"{HOST}:{server.getsockname()[1]}",
                private_key=peer.private_key,
                peer_public_key=pubkey(server_key),
                address=["10.0.0.1"],
            )

        async with client(peers[0]) as first, client(peers[1]) as second:
            for kind in ("tcp", "udp"):
                opened = [getattr(one, kind)(f"{V4}:4000", local_port=5000) for one in (first, second)]
                async with opened[0] as a, opened[1] as b:
                    for _ in range(3):
                        for conn, peer in ((a, peers[0]), (b, peers[1])):
                            await conn.write(b"hello")
                            assert await conn.read() == peer.public_key.encode() + b":hello"
        seen = {taken.get_nowait() for _ in range(taken.qsize())}
        assert seen == {(peer.public_key, ("10.0.0.1", 5000)) for peer in peers}
    finally:
        server.close()
        await server.wait_closed()


async def test_a_client_that_moves_keeps_its_connections() -> None:
    peer = Peer()
    async with serving(peer) as running, running.client(peer) as client:
        async with client.tcp(f"{V4}:7") as conn:
            for _ in range(3):
                await conn.write(b"where am I")
                assert await conn.read_exactly(10) == b"where am I"
                port = (await client.do("status"))["listen_port"]
                assert running.server.status().peers[0].endpoint == f"127.0.0.1:{port}"
                await client.do("rebind")
                assert (await client.do("status"))["listen_port"] != port
