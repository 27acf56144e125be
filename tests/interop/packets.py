"""IP packets made by hand, for what a TCP/IP stack would not send."""

import ipaddress
import struct

UDP = 17
GRE = 47


def ipv4(protocol: int, source: str, destination: str, payload: bytes) -> bytes:
    """An IPv4 packet (RFC 791) without options."""
    addresses = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(destination).packed

    def header(checksum: int) -> bytes:
        length = 20 + len(payload)
        return struct.pack("!BBHHHBBH", 0x45, 0, length, 1, 0, 64, protocol, checksum) + addresses

    return header(_checksum(header(0))) + payload


def ipv6(protocol: int, source: str, destination: str, payload: bytes) -> bytes:
    """An IPv6 packet (RFC 8200) without extension headers."""
    addresses = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(destination).packed
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + addresses + payload


def udp_over_ipv4(source: tuple[str, int], destination: tuple[str, int], payload: bytes) -> bytes:
    """A UDP datagram without a checksum, which IPv4 allows (RFC 768)."""
    header = struct.pack("!HHHH", source[1], destination[1], 8 + len(payload), 0)
    return ipv4(UDP, source[0], destination[0], header + payload)


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
