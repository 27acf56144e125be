//! The transport: the facts reported to the application, and the trusted senders.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::v2;
use watm_core::{Destination, ErrorCode, FlowInfo};
use watm_proxy_protocol::{FIELDS, Header, Parsed, ProxyCodec, ProxyProtocol, Rules, Tlv, parse};
use watm_stream::{Buffer, Codec, StreamTransport};

const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];

fn configured(config: &str) -> ProxyProtocol {
    ProxyProtocol::configure(config.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The description of a flow without a header.
fn plain_info() -> FlowInfo {
    FlowInfo {
        source: address("10.0.0.9:1234"),
        destination: address("10.0.0.1:80").into(),
        peer: None,
        underlay: Some((address("10.0.0.9:1234"), address("10.0.0.1:80"))),
        attributes: Vec::new(),
    }
}

/// The bytes that come out of `parts`, and the description of the flow; or the error of a refused
/// connection.
fn accepted(config: &str, parts: &[&[u8]]) -> Result<(Vec<u8>, FlowInfo), ErrorCode> {
    let mut codec = configured(config).accept(Some(address("10.0.0.9:1234")))?;
    let (mut from, mut application, mut network) = <(Buffer, Buffer, Buffer)>::default();
    for part in parts {
        from.extend(part);
        codec.inward(&mut from, &mut application, &mut network)?;
    }
    assert!(network.is_empty());
    assert!(codec.established(), "no header yet");
    let mut info = plain_info();
    codec.describe(&mut info);
    Ok((application.bytes().to_vec(), info))
}

const ANY: &str = "from = \"any\"";

#[test]
fn the_flow_is_the_clients_and_the_rest_is_its() {
    let header = v2(0x21, 0x11, &V4);
    let whole = [&header[..], b"hello"].concat();
    let pieces: Vec<&[u8]> = whole.chunks(1).collect();
    for parts in [&[&whole[..]][..], &pieces] {
        let (data, info) = accepted(ANY, parts).unwrap();
        assert_eq!(data, b"hello");
        assert_eq!(info.source, address("192.0.2.1:56324"));
        assert_eq!(
            info.destination,
            Destination::Address(address("198.51.100.2:443"))
        );
        assert_eq!(info.underlay, plain_info().underlay);
    }
    let (data, info) = accepted(ANY, &[b"PROXY TCP6 ::1 ::2 1 2\r\nGET"]).unwrap();
    assert_eq!(data, b"GET");
    assert_eq!(info.source, address("[::1]:1"));
}

#[test]
fn local_connections_are_the_senders_own() {
    for header in [v2(0x20, 0, b""), b"PROXY UNKNOWN\r\n".to_vec()] {
        let (data, info) = accepted(ANY, &[&header, b"x"]).unwrap();
        assert_eq!((data, info), (b"x".to_vec(), plain_info()));
    }
}

#[test]
fn facts_become_attributes() {
    let facts: &[&[u8]] = &[
        &V4,
        b"\x01\0\x02h2",
        b"\x02\0\x0bexample.com",
        b"\x05\0\x02\xff\0",
        b"\xe1\0\x01A",
        b"\x20\0\x11\x03\0\0\0\0\x21\0\x03v13\x22\0\x03bob",
    ];
    let (_, info) = accepted(ANY, &[&v2(0x21, 0x11, &facts.concat())]).unwrap();
    // The TLVs as received, for forwarding.
    let raw = facts[1..].concat();
    let raw: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = [
        ("alpn", "h2"),
        ("sni", "example.com"),
        ("proxy.unique-id", "ff00"),
        ("proxy.tlv-0xe1", "A"),
        ("tls.verified", "yes"),
        ("tls.version", "v13"),
        ("tls.client-cn", "bob"),
        ("proxy.tlvs", &raw),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(info.attributes, expected);
}

#[test]
fn a_connection_is_established_once_its_header_is_complete() {
    let header = v2(0x21, 0x11, &[&V4[..], b"\x01\0\x02h2"].concat());
    let mut codec = configured(ANY).accept(None).unwrap();
    let (mut from, mut application, mut network) = <(Buffer, Buffer, Buffer)>::default();
    for (length, byte) in header.chunks(1).enumerate() {
        assert!(!codec.established(), "after {length} bytes");
        assert_eq!(codec.tlvs().count(), 0, "after {length} bytes");
        from.extend(byte);
        codec
            .inward(&mut from, &mut application, &mut network)
            .unwrap();
    }
    assert!(codec.established());
    let alpn = Tlv {
        kind: 0x01,
        value: b"h2",
    };
    assert_eq!(codec.tlvs().collect::<Vec<_>>(), [alpn]);
}

#[test]
fn local_connections_can_be_refused() {
    for header in [v2(0x20, 0, b""), b"PROXY UNKNOWN\r\n".to_vec()] {
        let refusing = "from = \"any\"\nlocal = \"refuse\"";
        let error = accepted(refusing, &[&header]).unwrap_err();
        assert!(error.to_string().contains("LOCAL or UNKNOWN"), "{error}");
    }
}

#[test]
fn a_connection_goes_where_the_application_or_the_configuration_says() {
    let [told, set] = ["192.0.2.7:7", "192.0.2.8:8"].map(|text| address(text).into());
    let remote = configured("remote = \"192.0.2.8:8\"");
    for (transport, destination, expected) in [
        (&remote, Some(&told), Some(&told)),
        (&remote, None, Some(&set)),
        (&configured(""), Some(&told), Some(&told)),
        (&configured(""), None, None),
    ] {
        let outer: Option<Destination> = transport.outer(destination);
        assert_eq!(outer.as_ref(), expected);
    }
}

#[test]
fn what_has_no_header_is_refused() {
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"\0", b"PROXY TCP4 1.2.3.4\r\n"] {
        assert!(matches!(accepted(ANY, &[bytes]), Err(ErrorCode::Other(_))));
    }
    let error = accepted(ANY, &[b"GET / HTTP/1.1\r\n"]).unwrap_err();
    let reason = "it does not begin with a PROXY protocol header";
    assert!(error.to_string().contains(reason), "{error}");
    let error = accepted(ANY, &[&v2(0x21, 0x12, &V4)]).unwrap_err();
    assert!(error.to_string().contains("datagram"));
}

#[test]
fn only_those_in_from_are_believed() {
    for (from, remote, admitted) in [
        ("from = \"10.0.0.9\"", Some("10.0.0.9:1"), true),
        ("from = \"10.0.0.9\"", Some("10.0.0.8:1"), false),
        ("from = \"10.0.0.9\"", Some("[::ffff:10.0.0.9]:1"), true),
        ("from = \"::ffff:10.0.0.9\"", Some("10.0.0.9:1"), true),
        (
            "from = \"192.0.2.0/24, 10.0.0.0/8\"",
            Some("10.255.0.1:1"),
            true,
        ),
        ("from = \"10.0.0.0/8\"", Some("11.0.0.1:1"), false),
        ("from = \"0.0.0.0/0\"", Some("11.0.0.1:1"), true),
        ("from = \"0.0.0.0/0\"", Some("[::1]:1"), false),
        ("from = \"2001:db8::/32\"", Some("[2001:db8:1::1]:1"), true),
        ("from = \"2001:db8::/32\"", Some("[2001:db9::1]:1"), false),
        ("from = \"::/0\"", Some("[2001:db9::1]:1"), true),
        ("from = \"10.0.0.0/8\"", None, false),
        ("from = \"any\"", None, true),
        ("", Some("10.0.0.9:1"), false),
        ("", None, false),
    ] {
        let codec = configured(from).accept(remote.map(address));
        assert_eq!(codec.is_ok(), admitted, "{from} {remote:?}");
    }
}

#[test]
fn a_dialled_connection_begins_with_a_header() {
    let ends = "source = \"192.0.2.1:5\"\ndestination = \"198.51.100.2:6\"";
    for (config, expected) in [
        ("send = \"v1\"".to_owned(), None),
        ("".to_owned(), None),
        (format!("send = \"v1\"\n{ends}"), Some("192.0.2.1:5")),
        (format!("send = \"v2\"\n{ends}"), Some("192.0.2.1:5")),
    ] {
        let mut codec: ProxyCodec = configured(&config).dial(None).unwrap();
        let (mut from, mut network) = <(Buffer, Buffer)>::default();
        codec.begin(&mut network);
        assert!(codec.established());
        from.extend(b"hello");
        codec.outward(&mut from, &mut network).unwrap();
        let Ok(Parsed::Complete(length, header)) = parse(network.bytes(), &Rules::default()) else {
            panic!("no header");
        };
        assert_eq!(&network.bytes()[length..], b"hello");
        match header {
            Header::Local => assert_eq!(expected, None),
            Header::Proxied(proxied) => {
                let source = expected.expect("no addresses were given");
                assert!(format!("{:?}", proxied.addresses).contains(source));
            }
        }
    }
}

#[test]
fn the_time_limit_of_a_header_is_a_setting() {
    for (config, seconds) in [(ANY, 5), ("from = \"any\"\nheader-time = \"9\"", 9)] {
        let limit = configured(config).limits().handshake;
        assert_eq!(limit, Duration::from_secs(seconds), "{config}");
    }
}

#[test]
fn a_wrong_configuration_names_its_field() {
    let cases = [
        ("from = \"10.0.0.0/33\"", "from"),
        ("from = \"somebody\"", "from"),
        ("from = \"\"", "from"),
        ("from = \"10.0.0.1,\"", "from"),
        ("accept = \"v3\"", "accept"),
        ("longest = \"15\"", "longest"),
        ("longest = \"4097\"", "longest"),
        ("unspecified = \"maybe\"", "unspecified"),
        ("local = \"maybe\"", "local"),
        ("header-time = \"2\"", "header-time"),
        ("header-time = \"x\"", "header-time"),
        ("datagrams = \"some\"", "datagrams"),
        ("datagram-idle = \"0\"", "datagram-idle"),
        ("datagram-flows = \"0\"", "datagram-flows"),
        ("send = \"v3\"", "send"),
        ("source = \"192.0.2.1\"", "source"),
        ("source = \"192.0.2.1:1\"", "destination"),
        ("destination = \"192.0.2.1:1\"", "source"),
        (
            "source = \"192.0.2.1:1\"\ndestination = \"[::1]:1\"",
            "destination",
        ),
        ("remote = \"nowhere\"", "remote"),
        ("form = \"any\"", "form"),
    ];
    for (field, _) in FIELDS {
        let has_case = cases.iter().any(|(_, name)| *name == field.name);
        assert!(has_case, "nothing is wrong for {}", field.name);
    }
    for (config, field) in cases {
        let error = ProxyProtocol::configure(config.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(field), "{config}: {error}");
    }
}
