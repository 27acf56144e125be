"""Handmade IP packets that no TCP/IP stack sends."""

import ipaddress
import struct

ICMP = 1
TCP = 6
UDP = 17
GRE = 47
ICMPV6 = 58

MORE_FRAGMENTS = 0x2000
SYN = 0x02


def ipv4(
    protocol: int,
    source: str,
    destination: str,
    payload: bytes,
    *,
    options: bytes = b"",
    header_length: int | None = None,
    total_length: int | None = None,
    identification: int = 1,
    fragment: int = 0,
) -> bytes:
    """Returns an IPv4 packet (RFC 791). `fragment` is the field of flags and offset. The lengths are right by default."""
    addresses = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(destination).packed
    size = 20 + len(options)

    def header(sum_: int) -> bytes:
        version = 0x40 | (size // 4 if header_length is None else header_length)
        length = size + len(payload) if total_length is None else total_length
        fields = struct.pack("!BBHHHBBH", version, 0, length, identification, fragment, 64, protocol, sum_)
        return fields + addresses + options

    return header(checksum(header(0))) + payload


def ipv6(protocol: int, source: str, destination: str, payload: bytes, *, length: int | None = None) -> bytes:
    """Returns an IPv6 packet (RFC 8200) with no extension headers except those in `payload`."""
    addresses = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(destination).packed
    size = len(payload) if length is None else length
    return struct.pack("!IHBB", 6 << 28, size, protocol, 64) + addresses + payload


def udp_over_ipv4(source: tuple[str, int], destination: tuple[str, int], payload: bytes) -> bytes:
    """Returns a UDP datagram without a checksum, which IPv4 allows (RFC 768)."""
    return ipv4(UDP, source[0], destination[0], udp(source[1], destination[1], payload))


def udp(source: int, destination: int, payload: bytes, *, length: int | None = None, sum_: int = 0) -> bytes:
    """Returns a UDP datagram, without a checksum by default."""
    size = 8 + len(payload) if length is None else length
    return struct.pack("!HHHH", source, destination, size, sum_) + payload


def tcp_over_ipv4(
    source: tuple[str, int],
    destination: tuple[str, int],
    flags: int = SYN,
    *,
    options: bytes = b"",
    offset: int | None = None,
    damage: int = 0,
) -> bytes:
    """Returns a TCP segment (RFC 9293) without payload. `damage` is added to its checksum."""
    words = 5 + len(options) // 4 if offset is None else offset

    def segment(sum_: int) -> bytes:
        ports = (source[1], destination[1])
        return struct.pack("!HHIIBBHHH", *ports, 1000, 0, words << 4, flags, 64_000, sum_, 0) + options

    addresses = ipaddress.IPv4Address(source[0]).packed + ipaddress.IPv4Address(destination[0]).packed
    pseudo = addresses + struct.pack("!HH", TCP, 20 + len(options))
    right = checksum(pseudo + segment(0))
    return ipv4(TCP, source[0], destination[0], segment((right + damage) & 0xFFFF))


def checksum(data: bytes) -> int:
    """Returns the internet checksum (RFC 1071)."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
