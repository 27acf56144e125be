"""Headers of the PROXY protocol."""

import ipaddress
import struct

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def version_1(client: str, site: str, port: int) -> bytes:
    family = "TCP6" if ":" in client else "TCP4"
    return f"PROXY {family} {client} {site} {port} 443\r\n".encode()


def version_2(client: str, site: str, port: int, *, udp: bool = False, command: int = 0x21) -> bytes:
    ends = [ipaddress.ip_address(end) for end in (client, site)]
    family = (0x10 if ends[0].version == 4 else 0x20) | (2 if udp else 1)
    rest = b"".join(end.packed for end in ends) + struct.pack(">HH", port, 443)
    return SIGNATURE + struct.pack(">BBH", command, family, len(rest)) + rest
