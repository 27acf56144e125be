//! Encoding of headers.

use std::net::{IpAddr, SocketAddr};

use crate::tlv::{CRC32C, Tlv};
use crate::{
    CHECKSUM, DATAGRAM, FIXED, INET, INET6, LOCAL, PROXY, Protocol, SIGNATURE, STREAM, UNSPECIFIED,
};

/// Encodes a header of version 1 for a TCP connection, from its source and destination. `None`: `UNKNOWN`. If the ends
/// differ in family, the IPv4 address becomes an IPv4-mapped IPv6 address.
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

/// Encodes a header of version 2, with these TLVs and a checksum. Without ends: `LOCAL`. If the ends differ in family,
/// the IPv4 address becomes an IPv4-mapped IPv6 address. `None` if the TLVs do not fit a header.
pub fn write_v2(
    protocol: Protocol,
    ends: Option<(SocketAddr, SocketAddr)>,
    tlvs: &[Tlv<'_>],
) -> Option<Vec<u8>> {
    let protocol = match protocol {
        Protocol::Stream => STREAM,
        Protocol::Datagram => DATAGRAM,
    };
    let ends = ends.map(of_one_family);
    let (command, family) = match ends {
        Some((source, _)) if source.is_ipv4() => (PROXY, INET << 4 | protocol),
        Some(_) => (PROXY, INET6 << 4 | protocol),
        None => (LOCAL, UNSPECIFIED),
    };
    let mut header = SIGNATURE.to_vec();
    // The length follows once it is known.
    header.extend([command, family, 0, 0]);
    if let Some((source, destination)) = ends {
        for end in [source, destination] {
            match end.ip() {
                IpAddr::V4(address) => header.extend(address.octets()),
                IpAddr::V6(address) => header.extend(address.octets()),
            }
        }
        for end in [source, destination] {
            header.extend(end.port().to_be_bytes());
        }
    }
    let checksum = Tlv {
        kind: CRC32C,
        value: &[0; 4],
    };
    for tlv in tlvs.iter().chain([&checksum]) {
        tlv.write(&mut header)?;
    }
    let length = u16::try_from(header.len() - FIXED).ok()?;
    header[FIXED - 2..FIXED].copy_from_slice(&length.to_be_bytes());
    let checksum = CHECKSUM.checksum(&header).to_be_bytes();
    let at = header.len() - checksum.len();
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
