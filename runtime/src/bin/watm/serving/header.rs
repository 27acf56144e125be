//! The header of the PROXY protocol that an upstream gets first.
//!
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>, revision of 2026-04-27.

use std::net::{IpAddr, SocketAddr};

use crc::{CRC_32_ISCSI, Crc};
use watm_runtime::{Destination, FlowInfo, Network};

use super::values::ProxyHeader;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

const VERSION_2_PROXY: u8 = 0x21;
const VERSION_2_LOCAL: u8 = 0x20;
const UNSPECIFIED: u8 = 0;
const IPV4: u8 = 0x10;
const IPV6: u8 = 0x20;

/// Bytes before the addresses.
const FIXED: usize = 16;

/// The most that a value may have, so that a header fits into one look of whoever reads it, and
/// the most of a unique id (section 2.2.5).
const LONGEST_VALUE: usize = 255;
const LONGEST_UNIQUE_ID: usize = 128;

/// Types, each with the attribute of a flow that has its value.
const VALUES: [(u8, &str); 3] = [
    (0x01, "alpn"),
    (0x02, "sni"),
    (UNIQUE_ID, "proxy.unique-id"),
];
const UNIQUE_ID: u8 = 0x05;
const CRC32C: u8 = 0x03;
const SSL: u8 = 0x20;
const SSL_VALUES: [(u8, &str); 7] = [
    (0x21, "tls.version"),
    (0x22, "tls.client-cn"),
    (0x23, "tls.cipher"),
    (0x24, "tls.signature-algorithm"),
    (0x25, "tls.key-algorithm"),
    (0x26, "tls.group"),
    (0x27, "tls.signature-scheme"),
];

/// Of TLS: it was used; a certificate came in this connection; one came in this session.
const CLIENT_SSL: u8 = 1;
const CERTIFICATE_ON_CONNECTION: u8 = 2;
const CERTIFICATE_IN_SESSION: u8 = 4;

/// What is said of a flow: where it comes from and where it arrived, and in version 2 also what the
/// transport found out about TLS, with a checksum. A flow without addresses of one family is of
/// nobody that could be named. Version 1 has no datagrams.
pub(super) fn write(version: ProxyHeader, info: &FlowInfo, network: Network) -> Vec<u8> {
    let ends = ends(info);
    match version {
        ProxyHeader::V1 => write_v1(ends),
        ProxyHeader::V2 => write_v2(ends, info, network),
    }
}

fn ends(info: &FlowInfo) -> Option<(SocketAddr, SocketAddr)> {
    let arrived = match (&info.destination, &info.underlay) {
        (Destination::Address(address), _) => *address,
        (_, Some((_, local))) => *local,
        _ => return None,
    };
    let canonical = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
    let (source, arrived) = (canonical(info.source), canonical(arrived));
    (source.is_ipv4() == arrived.is_ipv4()).then_some((source, arrived))
}

fn write_v1(ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let Some((source, arrived)) = ends else {
        return b"PROXY UNKNOWN\r\n".to_vec();
    };
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), arrived.ip());
    let (from_port, to_port) = (source.port(), arrived.port());
    format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
}

fn write_v2(ends: Option<(SocketAddr, SocketAddr)>, info: &FlowInfo, network: Network) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    let protocol = match network {
        Network::Tcp => 1,
        Network::Udp => 2,
    };
    header.extend(match ends {
        Some((source, _)) if source.is_ipv4() => [VERSION_2_PROXY, IPV4 | protocol],
        Some(_) => [VERSION_2_PROXY, IPV6 | protocol],
        None => [VERSION_2_LOCAL, UNSPECIFIED],
    });
    // The length comes when it is known.
    header.extend([0; 2]);
    if let Some((source, arrived)) = ends {
        for end in [source, arrived] {
            match end.ip() {
                IpAddr::V4(address) => header.extend(address.octets()),
                IpAddr::V6(address) => header.extend(address.octets()),
            }
        }
        for end in [source, arrived] {
            header.extend(end.port().to_be_bytes());
        }
    }
    add_all(&mut header, &VALUES, info);
    if attribute(info, "tls.version").is_some() {
        add(&mut header, SSL, &ssl(info));
    }
    add(&mut header, CRC32C, &[0; 4]);
    // A few values of 255 bytes each: it fits.
    let length = u16::try_from(header.len() - FIXED).unwrap_or(u16::MAX);
    header[FIXED - 2..FIXED].copy_from_slice(&length.to_be_bytes());
    let checksum = CHECKSUM.checksum(&header).to_be_bytes();
    let at = header.len() - checksum.len();
    header[at..].copy_from_slice(&checksum);
    header
}

fn ssl(info: &FlowInfo) -> Vec<u8> {
    let verified = attribute(info, "tls.verified");
    // A session that is resumed has the certificate of the connection that it began with.
    let resumed = attribute(info, "tls.resumed") == Some("yes");
    let mut value = vec![match (verified, resumed) {
        (None, _) => CLIENT_SSL,
        (Some(_), true) => CLIENT_SSL | CERTIFICATE_IN_SESSION,
        (Some(_), false) => CLIENT_SSL | CERTIFICATE_ON_CONNECTION | CERTIFICATE_IN_SESSION,
    }];
    // Zero: a certificate came and was verified.
    let failed = u32::from(verified != Some("yes"));
    value.extend(failed.to_be_bytes());
    add_all(&mut value, &SSL_VALUES, info);
    value
}

fn add_all(header: &mut Vec<u8>, values: &[(u8, &str)], info: &FlowInfo) {
    for (kind, name) in values {
        let longest = match *kind {
            UNIQUE_ID => LONGEST_UNIQUE_ID,
            _ => LONGEST_VALUE,
        };
        let value = attribute(info, name).map(str::as_bytes);
        if let Some(value) = value.filter(|value| value.len() <= longest) {
            add(header, *kind, value);
        }
    }
}

fn add(header: &mut Vec<u8>, kind: u8, value: &[u8]) {
    header.push(kind);
    // The callers' values are short.
    header.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    header.extend(value);
}

/// What a transport says of a flow under this name.
pub(super) fn attribute<'a>(info: &'a FlowInfo, name: &str) -> Option<&'a str> {
    let found = info.attributes.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(source: &str, destination: &str, attributes: &[(&str, &str)]) -> FlowInfo {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        FlowInfo {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("a destination"),
            peer: None,
            underlay: None,
            attributes: attributes.iter().map(owned).collect(),
        }
    }

    #[test]
    fn version_1_is_a_line_of_text() {
        for (source, destination, expected) in [
            (
                "203.0.113.7:4444",
                "192.0.2.1:443",
                "PROXY TCP4 203.0.113.7 192.0.2.1 4444 443\r\n",
            ),
            (
                "[2001:db8::1]:1",
                "[::1]:2",
                "PROXY TCP6 2001:db8::1 ::1 1 2\r\n",
            ),
            (
                "[::ffff:10.0.0.1]:1",
                "10.0.0.2:2",
                "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
            ),
            ("10.0.0.1:1", "[::1]:2", "PROXY UNKNOWN\r\n"),
            ("10.0.0.1:1", "name:2", "PROXY UNKNOWN\r\n"),
        ] {
            let written = write(
                ProxyHeader::V1,
                &flow(source, destination, &[]),
                Network::Tcp,
            );
            assert_eq!(String::from_utf8(written).expect("text"), expected);
        }
    }

    #[test]
    fn version_2_has_addresses_facts_of_tls_and_a_checksum() {
        let attributes = [
            ("alpn", "h2"),
            ("sni", "example.com"),
            ("tls.version", "TLSv1.3"),
            ("tls.verified", "yes"),
            ("other", "thing"),
        ];
        let header = write(
            ProxyHeader::V2,
            &flow("10.0.0.1:258", "10.0.0.2:772", &attributes),
            Network::Tcp,
        );
        assert_eq!(&header[..14], b"\r\n\r\n\0\r\nQUIT\n\x21\x11");
        assert_eq!(
            usize::from(u16::from_be_bytes([header[14], header[15]])),
            header.len() - 16
        );
        let mut expected = vec![10, 0, 0, 1, 10, 0, 0, 2, 1, 2, 3, 4];
        expected.extend(b"\x01\0\x02h2\x02\0\x0bexample.com");
        expected.extend(b"\x20\0\x0f\x07\0\0\0\0\x21\0\x07TLSv1.3");
        expected.extend(b"\x03\0\x04");
        let (before, checksum) = header.split_at(header.len() - 4);
        assert_eq!(&before[16..], expected);
        let mut zeroed = before.to_vec();
        zeroed.extend([0; 4]);
        assert_eq!(checksum, CHECKSUM.checksum(&zeroed).to_be_bytes());
        // RFC 3720, B.4: the same checksum as iSCSI has.
        assert_eq!(CHECKSUM.checksum(&[0; 32]), 0x8a91_36aa);
        for network in [Network::Tcp, Network::Udp] {
            let local = flow("10.0.0.1:1", "name:2", &[]);
            let local = write(ProxyHeader::V2, &local, network);
            assert_eq!(&local[12..19], b"\x20\0\0\x07\x03\0\x04");
        }
        for (source, destination, expected) in [
            ("10.0.0.1:1", "10.0.0.2:2", 0x12),
            ("[::1]:1", "[::2]:2", 0x22),
        ] {
            let flow = flow(source, destination, &[]);
            let datagram = write(ProxyHeader::V2, &flow, Network::Udp);
            assert_eq!(datagram[12..14], [0x21, expected]);
        }
        // A certificate of the session, and not of the connection.
        let resumed = [&attributes[2..4], &[("tls.resumed", "yes")]].concat();
        let flow = flow("10.0.0.1:1", "10.0.0.2:2", &resumed);
        let header = write(ProxyHeader::V2, &flow, Network::Tcp);
        assert_eq!(&header[28..36], b"\x20\0\x0f\x05\0\0\0\0");
    }
}
