//! Shadowsocks: a configuration, the data of a stranger, and changes of a client's data on the
//! path.

use watm_core::{ConfigError, Destination};
use watm_shadowsocks::{Method, ShadowsocksCodec, ShadowsocksStreams, set_wall_clock};
use watm_stream::{Buffer, Codec, StreamTransport};

use crate::support;

/// The longest error, in characters: a line for people.
const LONGEST: usize = 500;

/// The time of the run, in Unix seconds.
const NOW: u64 = 1_790_000_000;

/// A key of 32 bytes, and of 16: a password, too.
const KEY_32: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const KEY_16: &str = "AQEBAQEBAQEBAQEBAQEBAQ==";

pub fn run(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    support::seed(1);
    set_wall_clock(Some(NOW));
    let method = Method::ALL[usize::from(first / 4) % Method::ALL.len()];
    match first % 4 {
        0 => configure(rest),
        1 => stranger(method, rest),
        _ => damage(method, first % 4 == 2, rest),
    }
}

/// An error is one line, which says where; what is accepted makes URLs that are accepted.
fn configure(config: &[u8]) {
    match ShadowsocksStreams::configure(config) {
        Ok(transport) => {
            let public = Destination::Name("ss.example.org".to_owned(), 8388);
            for file in transport.client_configs(&public).expect("there are some") {
                let client = ShadowsocksStreams::configure(file.content.as_bytes());
                let client = client.unwrap_or_else(|error| panic!("{error}, in {}", file.content));
                assert_eq!(client.outer(None), Some(public.clone()));
            }
        }
        Err(error) => {
            let text = error.to_string();
            assert!(
                !text.chars().any(char::is_control),
                "not one line: {text:?}"
            );
            assert!(text.chars().count() <= LONGEST, "too long: {text}");
            assert!(!matches!(error, ConfigError::Other(_)));
        }
    }
}

fn transport(method: Method, more: &str) -> ShadowsocksStreams {
    let key = if method.key_length() == 16 {
        KEY_16
    } else {
        KEY_32
    };
    let config = format!(r#"{{"method": "{method}", "password": "{key}"{more}}}"#);
    ShadowsocksStreams::configure(config.as_bytes()).expect("it is right")
}

/// Checks that a stranger gets no answer and leaves no state.
fn stranger(method: Method, bytes: &[u8]) {
    let transport = transport(method, "");
    let mut codec = transport.accept(None).expect("anybody may");
    let (mut from, mut application, mut network) = <(Buffer, Buffer, Buffer)>::default();
    for part in bytes.chunks(61) {
        from.extend(part);
        let taken = codec.inward(&mut from, &mut application, &mut network);
        assert!(taken.is_ok(), "a stranger is told something");
        assert!(!codec.established() && application.is_empty() && network.is_empty());
    }
    assert!(from.len() < 1 << 16);
}

/// Pairs of a position and a change of the byte there, after which the stream arrives in pieces of
/// some size. Checks that the application gets a prefix of the client's data, and nothing else.
fn damage(method: Method, insecure: bool, program: &[u8]) {
    let more = match (method.is_2022(), insecure) {
        (true, _) => r#", "segmented_header": true"#,
        (false, true) => r#", "gfw_report_compat": "insecure""#,
        (false, false) => "",
    };
    let data: Vec<u8> = (0..3000_u32).map(|place| (place * 7) as u8).collect();
    let said = say(&mut dialled(&transport(method, more)), &data);
    let mut heard = said.clone();
    let (size, edits) = program.split_first().unwrap_or((&0, &[]));
    for edit in edits.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % heard.len().max(1);
        match edit[2] {
            0 => heard.truncate(place),
            1 => {
                heard.splice(place..place, said[..100].iter().copied());
            }
            2 => {
                heard.drain(place..heard.len().min(place + 50));
            }
            bits => {
                if let Some(byte) = heard.get_mut(place) {
                    *byte ^= bits;
                }
            }
        }
    }
    let server = transport(method, more);
    let mut codec = server.accept(None).expect("anybody may");
    let (mut from, mut application, mut network) = <(Buffer, Buffer, Buffer)>::default();
    let mut taken = Ok(());
    for part in heard.chunks(1 + 16 * usize::from(*size)) {
        from.extend(part);
        taken = codec.inward(&mut from, &mut application, &mut network);
        if taken.is_err() {
            assert!(codec.established(), "a stranger is told something");
            break;
        }
    }
    assert!(network.is_empty() && from.len() < 1 << 16);
    assert!(data.starts_with(application.bytes()), "nobody said that");
    if heard == said {
        assert!(taken.is_ok() && application.bytes() == data);
    }
}

fn dialled(transport: &ShadowsocksStreams) -> ShadowsocksCodec {
    let target = Destination::Name("example.com".to_owned(), 443);
    transport.dial(Some(&target)).expect("it can be written")
}

fn say(codec: &mut ShadowsocksCodec, data: &[u8]) -> Vec<u8> {
    let (mut from, mut network) = <(Buffer, Buffer)>::default();
    codec.begin(&mut network);
    for part in data.chunks(1000) {
        from.extend(part);
        let sent = codec.outward(&mut from, &mut network);
        assert!(sent.is_ok() && from.is_empty());
    }
    network.bytes().to_vec()
}
