//! Writer of PROXY protocol headers, which upstreams get first. `carry` sends them.
//!
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>, revision of 2026-04-27.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use watm_proxy_header::tlv::{
    self, CLIENT_CERT_CONN, CLIENT_CERT_SESS, CLIENT_SSL, LONGEST_UNIQUE_ID, SSL_ATTRIBUTES,
};
use watm_proxy_header::{Protocol, Tlv, Tlvs, openssl_name, write_v1, write_v2};
use watm_runtime::{Destination, FlowInfo, Network};

use super::values::ProxyHeader;

/// The most bytes of a value, so that readers get a header at once.
const LONGEST_VALUE: usize = 255;

/// The attribute with the TLVs of the client's connection, in hexadecimal. They are forwarded
/// unchanged: an upstream may compare an identifier, or know a type that is unknown here.
const TLVS: &str = "proxy.tlvs";
/// The most bytes of these TLVs.
const LONGEST_TLVS: usize = 4096;

/// Types, each with the attribute of a flow that has its value.
const ATTRIBUTES: [(u8, &str); 3] = [
    (tlv::ALPN, "alpn"),
    (tlv::AUTHORITY, "sni"),
    (tlv::UNIQUE_ID, "proxy.unique-id"),
];

/// Writes the source and the destination of a flow, and in version 2 also the transport's knowledge
/// of TLS, with a checksum. The header is never LOCAL or UNKNOWN: a flow always has a client.
/// Version 1 has no datagrams.
pub(super) fn write(version: ProxyHeader, info: &FlowInfo, network: Network) -> Vec<u8> {
    let ends = ends(info);
    match version {
        ProxyHeader::V1 => write_v1(Some(ends)),
        ProxyHeader::V2 => with_tlvs(ends, info, network),
    }
}

/// Returns the client's address, and the one it connected to. A destination that is a name, of a flow
/// without an underlay, becomes the unspecified address with the name's port.
fn ends(info: &FlowInfo) -> (SocketAddr, SocketAddr) {
    let source = canonical(info.source);
    let arrived = match (&info.destination, &info.underlay) {
        (Destination::Address(address), _) => canonical(*address),
        (_, Some((_, local))) => canonical(*local),
        (Destination::Name(_, port), None) => SocketAddr::new(unspecified(source.ip()), *port),
    };
    (source, arrived)
}

fn canonical(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

/// Returns `0.0.0.0` or `::`, in the family of this address.
fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn with_tlvs(ends: (SocketAddr, SocketAddr), info: &FlowInfo, network: Network) -> Vec<u8> {
    let protocol = match network {
        Network::Tcp => Protocol::Stream,
        Network::Udp => Protocol::Datagram,
    };
    let came = attribute(info, TLVS).filter(|text| text.len() <= 2 * LONGEST_TLVS);
    let came = came.and_then(from_hex).unwrap_or_default();
    let came = Tlvs::new(&came).unwrap_or_default();
    let has_come = |kind: u8| came.value(kind).is_some();
    let own = ATTRIBUTES.iter().filter(|(kind, _)| !has_come(*kind));
    let own: Vec<(u8, String)> = own.filter_map(|known| value(info, known)).collect();
    let ssl = (attribute(info, "tls.version").is_some() && !has_come(tlv::SSL)).then(|| ssl(info));
    // This header has a checksum of its own.
    let came = came.filter(|tlv| tlv.kind != tlv::CRC32C);
    let ssl = ssl.as_deref().map(|value| Tlv {
        kind: tlv::SSL,
        value,
    });
    let tlvs: Vec<Tlv<'_>> = came.chain(own.iter().map(as_tlv)).chain(ssl).collect();
    let header = write_v2(protocol, Some(ends), &tlvs);
    header.expect("4 KiB, and a few values of 255 bytes each, fit a header")
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
    let flags = match (verified, resumed) {
        (None, _) => CLIENT_SSL,
        (Some(_), true) => CLIENT_SSL | CLIENT_CERT_SESS,
        (Some(_), false) => CLIENT_SSL | CLIENT_CERT_CONN | CLIENT_CERT_SESS,
    };
    // Zero means that a certificate came and was verified.
    let failed = u32::from(verified != Some("yes"));
    let facts = SSL_ATTRIBUTES.iter();
    let facts: Vec<(u8, String)> = facts
        .filter(|(kind, _)| *kind != tlv::SSL_CLIENT_CERT)
        .filter_map(|known| value(info, known))
        .collect();
    let ssl = tlv::write_ssl(flags, failed, facts.iter().map(as_tlv));
    ssl.expect("a value has 255 bytes at most")
}

/// Returns the value of a TLV, which is the attribute of this name; `None` if it is too long.
fn value(info: &FlowInfo, (kind, name): &(u8, &str)) -> Option<(u8, String)> {
    let longest = match *kind {
        tlv::UNIQUE_ID => LONGEST_UNIQUE_ID,
        _ => LONGEST_VALUE,
    };
    let value = attribute(info, name)?;
    let value = match *kind {
        tlv::SSL_CIPHER => openssl_name(value),
        _ => value.to_owned(),
    };
    (value.len() <= longest).then_some((*kind, value))
}

fn as_tlv((kind, value): &(u8, String)) -> Tlv<'_> {
    Tlv {
        kind: *kind,
        value: value.as_bytes(),
    }
}

/// Returns the attribute of a flow with this name.
pub(super) fn attribute<'a>(info: &'a FlowInfo, name: &str) -> Option<&'a str> {
    let found = info.attributes.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use watm_proxy_header::{CHECKSUM, INET, INET6};

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
                ("203.0.113.9:1", "[::1]:2", INET6, four_to_six.clone()),
                ("[::1]:1", "203.0.113.9:2", INET6, six_to_four.clone()),
                (
                    "[::ffff:203.0.113.9]:1",
                    "[::1]:2",
                    INET6,
                    four_to_six.clone(),
                ),
                (
                    "203.0.113.9:1",
                    "name:2",
                    INET,
                    vec![203, 0, 113, 9, 0, 0, 0, 0, 0, 1, 0, 2],
                ),
            ] {
                let flow = flow(source, destination, &[]);
                let header = write(ProxyHeader::V2, &flow, network);
                assert_eq!(
                    header[12..14],
                    [0x21, family << 4 | protocol],
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
            // A unique ID of bytes, a namespace, and a type of another program.
            &b"\x05\0\x02\xff\0"[..],
            b"\x30\0\x03ns1",
            b"\xea\0\0",
            // A certificate on this connection, and not in the session; the result of its
            // verification.
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
}
