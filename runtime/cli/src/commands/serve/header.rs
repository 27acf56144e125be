//! Writer of PROXY protocol headers, which upstreams get first. `carry` sends them.
//!
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>, revision of 2026-04-27.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crc::{CRC_32_ISCSI, Crc};
use watm_runtime::{Destination, FlowInfo, Network};

use super::values::ProxyHeader;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

const VERSION_2_PROXY: u8 = 0x21;
const IPV4: u8 = 0x10;
const IPV6: u8 = 0x20;

/// The length of the header before the addresses, in bytes.
const FIXED: usize = 16;

/// The most bytes of a value, so that readers get a header at once, and of a unique id (section
/// 2.2.5).
const LONGEST_VALUE: usize = 255;
const LONGEST_UNIQUE_ID: usize = 128;

/// The attribute with the TLVs of the client's connection, in hexadecimal. They are forwarded
/// unchanged: an upstream may compare an identifier, or know a type that is unknown here.
const TLVS: &str = "proxy.tlvs";
/// The most bytes of these TLVs.
const LONGEST_TLVS: usize = 4096;

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
    (SSL_CIPHER, "tls.cipher"),
    (0x24, "tls.signature-algorithm"),
    (0x25, "tls.key-algorithm"),
    (0x26, "tls.group"),
    (0x27, "tls.signature-scheme"),
];

const SSL_CIPHER: u8 = 0x23;

/// Flags of TLS: it was used; a certificate came in this connection; one came in this session.
const CLIENT_SSL: u8 = 1;
const CERTIFICATE_ON_CONNECTION: u8 = 2;
const CERTIFICATE_IN_SESSION: u8 = 4;

/// Writes the source and the destination of a flow, and in version 2 also the transport's knowledge
/// of TLS, with a checksum. The header is never LOCAL or UNKNOWN: a flow always has a client.
/// Version 1 has no datagrams.
pub(super) fn write(version: ProxyHeader, info: &FlowInfo, network: Network) -> Vec<u8> {
    let ends = ends(info);
    match version {
        ProxyHeader::V1 => write_v1(ends),
        ProxyHeader::V2 => write_v2(ends, info, network),
    }
}

/// Returns the client's address, and the one it connected to, both of one family. If the families
/// differ, the IPv4 address becomes an IPv4-mapped IPv6 address, as HAProxy writes it. A
/// destination that is a name, of a flow without an underlay, becomes the unspecified address with
/// the name's port.
fn ends(info: &FlowInfo) -> (SocketAddr, SocketAddr) {
    let source = canonical(info.source);
    let arrived = match (&info.destination, &info.underlay) {
        (Destination::Address(address), _) => canonical(*address),
        (_, Some((_, local))) => canonical(*local),
        (Destination::Name(_, port), None) => SocketAddr::new(unspecified(source.ip()), *port),
    };
    match source.is_ipv4() == arrived.is_ipv4() {
        true => (source, arrived),
        false => (mapped(source), mapped(arrived)),
    }
}

fn canonical(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

fn mapped(end: SocketAddr) -> SocketAddr {
    match end.ip() {
        IpAddr::V4(address) => SocketAddr::new(address.to_ipv6_mapped().into(), end.port()),
        IpAddr::V6(_) => end,
    }
}

/// Returns `0.0.0.0` or `::`, in the family of this address.
fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn write_v1((source, arrived): (SocketAddr, SocketAddr)) -> Vec<u8> {
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (source.ip(), arrived.ip());
    let (from_port, to_port) = (source.port(), arrived.port());
    format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
}

fn write_v2(ends: (SocketAddr, SocketAddr), info: &FlowInfo, network: Network) -> Vec<u8> {
    let protocol = match network {
        Network::Tcp => 1,
        Network::Udp => 2,
    };
    let (source, arrived) = ends;
    let family = if source.is_ipv4() { IPV4 } else { IPV6 };
    let mut header = SIGNATURE.to_vec();
    // The length follows once it is known.
    header.extend([VERSION_2_PROXY, family | protocol, 0, 0]);
    for end in [source, arrived] {
        match end.ip() {
            IpAddr::V4(address) => header.extend(address.octets()),
            IpAddr::V6(address) => header.extend(address.octets()),
        }
    }
    for end in [source, arrived] {
        header.extend(end.port().to_be_bytes());
    }
    let came = tlvs(info);
    let has_come = |kind: u8| came.iter().any(|(known, _)| *known == kind);
    for (kind, value) in &came {
        add(&mut header, *kind, value);
    }
    let own = VALUES.iter().filter(|(kind, _)| !has_come(*kind));
    add_all(&mut header, own, info);
    if attribute(info, "tls.version").is_some() && !has_come(SSL) {
        add(&mut header, SSL, &ssl(info));
    }
    add(&mut header, CRC32C, &[0; 4]);
    // 4 KiB and a few values of 255 bytes each: it fits.
    let length = u16::try_from(header.len() - FIXED).unwrap_or(u16::MAX);
    header[FIXED - 2..FIXED].copy_from_slice(&length.to_be_bytes());
    let checksum = CHECKSUM.checksum(&header).to_be_bytes();
    let at = header.len() - checksum.len();
    header[at..].copy_from_slice(&checksum);
    header
}

/// Parses the TLVs that a flow came with. Returns none if they are invalid.
fn tlvs(info: &FlowInfo) -> Vec<(u8, Vec<u8>)> {
    let text = attribute(info, TLVS).filter(|text| text.len() <= 2 * LONGEST_TLVS);
    let bytes = text.and_then(from_hex).unwrap_or_default();
    let (mut all, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((&[kind, high, low], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some((value, after)) = after.split_at_checked(length) else {
            return Vec::new();
        };
        // This header has a checksum of its own.
        if kind != CRC32C {
            all.push((kind, value.to_vec()));
        }
        rest = after;
    }
    match rest.is_empty() {
        true => all,
        false => Vec::new(),
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

fn ssl(info: &FlowInfo) -> Vec<u8> {
    let verified = attribute(info, "tls.verified");
    // A resumed session has the certificate of the connection that it began with.
    let resumed = attribute(info, "tls.resumed") == Some("yes");
    let mut value = vec![match (verified, resumed) {
        (None, _) => CLIENT_SSL,
        (Some(_), true) => CLIENT_SSL | CERTIFICATE_IN_SESSION,
        (Some(_), false) => CLIENT_SSL | CERTIFICATE_ON_CONNECTION | CERTIFICATE_IN_SESSION,
    }];
    // Zero means that a certificate came and was verified.
    let failed = u32::from(verified != Some("yes"));
    value.extend(failed.to_be_bytes());
    add_all(&mut value, &SSL_VALUES, info);
    value
}

fn add_all<'a>(
    header: &mut Vec<u8>,
    values: impl IntoIterator<Item = &'a (u8, &'a str)>,
    info: &FlowInfo,
) {
    for (kind, name) in values {
        let longest = match *kind {
            UNIQUE_ID => LONGEST_UNIQUE_ID,
            _ => LONGEST_VALUE,
        };
        let value = attribute(info, name).map(|value| match *kind {
            SSL_CIPHER => openssl_name(value),
            _ => value.to_owned(),
        });
        if let Some(value) = value.filter(|value| value.len() <= longest) {
            add(header, *kind, value.as_bytes());
        }
    }
}

/// Returns OpenSSL's name of a cipher, as in the specification's example and as HAProxy sends it.
/// OpenSSL also uses IANA's names for ciphers of TLS 1.3.
fn openssl_name(iana: &str) -> String {
    let Some((exchange, cipher)) = iana
        .strip_prefix("TLS_")
        .and_then(|name| name.split_once("_WITH_"))
    else {
        return iana.to_owned();
    };
    format!("{exchange}-{cipher}")
        .replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
        .replace("AES_", "AES")
        .replace('_', "-")
}

fn add(header: &mut Vec<u8>, kind: u8, value: &[u8]) {
    header.push(kind);
    // The callers' values are short.
    header.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    header.extend(value);
}

/// Returns the attribute of a flow with this name.
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
            (
                "203.0.113.9:1",
                "[::1]:2",
                "PROXY TCP6 ::ffff:203.0.113.9 ::1 1 2\r\n",
            ),
            (
                "[2001:db8::1]:1",
                "[::ffff:10.0.0.2]:2",
                "PROXY TCP6 2001:db8::1 ::ffff:10.0.0.2 1 2\r\n",
            ),
            (
                "10.0.0.1:1",
                "name:2",
                "PROXY TCP4 10.0.0.1 0.0.0.0 1 2\r\n",
            ),
            ("[::1]:1", "name:2", "PROXY TCP6 ::1 :: 1 2\r\n"),
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
        // A certificate of the session, and not of the connection.
        let resumed = [&attributes[2..4], &[("tls.resumed", "yes")]].concat();
        let flow = flow("10.0.0.1:1", "10.0.0.2:2", &resumed);
        let header = write(ProxyHeader::V2, &flow, Network::Tcp);
        assert_eq!(&header[28..36], b"\x20\0\x0f\x05\0\0\0\0");
    }

    #[test]
    fn a_client_is_named_whatever_the_family_of_its_destination() {
        let mapped = [&[0; 10][..], &[0xff, 0xff, 203, 0, 113, 9]].concat();
        let one = [&[0; 15][..], &[1]].concat();
        let four_to_six = [&mapped[..], &one, &[0, 1, 0, 2]].concat();
        let six_to_four = [&one[..], &mapped, &[0, 1, 0, 2]].concat();
        for (network, protocol) in [(Network::Tcp, 1), (Network::Udp, 2)] {
            for (source, destination, family, expected) in [
                ("203.0.113.9:1", "[::1]:2", IPV6, four_to_six.clone()),
                ("[::1]:1", "203.0.113.9:2", IPV6, six_to_four.clone()),
                (
                    "[::ffff:203.0.113.9]:1",
                    "[::1]:2",
                    IPV6,
                    four_to_six.clone(),
                ),
                (
                    "203.0.113.9:1",
                    "name:2",
                    IPV4,
                    vec![203, 0, 113, 9, 0, 0, 0, 0, 0, 1, 0, 2],
                ),
            ] {
                let flow = flow(source, destination, &[]);
                let header = write(ProxyHeader::V2, &flow, network);
                assert_eq!(
                    header[12..14],
                    [0x21, family | protocol],
                    "{source} {destination}"
                );
                assert_eq!(
                    header[16..16 + expected.len()],
                    expected,
                    "{source} {destination}"
                );
            }
        }
    }

    #[test]
    fn tlvs_that_came_go_on_as_they_came() {
        let came = [
            // An identifier of bytes, a namespace, and one of whoever made it.
            &b"\x05\0\x02\xff\0"[..],
            b"\x30\0\x03ns1",
            b"\xea\0\0",
            // A certificate on this connection, and not in the session; why it was not verified.
            b"\x20\0\x05\x03\0\0\0\x13",
        ]
        .concat();
        let tlvs: String = came.iter().map(|byte| format!("{byte:02x}")).collect();
        let of_flow = |tlvs: &str| {
            let attributes = [
                ("proxy.unique-id", "ff00"),
                ("sni", "a.example"),
                ("tls.version", "TLSv1.3"),
                ("proxy.tlvs", tlvs),
            ];
            let flow = flow("10.0.0.1:1", "10.0.0.2:2", &attributes);
            let header = write(ProxyHeader::V2, &flow, Network::Tcp);
            header[28..header.len() - 7].to_vec()
        };
        assert_eq!(of_flow(&tlvs), [&came[..], b"\x02\0\x09a.example"].concat());
        // A checksum is of the header that it came in.
        let checked = format!("{tlvs}03000401020304");
        assert_eq!(of_flow(&checked), of_flow(&tlvs));
        let own = of_flow("");
        assert!(own.starts_with(b"\x02\0\x09a.example\x05\0\x04ff00\x20"));
        let long = format!("ea2000{}", "00".repeat(0x2000));
        for unsound in [&tlvs[..9], &tlvs[..8], "zz", &long] {
            assert_eq!(of_flow(unsound), own, "{unsound}");
        }
    }

    #[test]
    fn ciphers_have_openssls_names() {
        for (iana, openssl) in [
            (
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "ECDHE-RSA-AES128-GCM-SHA256",
            ),
            (
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
                "ECDHE-ECDSA-CHACHA20-POLY1305",
            ),
            ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
        ] {
            assert_eq!(openssl_name(iana), openssl);
        }
    }
}
