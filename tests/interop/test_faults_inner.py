"""Packets inside the tunnel that no correct TCP/IP stack sends."""

import asyncio
import struct

import pytest

from watm_test_support.tunnels import V4, V6, Peer, serving

from . import packets
from .neighbour import counted, undisturbed, until
from .packets import MORE_FRAGMENTS, TCP, UDP

# The source address with a port.
US4, US6 = ("10.0.2.1", 1000), "fd00:2::1"
TO = (V4, 2000)


def v4(payload: bytes, **options) -> bytes:
    return packets.ipv4(UDP, US4[0], V4, payload, **options)


def v6(protocol: int, payload: bytes, **options) -> bytes:
    return packets.ipv6(protocol, US6, V6, payload, **options)


def damaged(packet: bytes, at: int) -> bytes:
    return packet[:at] + bytes([packet[at] ^ 0x55]) + packet[at + 1 :]


UDP_HELLO = packets.udp(US4[1], TO[1], b"hello")
# Type 128: a receiver that does not know the option must drop the packet (RFC 8200, 4.2).
UNKNOWN_OPTION = struct.pack("!BBBBI", UDP, 0, 0x80, 4, 0)
ROUTE_WITH_STOPS = struct.pack("!BBBBI", UDP, 0, 0, 3, 0)

# Each packet, and the counter that it increments.
FAULTS = {
    "ipv4: header checksum": (damaged(v4(UDP_HELLO), 10), "netstack.ip_malformed"),
    "ipv4: header of 16 bytes": (v4(UDP_HELLO, header_length=4), "netstack.ip_malformed"),
    "ipv4: header beyond the packet": (v4(b"", header_length=15), "netstack.ip_malformed"),
    "ipv4: total length beyond the packet": (v4(UDP_HELLO, total_length=1000), "wireguard.dropped.not_ip"),
    "ipv4: total length less than the header": (v4(UDP_HELLO, total_length=19), "netstack.ip_malformed"),
    "ipv4: total length of 0": (v4(UDP_HELLO, total_length=0), "netstack.ip_malformed"),
    "ipv4: another's source": (
        packets.udp_over_ipv4(("10.0.1.1", 1), TO, b"x"),
        "wireguard.dropped.source_not_allowed",
    ),
    "ipv4: to a group": (packets.udp_over_ipv4(US4, ("224.0.0.1", 1), b"x"), "netstack.ip_multicast"),
    "ipv4: to nowhere": (packets.udp_over_ipv4(US4, ("0.0.0.0", 1), b"x"), "netstack.ip_bad_address"),
    "ipv4: fragment beyond 64 KiB": (v4(bytes(64), fragment=0x1FFF), "netstack.fragments_dropped"),
    "ipv4: tiny first fragment": (
        packets.ipv4(TCP, US4[0], V4, bytes(8), fragment=MORE_FRAGMENTS),
        "netstack.fragments_dropped",
    ),
    "ipv4: a source route": (
        v4(UDP_HELLO, options=b"\x83\x07\x04\x0a\x09\x09\x09\x00"),
        "netstack.ip_malformed",
    ),
    "ipv6: length beyond the packet": (v6(UDP, UDP_HELLO, length=1000), "wireguard.dropped.not_ip"),
    "ipv6: nothing follows": (v6(59, b""), "netstack.ip_empty"),
    "ipv6: an option that must be known": (v6(60, UNKNOWN_OPTION + UDP_HELLO), "netstack.ip_malformed"),
    "ipv6: a source route": (v6(43, ROUTE_WITH_STOPS + UDP_HELLO), "netstack.ip_malformed"),
    "ipv6: extension headers without end": (v6(60, bytes([60, 0] + [0] * 6) * 20), "netstack.ip_malformed"),
    "ipv6: a header that is cut": (v6(60, b"\x11"), "netstack.ip_malformed"),
    "udp: checksum": (v4(packets.udp(1, 2, b"hello", sum_=1)), "netstack.udp_malformed"),
    "udp: no checksum over ipv6": (v6(UDP, UDP_HELLO), "netstack.udp_malformed"),
    "udp: length beyond the packet": (v4(packets.udp(1, 2, b"hello", length=100)), "netstack.udp_malformed"),
    "udp: length less than the header": (v4(packets.udp(1, 2, b"hello", length=7)), "netstack.udp_malformed"),
    "udp: half a header": (v4(b"\0\1\0\2"), "netstack.udp_malformed"),
    "tcp: checksum": (packets.tcp_over_ipv4(US4, TO, damage=1), "netstack.tcp_malformed"),
    "tcp: header of 16 bytes": (packets.tcp_over_ipv4(US4, TO, offset=4), "netstack.tcp_malformed"),
    "tcp: header beyond the packet": (packets.tcp_over_ipv4(US4, TO, offset=15), "netstack.tcp_malformed"),
    "tcp: option of length 0": (packets.tcp_over_ipv4(US4, TO, options=b"\2\0\0\0"), "netstack.tcp_malformed"),
    "tcp: half a header": (packets.ipv4(TCP, US4[0], V4, bytes(10)), "netstack.tcp_malformed"),
    "icmp: checksum": (packets.ipv4(packets.ICMP, US4[0], V4, b"\x08\0\0\1\0\1\0\1"), "netstack.icmp_malformed"),
    "icmp: half a header": (packets.ipv4(packets.ICMP, US4[0], V4, b"\x08"), "netstack.icmp_malformed"),
    "icmpv6: checksum": (v6(packets.ICMPV6, b"\x80\0\0\1\0\1\0\1"), "netstack.icmp_malformed"),
}


async def test_each_wrong_packet_is_counted_by_its_fault_and_nothing_else_happens() -> None:
    neighbour, peer = Peer(), Peer(addresses=(US4[0], US6))
    async with serving(neighbour, peer) as running, undisturbed(running, neighbour) as others:
        async with running.client(peer) as client:
            await client.do("echo", messages=1)
            wrong = sorted({counter for _, counter in FAULTS.values()})
            expected = dict.fromkeys(wrong, 0)
            opened = counted(running, "netstack.udp_opened")
            for name, (packet, counter) in FAULTS.items():
                await client.inject(packet)
                expected[counter] += 1
                await until(name, lambda counter=counter: counted(running, counter) == expected[counter])
                assert {counter: counted(running, counter) for counter in wrong} == expected, name
            assert counted(running, "netstack.udp_opened") - opened <= others.rounds + 1  # none of these
            await client.do("echo", messages=20)
            await client.do("udp-echo", messages=20)


async def test_options_are_walked_over() -> None:
    neighbour, peer = Peer(), Peer(addresses=(US4[0], US6))
    async with serving(neighbour, peer) as running, undisturbed(running, neighbour), running.client(peer) as client:
        await client.do("capture", on=True)
        # Router alert and no-operation (RFC 2113, RFC 791); MSS and no-operations (RFC 9293).
        await client.inject(v4(UDP_HELLO, options=b"\x94\x04\0\0" + b"\1" * 4))
        await client.inject(packets.tcp_over_ipv4(US4, TO, options=b"\2\4\2\x18\1\1\1\0"))
        answers: set[int] = set()

        async def answered() -> None:
            while answers != {UDP, TCP}:
                answers.update(packet[9] for packet in await client.captured() if packet[16:20] == bytes([10, 0, 2, 1]))

        await answered()


async def test_overlapping_fragments_spoil_their_packet_and_no_other() -> None:
    neighbour, peer = Peer(), Peer(addresses=(US4[0], US6))
    whole = packets.udp(US4[1], 7, b"f" * 2000)

    def piece(begin: int, end: int, identification: int) -> bytes:
        more = MORE_FRAGMENTS if end < len(whole) else 0
        return v4(whole[begin:end], identification=identification, fragment=more | begin // 8)

    async with serving(neighbour, peer) as running, undisturbed(running, neighbour), running.client(peer) as client:
        await client.do("echo", messages=1)
        before = running.server.stats()

        def more(name: str) -> int:
            return counted(running, name) - before[name]

        # The second fragment overlaps the end of the first. The third would complete the packet.
        for begin, end in ((0, 800), (792, 1600), (1600, len(whole))):
            await client.inject(piece(begin, end, 2))
        await until("dropped", lambda: more("netstack.fragments_dropped") == 2)
        assert more("netstack.fragments_reassembled") == 0
        # The fragments are reordered, and one is duplicated, as a network may do (RFC 8200, 4.5).
        for begin, end in ((1600, len(whole)), (0, 800), (0, 800), (800, 1600)):
            await client.inject(piece(begin, end, 3))
        await until("put together", lambda: more("netstack.fragments_reassembled") == 1)


async def test_fragments_whose_rest_never_comes_take_bounded_room() -> None:
    neighbour, peer = Peer(), Peer(addresses=(US4[0], US6))
    async with serving(neighbour, peer) as running, undisturbed(running, neighbour), running.client(peer) as client:
        await client.do("echo", messages=1)
        for identification in range(2, 102):
            await client.inject(v4(bytes(64), identification=identification, fragment=MORE_FRAGMENTS))
        # The server keeps 32 incomplete packets of a peer.
        await until("given up", lambda: counted(running, "netstack.fragments_expired") == 68)
        await client.do("udp-echo", messages=20, size=5000)


@pytest.mark.parametrize("protocol", [TCP, UDP], ids=["tcp", "udp"])
async def test_a_peer_that_opens_twenty_thousand_flows_has_only_its_share(protocol: int) -> None:
    # The client does not have these source addresses, so it sends no answers.
    neighbour, peer = Peer(), Peer(addresses=("10.1.0.1",), allowed_ips=["10.1.0.0/16"])
    make = packets.tcp_over_ipv4 if protocol == TCP else _hello
    async with serving(neighbour, peer) as running, undisturbed(running, neighbour) as others:
        async with running.client(peer) as client:
            await client.do("echo", messages=1)
            for third in range(200):
                sources = [(f"10.1.{1 + third}.{number}", 1000 + third) for number in range(1, 101)]
                await asyncio.gather(*(client.inject(make(source, TO)) for source in sources))
            gone = "netstack.tcp_half_open_evicted" if protocol == TCP else "netstack.udp_evicted"
            await until("the oldest made room", lambda: counted(running, gone) > 2000)
            await others.more()
            status = running.server.status()
            assert status.flows <= 16_384 and status.generation == 0
            await client.do("echo", messages=20)


def _hello(source: tuple[str, int], destination: tuple[str, int]) -> bytes:
    return packets.udp_over_ipv4(source, destination, b"hello")
