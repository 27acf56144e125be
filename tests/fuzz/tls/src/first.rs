//! The first bytes of a connection, from a stranger.

use std::cell::LazyCell;

use watm_core::{Destination, FlowInfo};
use watm_stream::{Buffer, Codec, StreamTransport};
use watm_tls::{Tls, TlsCodec};

use crate::EXAMPLE;

/// The client's address.
const STRANGER: &str = "10.0.0.9:1234";

thread_local! {
    /// Servers without a decoy, with one, and behind a proxy that announces clients.
    static SERVERS: LazyCell<[Tls; 3]> = LazyCell::new(|| {
        ["", ", \"decoy\": true", ", \"decoy\": true, \"proxy-in\": {\"from\": \"any\"}"].map(|more| {
            let pem = EXAMPLE.replace('\n', "\\n");
            let config = format!("{{\"certificates\": [{{\"chain\": \"{pem}\", \"key\": \"{pem}\"}}]{more}}}");
            Tls::configure(config.as_bytes()).expect("it is right")
        })
    });
}

/// The first byte chooses the server, and how many bytes arrive at once.
pub fn run(input: &[u8]) {
    let Some((&choice, said)) = input.split_first() else {
        return;
    };
    SERVERS.with(|servers| {
        let server = &servers[usize::from(choice) % 3];
        let whole = hear(server, said, usize::MAX);
        let parts = hear(server, said, usize::from(choice / 3) + 1);
        assert_eq!(
            whole.refused, parts.refused,
            "it depends on how the bytes come"
        );
        assert_eq!(whole.decoy, parts.decoy, "it depends on how the bytes come");
        if whole.decoy {
            assert_eq!(whole.heard, parts.heard);
            assert!(
                said.ends_with(&whole.heard),
                "a decoy does not hear all of it"
            );
            assert!(usize::from(choice) % 3 == 2 || whole.heard == said);
            assert!(
                !whole.answered && !parts.answered,
                "a decoy's client is answered"
            );
        } else {
            assert!(
                whole.heard.is_empty(),
                "nobody's data reaches the application"
            );
        }
    });
}

struct Outcome {
    refused: bool,
    decoy: bool,
    answered: bool,
    heard: Vec<u8>,
}

fn hear(server: &Tls, said: &[u8], piece: usize) -> Outcome {
    let stranger = STRANGER.parse().expect("an address");
    let mut codec = server.accept(Some(stranger)).expect("anybody may");
    let (mut from, mut application, mut network) = <(Buffer, Buffer, Buffer)>::default();
    let mut refused = false;
    for part in said.chunks(piece.min(said.len().max(1))) {
        from.extend(part);
        refused = codec
            .inward(&mut from, &mut application, &mut network)
            .is_err();
        if refused {
            break;
        }
    }
    Outcome {
        refused,
        decoy: codec.established() && is_decoy(&codec),
        answered: !refused && !network.is_empty(),
        heard: application.bytes().to_vec(),
    }
}

fn is_decoy(codec: &TlsCodec) -> bool {
    let stranger = STRANGER.parse().expect("an address");
    let mut info = FlowInfo {
        source: stranger,
        destination: Destination::Address(stranger),
        peer: None,
        underlay: None,
        attributes: Vec::new(),
    };
    codec.describe(&mut info);
    for (_, value) in &info.attributes {
        assert!(!value.chars().any(char::is_control), "what is told prints");
    }
    info.attributes.iter().any(|(name, _)| name == "decoy")
}
