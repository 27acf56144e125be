//! The PROXY protocol, before TLS and before the decrypted data.

mod support;

use std::net::SocketAddr;

use support::{Authority, Two, client, quote, server};
use watm_proxy_header::{Protocol, Tlv, write_v1, write_v2};
use watm_proxy_protocol::{Addresses, Header, Parsed, Rules, parse};
use watm_stream::Codec;

fn ends() -> Option<(SocketAddr, SocketAddr)> {
    Some((
        "198.51.100.1:1000".parse().unwrap(),
        "198.51.100.2:443".parse().unwrap(),
    ))
}

#[test]
fn who_a_client_is_may_come_first() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let server = server(&pair, "\"proxy-in\": {\"from\": \"192.0.2.0/24\"}");
    for header in [
        write_v1(ends()),
        write_v2(Protocol::Stream, ends(), &[]).unwrap(),
    ] {
        for piece in [1, 1 << 16] {
            let mut two = Two::new(&client(&authority, ""), &server, "example.com");
            two.piece = piece;
            let mut hello = header.clone();
            hello.extend(two.client.said());
            hello.chunks(piece).for_each(|bytes| two.server.hear(bytes));
            two.talk();
            assert_eq!(two.server.failure, None);
            let info = two.server.info();
            assert_eq!(info.source, ends().unwrap().0);
            assert_eq!(info.destination, ends().unwrap().1.into());
            assert_eq!(two.server.attribute("sni").as_deref(), Some("example.com"));
        }
    }
}

#[test]
fn the_application_is_told_first() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let alice = authority.sign(&["alice.example"], "alice");
    let roots = quote(&authority.pem());
    let server = server(&pair, &format!(
        "\"alpn\": [\"h2\"], \"proxy-out\": {{\"version\": \"v2\", \"certificate\": true, \"unique-id\": true}},
         \"clients\": {{\"certificates\": \"required\", \"roots\": {roots}}}"
    ));
    let shown = format!(
        "\"alpn\": [\"h2\"], \"chain\": {}, \"key\": {}",
        quote(&alice.chain),
        quote(&alice.key)
    );
    let two = Two::met(&client(&authority, &shown), &server, "example.com");
    let header = two.server.codec.introduce(ends());
    let rules = Rules {
        longest: 4096,
        ..Rules::default()
    };
    let Ok(Parsed::Complete(length, Header::Proxied(proxied))) = parse(&header, &rules) else {
        panic!("no header: {header:?}");
    };
    assert_eq!(length, header.len());
    let (source, destination) = ends().unwrap();
    assert_eq!(
        proxied.addresses,
        Addresses::Inet {
            source,
            destination
        }
    );
    let tlvs: Vec<Tlv<'_>> = proxied.tlvs.collect();
    let value = |kind: u8| {
        tlvs.iter()
            .find(|tlv| tlv.kind == kind)
            .map(|tlv| tlv.value)
    };
    assert_eq!(value(0x01), Some(&b"h2"[..]));
    assert_eq!(value(0x02), Some(&b"example.com"[..]));
    assert_eq!(value(0x05).unwrap().len(), 32);
    assert!(value(0x03).is_some());
    let ssl = proxied.tlvs.ssl().unwrap();
    assert_eq!((ssl.client, ssl.verify), (7, 0));
    let facts: Vec<Tlv<'_>> = ssl.facts.collect();
    let fact = |kind: u8| {
        facts
            .iter()
            .find(|tlv| tlv.kind == kind)
            .map(|tlv| tlv.value)
    };
    assert_eq!(fact(0x21), Some(&b"TLSv1.3"[..]));
    assert_eq!(fact(0x22), Some(&b"alice"[..]));
    assert_eq!(fact(0x23), Some(&b"TLS_CHACHA20_POLY1305_SHA256"[..]));
    assert_eq!(fact(0x28).unwrap()[..2], [0x30, 0x82]);
}

#[test]
fn what_a_balancer_said_goes_on_but_for_its_own_tls() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let tlv = |kind, value| Tlv { kind, value };
    let kept = [tlv(0x05, &b"\xff\0"[..]), tlv(0x30, b"ns1"), tlv(0xea, b"")];
    let outer = [
        tlv(0x01, b"imap"),
        tlv(0x02, b"front.example"),
        tlv(0x20, b"\x03\0\0\0\x13\x21\0\x07TLSv1.2"),
    ];
    let came = write_v2(Protocol::Stream, ends(), &[&kept[..], &outer].concat()).unwrap();
    let server = server(
        &pair,
        "\"proxy-in\": {\"from\": \"any\"}, \"proxy-out\": {\"version\": \"v2\", \"unique-id\": true}",
    );
    let mut two = Two::new(&client(&authority, ""), &server, "example.com");
    two.server.hear(&came);
    two.talk();
    assert_eq!(two.server.failure, None);
    assert_eq!(two.server.attribute("sni").as_deref(), Some("example.com"));
    assert_eq!(two.server.attribute("alpn"), None);
    assert_eq!(
        two.server.attribute("tls.version").as_deref(),
        Some("TLSv1.3")
    );
    assert_eq!(
        two.server.attribute("proxy.tlvs").as_deref(),
        Some("050002ff003000036e7331ea0000")
    );
    let header = two.server.codec.introduce(ends());
    let Ok(Parsed::Complete(_, Header::Proxied(proxied))) = parse(&header, &Rules::default())
    else {
        panic!("no header: {header:?}");
    };
    let said: Vec<Tlv<'_>> = proxied.tlvs.collect();
    for tlv in kept {
        assert!(said.contains(&tlv), "{tlv:?}");
    }
    assert_eq!(proxied.tlvs.value(0x02), Some(&b"example.com"[..]));
    assert_eq!(proxied.tlvs.value(0x01), None);
    assert_eq!(proxied.tlvs.ssl().unwrap().client, 1);
}

#[test]
fn version_one_is_a_line() {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let server = server(&pair, "\"proxy-out\": {\"version\": \"v1\"}");
    let two = Two::met(&client(&authority, ""), &server, "example.com");
    assert_eq!(two.server.codec.introduce(ends()), write_v1(ends()));
    assert_eq!(two.server.codec.introduce(None), b"PROXY UNKNOWN\r\n");
}
