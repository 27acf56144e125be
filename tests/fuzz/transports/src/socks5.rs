//! The messages of SOCKS5 clients and of proxies, and the headers of datagrams.

use watm_core::{Destination, ErrorCode};
use watm_socks_wire::{Unfit, head, split};
use watm_socks5::{SocksCodec, SocksStreams};
use watm_stream::{Buffer, Codec, StreamTransport};

const CONFIGS: [&str; 2] = [
    r#"{"server": "192.0.2.80:1080"}"#,
    r#"{"users": [{"name": "a", "password": "b"}], "server": "http://192.0.2.80:8080", "user": "a"}"#,
];

pub fn run(input: &[u8]) {
    check_datagram(input);
    let to: Destination = "example.com:443".parse().expect("a destination");
    for config in CONFIGS {
        let transport = SocksStreams::configure(config.as_bytes()).expect("it is right");
        check(input, || transport.accept(None).expect("anybody may"));
        check(input, || {
            transport.dial(Some(&to)).expect("there is a proxy")
        });
    }
}

/// The outcome of some bytes.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    established: bool,
    error: Option<ErrorCode>,
    /// Bytes that the other end and the application get.
    network: Vec<u8>,
    application: Vec<u8>,
}

/// The outcome is the same however the bytes come.
fn check(input: &[u8], codec: impl Fn() -> SocksCodec) {
    let whole = outcome(codec(), input, input.len().max(1));
    for size in [1, 7] {
        assert_eq!(outcome(codec(), input, size), whole, "in parts of {size}");
    }
    let Outcome {
        established,
        error,
        application,
        ..
    } = whole;
    assert!(error.is_none() || !established && application.is_empty());
    assert!(input.ends_with(&application));
}

fn outcome(mut codec: SocksCodec, input: &[u8], size: usize) -> Outcome {
    let (mut from, mut application, mut network) = <(Buffer, Buffer, Buffer)>::default();
    codec.begin(&mut network);
    let mut error = None;
    for part in input.chunks(size) {
        from.extend(part);
        error = codec
            .inward(&mut from, &mut application, &mut network)
            .err();
        if error.is_some() {
            break;
        }
    }
    Outcome {
        established: codec.established(),
        error,
        network: network.bytes().to_vec(),
        application: application.bytes().to_vec(),
    }
}

/// A header is written as it was parsed.
fn check_datagram(input: &[u8]) {
    match split(input) {
        Ok((address, payload)) => {
            if let Some(mut again) = head(address) {
                again.extend(payload);
                assert_eq!(again, input);
            }
        }
        Err(Unfit::Fragment) => assert!(input[2] != 0),
        Err(Unfit::Malformed) => {}
    }
}
