//! Messages of a client after its first flight, damaged.

use std::cell::LazyCell;

use watm_stream::{Buffer, Codec, StreamTransport};
use watm_tls::{Tls, TlsCodec};

use crate::EXAMPLE;

/// The data that the client's application sends.
const DATA: &[u8] = b"what the application says, a few times over";

thread_local! {
    static TWO: LazyCell<(Tls, Tls)> = LazyCell::new(|| {
        let chain = EXAMPLE.split_inclusive("-----END CERTIFICATE-----").next().unwrap_or_default();
        let root = Tls::configure(chain.as_bytes()).expect("a root");
        (root, Tls::configure(EXAMPLE.as_bytes()).expect("a certificate"))
    });
}

/// Each three bytes are a change: its position, in sixteenths of the data and in bytes, and its
/// kind.
pub fn run(input: &[u8]) {
    TWO.with(|two| {
        let (client, server) = &**two;
        let name = "example.com:443".parse().expect("a name");
        let mut client = Party::new(client.dial(Some(&name)).expect("a name"));
        let mut server = Party::new(
            server
                .accept("10.0.0.9:1234".parse().ok())
                .expect("anybody"),
        );
        let mut changes = input.chunks_exact(3);
        let mut fed = 0;
        // A handshake takes two rounds; what follows is data, and its end.
        for round in 0..6 {
            let mut said = client.said();
            if round > 0 {
                for change in changes.by_ref().take(2) {
                    change_one(&mut said, change);
                }
            }
            fed += said.len();
            server.hear(&said);
            let answer = server.said();
            client.hear(&answer);
            if client.codec.established() && round == 2 {
                client.say(DATA);
            }
            if client.codec.established() && round == 3 {
                client.say(DATA);
                client
                    .codec
                    .end_outward(&mut client.network)
                    .expect("it can end");
            }
        }
        let heard = server.application.bytes();
        let all = [DATA, DATA].concat();
        assert!(all.starts_with(heard), "it hears something else");
        assert!(
            !server.codec.has_ended_inward() || heard == all,
            "an end that nobody said"
        );
        assert!(heard.len() <= fed);
        if input.is_empty() {
            assert_eq!(heard, all);
        }
    });
}

fn change_one(said: &mut Vec<u8>, change: &[u8]) {
    let [place, offset, how] = *change else {
        return;
    };
    let at = said.len() * usize::from(place & 15) / 16 + usize::from(offset);
    match place >> 6 {
        0 | 1 => {
            if let Some(byte) = said.get_mut(at) {
                *byte ^= how;
            }
        }
        2 => said.truncate(at),
        _ => {
            let again = said.clone();
            said.insert(at.min(again.len()), how);
        }
    }
}

struct Party {
    codec: TlsCodec,
    from: Buffer,
    application: Buffer,
    network: Buffer,
    failed: bool,
}

impl Party {
    fn new(mut codec: TlsCodec) -> Party {
        let mut network = Buffer::default();
        codec.begin(&mut network);
        Party {
            codec,
            from: Buffer::default(),
            application: Buffer::default(),
            network,
            failed: false,
        }
    }

    fn said(&mut self) -> Vec<u8> {
        let said = self.network.bytes().to_vec();
        self.network.clear();
        said
    }

    fn hear(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.failed {
            return;
        }
        self.from.extend(bytes);
        let heard = self
            .codec
            .inward(&mut self.from, &mut self.application, &mut self.network);
        self.failed = heard.is_err();
    }

    fn say(&mut self, bytes: &[u8]) {
        let mut from = Buffer::default();
        from.extend(bytes);
        // A failed connection gets no further data.
        if !self.failed {
            self.codec
                .outward(&mut from, &mut self.network)
                .expect("it is open");
        }
    }
}
