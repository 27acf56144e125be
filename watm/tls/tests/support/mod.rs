//! Certificates, and two ends in one process.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses a part of it"
)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    SignatureAlgorithm,
};
use watm_core::{Destination, ErrorCode, FlowInfo};
use watm_stream::{Buffer, Codec, StreamTransport};
use watm_tls::{Tls, TlsCodec};

/// A root that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A chain with its key, in PEM.
pub struct Pair {
    pub chain: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Authority {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let name = format!("root {}", LAST.fetch_add(1, Ordering::Relaxed));
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn sign(&self, names: &[&str], common_name: &str) -> Pair {
        self.sign_with(names, common_name, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    pub fn sign_with(
        &self,
        names: &[&str],
        common_name: &str,
        algorithm: &'static SignatureAlgorithm,
    ) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        self.finish(params, algorithm)
    }

    /// Signs a certificate whose name is a URI.
    pub fn sign_uri(&self, uri: &str) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params
            .subject_alt_names
            .push(SanType::URI(uri.try_into().unwrap()));
        self.finish(params, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    /// Signs a certificate that was valid until 2001.
    pub fn sign_expired(&self, name: &str) -> Pair {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        self.finish(params, &rcgen::PKCS_ECDSA_P256_SHA256)
    }

    fn finish(&self, params: CertificateParams, algorithm: &'static SignatureAlgorithm) -> Pair {
        let key = KeyPair::generate_for(algorithm).unwrap();
        Pair {
            chain: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A text in JSON.
pub fn quote(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

impl Pair {
    /// An entry of `certificates`.
    pub fn json(&self) -> String {
        format!(
            "{{\"chain\": {}, \"key\": {}}}",
            quote(&self.chain),
            quote(&self.key)
        )
    }
}

pub fn tls(config: &str) -> Tls {
    Tls::configure(config.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

pub fn refused(config: &str) -> String {
    match Tls::configure(config.as_bytes()) {
        Ok(_) => panic!("this was taken: {config}"),
        Err(error) => error.to_string(),
    }
}

/// A server with one certificate, and more fields.
pub fn server(pair: &Pair, more: &str) -> Tls {
    let comma = if more.is_empty() { "" } else { ", " };
    tls(&format!(
        "{{\"certificates\": [{}]{comma}{more}}}",
        pair.json()
    ))
}

/// A client that trusts a root, with more fields of `server`.
pub fn client(authority: &Authority, more: &str) -> Tls {
    let comma = if more.is_empty() { "" } else { ", " };
    let roots = quote(&authority.pem());
    tls(&format!(
        "{{\"server\": {{\"roots\": {roots}{comma}{more}}}}}"
    ))
}

/// The client's address in the tests.
pub fn remote() -> SocketAddr {
    "192.0.2.1:5000".parse().unwrap()
}

pub fn to(name: &str) -> Option<Destination> {
    Some(format!("{name}:443").parse().unwrap())
}

/// One end of a connection.
pub struct End {
    pub codec: TlsCodec,
    from: Buffer,
    /// The bytes for the other end.
    pub network: Buffer,
    /// The bytes that the application has received.
    pub heard: Buffer,
    pub failure: Option<ErrorCode>,
}

impl End {
    pub fn new(mut codec: TlsCodec) -> End {
        let mut network = Buffer::default();
        codec.begin(&mut network);
        End {
            codec,
            from: Buffer::default(),
            network,
            heard: Buffer::default(),
            failure: None,
        }
    }

    pub fn hear(&mut self, bytes: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        self.from.extend(bytes);
        if let Err(error) = self
            .codec
            .inward(&mut self.from, &mut self.heard, &mut self.network)
        {
            self.failure = Some(error);
        }
    }

    pub fn say(&mut self, bytes: &[u8]) {
        let mut from = Buffer::default();
        from.extend(bytes);
        self.codec.outward(&mut from, &mut self.network).unwrap();
        assert!(from.is_empty());
    }

    pub fn end(&mut self) {
        self.codec.end_outward(&mut self.network).unwrap();
    }

    pub fn said(&mut self) -> Vec<u8> {
        let said = self.network.bytes().to_vec();
        self.network.clear();
        said
    }

    pub fn info(&self) -> FlowInfo {
        let mut info = FlowInfo {
            source: remote(),
            destination: Destination::Address("192.0.2.9:443".parse().unwrap()),
            peer: None,
            underlay: None,
            attributes: Vec::new(),
        };
        self.codec.describe(&mut info);
        info
    }

    pub fn attribute(&self, name: &str) -> Option<String> {
        let attributes = self.info().attributes;
        let found = attributes.into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }
}

/// A client and a server.
pub struct Two {
    pub client: End,
    pub server: End,
    /// The number of bytes that arrive at once.
    pub piece: usize,
}

impl Two {
    pub fn new(client: &Tls, server: &Tls, name: &str) -> Two {
        Two {
            client: End::new(client.dial(to(name).as_ref()).unwrap()),
            server: End::new(server.accept(Some(remote())).unwrap()),
            piece: usize::MAX,
        }
    }

    /// Exchanges bytes until neither end sends more.
    pub fn talk(&mut self) {
        loop {
            let (to_server, to_client) = (self.client.said(), self.server.said());
            if to_server.is_empty() && to_client.is_empty() {
                return;
            }
            for piece in to_server.chunks(self.piece.min(1 << 16)) {
                self.server.hear(piece);
            }
            for piece in to_client.chunks(self.piece.min(1 << 16)) {
                self.client.hear(piece);
            }
        }
    }

    /// A client and a server after their handshake.
    pub fn met(client: &Tls, server: &Tls, name: &str) -> Two {
        let mut two = Two::new(client, server, name);
        two.talk();
        assert_eq!((&two.client.failure, &two.server.failure), (&None, &None));
        assert!(two.client.codec.established() && two.server.codec.established());
        two
    }

    /// The failures of both ends.
    pub fn failures(client: &Tls, server: &Tls, name: &str) -> (String, String) {
        let mut two = Two::new(client, server, name);
        two.talk();
        let words = |failure: Option<ErrorCode>| {
            failure.map_or_else(String::new, |error| error.to_string())
        };
        (words(two.client.failure), words(two.server.failure))
    }
}
