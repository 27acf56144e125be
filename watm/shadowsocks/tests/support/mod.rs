//! Both ends of a connection, and the buffers between them.
#![allow(dead_code)] // every test file uses a part of it

pub mod host;

use watm_core::{Destination, ErrorCode, FlowInfo};
use watm_shadowsocks::{Method, ShadowsocksCodec, ShadowsocksStreams, set_wall_clock};
use watm_stream::{Buffer, Codec, StreamTransport};

/// The date of the tests, in seconds since 1970.
pub const NOW: u64 = 1_790_000_000;

pub const TARGET: &str = "example.com:443";

/// A password, or a key, for this method.
pub fn password(method: Method, seed: u8) -> String {
    use base64::Engine;
    match method.is_2022() {
        true => base64::engine::general_purpose::STANDARD.encode(vec![seed; method.key_length()]),
        false => format!("password {seed}"),
    }
}

/// A configuration of this method, with more fields.
pub fn config(method: Method, more: &str) -> String {
    let password = password(method, 1);
    format!(r#"{{"method": "{method}", "password": "{password}"{more}}}"#)
}

pub fn configured(config: &str) -> ShadowsocksStreams {
    set_wall_clock(Some(NOW));
    ShadowsocksStreams::configure(config.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

/// The same for clients and for a server, which do not share their memory.
pub fn both(config: &str) -> (ShadowsocksStreams, ShadowsocksStreams) {
    (configured(config), configured(config))
}

/// One end, with its pending bytes.
pub struct End {
    pub codec: ShadowsocksCodec,
    /// The bytes from the network that are not consumed yet.
    pub from: Buffer,
    /// The bytes for the application.
    pub application: Buffer,
}

impl End {
    pub fn new(codec: ShadowsocksCodec) -> End {
        End {
            codec,
            from: Buffer::default(),
            application: Buffer::default(),
        }
    }

    pub fn server(transport: &ShadowsocksStreams) -> End {
        End::new(transport.accept(None).unwrap())
    }

    pub fn client(transport: &ShadowsocksStreams) -> End {
        let target: Destination = TARGET.parse().unwrap();
        End::new(transport.dial(Some(&target)).unwrap())
    }

    /// The first bytes that are sent.
    pub fn begin(&mut self) -> Vec<u8> {
        let mut network = Buffer::default();
        self.codec.begin(&mut network);
        network.bytes().to_vec()
    }

    /// The bytes that are sent for these data.
    pub fn send(&mut self, data: &[u8]) -> Vec<u8> {
        let (mut from, mut network) = (Buffer::default(), Buffer::default());
        from.extend(data);
        self.codec.outward(&mut from, &mut network).unwrap();
        assert!(from.is_empty());
        network.bytes().to_vec()
    }

    /// Receives these bytes from the network; nothing is answered at once.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ErrorCode> {
        let mut network = Buffer::default();
        self.from.extend(bytes);
        let result = self
            .codec
            .inward(&mut self.from, &mut self.application, &mut network);
        assert!(network.is_empty(), "an answer to what was received");
        result
    }

    /// The same in pieces of this size.
    pub fn receive_pieces(&mut self, bytes: &[u8], size: usize) -> Result<(), ErrorCode> {
        bytes.chunks(size).try_for_each(|piece| self.receive(piece))
    }

    pub fn ends(&mut self) -> Result<(), ErrorCode> {
        self.codec.end_inward(&self.from, &mut self.application)
    }

    pub fn received(&self) -> &[u8] {
        self.application.bytes()
    }

    pub fn info(&self) -> FlowInfo {
        let mut info = FlowInfo {
            source: "192.0.2.1:5".parse().unwrap(),
            destination: Destination::Name("nowhere".to_owned(), 1),
            peer: None,
            underlay: None,
            attributes: Vec::new(),
        };
        self.codec.describe(&mut info);
        info
    }
}

/// Bytes that are not all the same.
pub fn data(length: usize) -> Vec<u8> {
    (0..length)
        .map(|place| (place * 7 + place / 251) as u8)
        .collect()
}

/// The value of a counter.
pub fn counter(transport: &ShadowsocksStreams, name: &str) -> u64 {
    let counters = transport.counters();
    counters.iter().find(|(known, _)| *known == name).unwrap().1
}
