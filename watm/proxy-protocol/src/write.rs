//! Encoding of headers, for dialled connections and for hosts that forward a client's address.

use std::net::{IpAddr, SocketAddr};

use crate::tlv::{CRC32C, Tlv};
use crate::v2::{self, CHECKSUM};

/// Encodes a header of version 1 for a TCP connection. `None`: `UNKNOWN`. If the ends differ in family, the IPv4
/// address becomes an IPv4-mapped IPv6 address.
pub fn write_v1(ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let Some((source, destination)) = ends.map(of_one_family) else {
        return b"PROXY UNKNOWN\r\n".to_vec();
    };
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    format!(
        "PROXY {family} {} {} {} {}\r\n",
        source.ip(),
        destination.ip(),
        source.port(),
        destination.port()
    )
    .into_bytes()
}

/// Encodes a header of version 2 for a TCP connection, with these TLVs and a checksum. Without ends: `LOCAL`. If the
/// ends differ in family, the IPv4 address becomes an IPv4-mapped IPv6 address. `None` if the TLVs do not fit a header.
pub fn write_v2(ends: Option<(SocketAddr, SocketAddr)>, facts: &[Tlv<'_>]) -> Option<Vec<u8>> {
    let mut header = v2::SIGNATURE.to_vec();
    let (command, family, addresses) = match ends.map(of_one_family) {
        Some((source, destination)) => {
            let family = if source.is_ipv4() {
                v2::INET
            } else {
                v2::INET6
            };
            (
                v2::PROXY,
                family << 4 | v2::STREAM,
                both(source, destination),
            )
        }
        None => (v2::LOCAL, v2::UNSPECIFIED, Vec::new()),
    };
    header.extend([command, family, 0, 0]);
    header.extend(addresses);
    for Tlv { kind, value } in facts {
        header.push(*kind);
        header.extend(u16::try_from(value.len()).ok()?.to_be_bytes());
        header.extend(*value);
    }
    header.extend([CRC32C, 0, 4, 0, 0, 0, 0]);
    let length = u16::try_from(header.len() - v2::FIXED).ok()?;
    header[14..16].copy_from_slice(&length.to_be_bytes());
    let checksum = CHECKSUM.checksum(&header).to_be_bytes();
    let at = header.len() - 4;
    header[at..].copy_from_slice(&checksum);
    Some(header)
}

fn of_one_family((source, destination): (SocketAddr, SocketAddr)) -> (SocketAddr, SocketAddr) {
    match source.is_ipv4() == destination.is_ipv4() {
        true => (source, destination),
        false => (mapped(source), mapped(destination)),
    }
}

fn mapped(end: SocketAddr) -> SocketAddr {
    match end.ip() {
        IpAddr::V4(address) => SocketAddr::new(address.to_ipv6_mapped().into(), end.port()),
        IpAddr::V6(_) => end,
    }
}

fn both(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::new();
    for end in [source, destination] {
        match end.ip() {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    for end in [source, destination] {
        bytes.extend(end.port().to_be_bytes());
    }
    bytes
}
