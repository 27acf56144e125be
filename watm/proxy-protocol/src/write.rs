use std::net::{IpAddr, SocketAddr};

use crate::tlv::{CRC32C, Tlv};
use crate::v2::{self, CHECKSUM};

/// A header of version 1 for a TCP connection; `None`, or ends of two families: `UNKNOWN`.
pub fn write_v1(ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let family = match ends {
        Some((SocketAddr::V4(_), SocketAddr::V4(_))) => "TCP4",
        Some((SocketAddr::V6(_), SocketAddr::V6(_))) => "TCP6",
        _ => return b"PROXY UNKNOWN\r\n".to_vec(),
    };
    let Some((source, destination)) = ends else {
        return Vec::new();
    };
    format!(
        "PROXY {family} {} {} {} {}\r\n",
        source.ip(),
        destination.ip(),
        source.port(),
        destination.port()
    )
    .into_bytes()
}

/// A header of version 2 for a TCP connection, with these facts and a checksum; `None`, or ends
/// of two families: `LOCAL`. `None` if the facts do not fit a header.
pub fn write_v2(ends: Option<(SocketAddr, SocketAddr)>, facts: &[Tlv<'_>]) -> Option<Vec<u8>> {
    let mut header = v2::SIGNATURE.to_vec();
    let (command, family, addresses) = match ends {
        Some((source, destination)) if source.is_ipv4() == destination.is_ipv4() => {
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
        _ => (v2::LOCAL, v2::UNSPECIFIED, Vec::new()),
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
