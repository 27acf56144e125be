//! The first bytes of a connection, for the PROXY protocol.

use watm_core::{Destination, FlowInfo};
use watm_proxy_protocol::{Addresses, Header, Parsed, ProxyProtocol, Rules, parse};
use watm_stream::{Buffer, Codec, StreamTransport};

/// The source and the destination of a flow before its header is applied.
const NOBODY: &str = "10.0.0.9:1234";

pub fn run(input: &[u8]) {
    for unspecified_is_local in [false, true] {
        let rules = Rules {
            longest: 4096,
            unspecified_is_local,
            ..Rules::default()
        };
        check_parser(input, &rules);
    }
    check_transport(input);
}

/// Returns the outcome, which must not depend on how the bytes are split or on later bytes.
fn check_parser(input: &[u8], rules: &Rules) {
    let whole = parse(input, rules);
    for length in 0..input.len() {
        match (parse(&input[..length], rules), whole) {
            (Ok(Parsed::Incomplete), _) => {}
            (early, whole) => assert_eq!(early.ok(), whole.ok(), "after {length} bytes"),
        }
    }
    let Ok(Parsed::Complete(length, header)) = whole else {
        return;
    };
    assert!(length <= rules.longest.max(107) && length <= input.len());
    assert_eq!(parse(&input[..length], rules), whole);
    let Header::Proxied(proxied) = header else {
        return;
    };
    let facts: usize = proxied.tlvs.map(|tlv| 3 + tlv.value.len()).sum();
    let addresses = match proxied.addresses {
        Addresses::Inet {
            source,
            destination,
        } => {
            assert_eq!(source.is_ipv4(), destination.is_ipv4());
            if source.is_ipv4() { 12 } else { 36 }
        }
        Addresses::Unix { .. } => 216,
    };
    if input[0] == b'\r' {
        assert_eq!(length, 16 + addresses + facts, "not all of it was read");
    }
    if let Some(ssl) = proxied.tlvs.ssl() {
        let facts: usize = ssl.facts.map(|tlv| 3 + tlv.value.len()).sum();
        assert!(facts < length);
    }
}

/// Checks that a flow has the rest of the data, and only printable attributes.
fn check_transport(input: &[u8]) {
    let transport = ProxyProtocol::configure(b"from = \"any\"\nlongest = \"4096\"");
    let transport = transport.expect("it is right");
    let mut codec = transport.accept(None).expect("anybody may");
    let (mut from, mut application, mut network) = <(Buffer, Buffer, Buffer)>::default();
    for part in input.chunks(7) {
        from.extend(part);
        if codec
            .inward(&mut from, &mut application, &mut network)
            .is_err()
        {
            assert!(
                application.is_empty(),
                "a refused connection said something"
            );
            return;
        }
    }
    assert!(network.is_empty());
    if !codec.established() {
        assert!(application.is_empty() && from.len() == input.len());
        return;
    }
    assert!(input.ends_with(application.bytes()) && from.is_empty());
    let nobody = NOBODY.parse().expect("an address");
    let mut info = FlowInfo {
        source: nobody,
        destination: Destination::Address(nobody),
        peer: None,
        underlay: None,
        attributes: Vec::new(),
    };
    codec.describe(&mut info);
    for (name, value) in &info.attributes {
        assert!(
            !name.is_empty() && !value.chars().any(char::is_control),
            "{name}: {value:?}"
        );
    }
}
