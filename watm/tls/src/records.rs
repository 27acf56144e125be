//! Encryption of TLS 1.3 records by the host's ciphers, if it offers them (`wit/crypto.wit`).

use std::mem;
use std::sync::{Arc, LazyLock};

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Nonce, OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload, Tls13AeadAlgorithm,
    UnsupportedOperationError, make_tls13_aad,
};
use rustls::crypto::ring::cipher_suite;
use rustls::{
    ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion, SupportedCipherSuite,
    Tls13CipherSuite,
};
use watm_core::crypto::{self, Algorithm};

/// The least bytes of a record that are worth a call of the host, and a key there.
const WORTH_A_CALL: usize = 512;

/// The length of a tag in bytes, in all three ciphers.
const TAG: usize = 16;

/// The suites of TLS 1.3, with the host's ciphers or else ring's: ChaCha20-Poly1305, AES-128-GCM
/// and AES-256-GCM.
pub fn suites() -> [SupportedCipherSuite; 3] {
    static SUITES: LazyLock<[Tls13CipherSuite; 3]> = LazyLock::new(|| {
        [&CHACHA20, &AES_128, &AES_256].map(|aead| {
            let own = aead.own();
            Tls13CipherSuite {
                common: CipherSuiteCommon {
                    suite: own.common.suite,
                    hash_provider: own.common.hash_provider,
                    confidentiality_limit: own.common.confidentiality_limit,
                },
                hkdf_provider: own.hkdf_provider,
                aead_alg: aead,
                quic: None,
            }
        })
    });
    let suites: &'static [Tls13CipherSuite; 3] = &SUITES;
    suites.each_ref().map(SupportedCipherSuite::Tls13)
}

static CHACHA20: Aead = Aead {
    algorithm: Algorithm::Chacha20Poly1305,
    own: &cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
};
static AES_128: Aead = Aead {
    algorithm: Algorithm::Aes128Gcm,
    own: &cipher_suite::TLS13_AES_128_GCM_SHA256,
};
static AES_256: Aead = Aead {
    algorithm: Algorithm::Aes256Gcm,
    own: &cipher_suite::TLS13_AES_256_GCM_SHA384,
};

/// A cipher of ring's that the host may have too.
struct Aead {
    algorithm: Algorithm,
    own: &'static SupportedCipherSuite,
}

impl Aead {
    fn own(&self) -> &'static Tls13CipherSuite {
        // Each is a suite of TLS 1.3, by its name.
        self.own.tls13().expect("a suite of TLS 1.3")
    }

    fn host(&self, key: &AeadKey, iv: &Iv) -> Host {
        Host {
            key: Key::Unasked(self.algorithm, key.as_ref().to_vec()),
            iv: Iv::copy(iv.as_ref()),
        }
    }
}

impl Tls13AeadAlgorithm for Aead {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Encrypter {
            host: self.host(&key, &iv),
            own: self.own().aead_alg.encrypter(key, iv),
        })
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Decrypter {
            host: self.host(&key, &iv),
            own: self.own().aead_alg.decrypter(key, iv),
        })
    }

    fn key_len(&self) -> usize {
        self.own().aead_alg.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.own().aead_alg.extract_keys(key, iv)
    }
}

/// The key of one direction in the host.
struct Host {
    key: Key,
    iv: Iv,
}

enum Key {
    /// Not handed over: no record was long enough yet.
    Unasked(Algorithm, Vec<u8>),
    /// Handed over. `None`: the host does not take it.
    Asked(Option<Arc<dyn crypto::AeadKey>>),
}

impl Host {
    /// Returns the host's key for a record of this length in bytes.
    fn key(&mut self, length: usize) -> Option<&dyn crypto::AeadKey> {
        if length < WORTH_A_CALL {
            return None;
        }
        if let Key::Unasked(algorithm, bytes) = &mut self.key {
            let key = crypto::host_key(*algorithm, &mem::take(bytes));
            self.key = Key::Asked(key);
        }
        match &self.key {
            Key::Asked(key) => key.as_deref(),
            Key::Unasked(..) => None,
        }
    }

    fn nonce(&self, sequence: u64) -> [u8; 12] {
        Nonce::new(&self.iv, sequence).0
    }
}

struct Encrypter {
    own: Box<dyn MessageEncrypter>,
    host: Host,
}

impl MessageEncrypter for Encrypter {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let nonce = self.host.nonce(sequence);
        let total = self.encrypted_payload_len(message.payload.len());
        let Some(key) = self.host.key(message.payload.len()) else {
            return self.own.encrypt(message, sequence);
        };
        let mut payload = PrefixedPayload::with_capacity(total);
        payload.extend_from_chunks(&message.payload);
        payload.extend_from_slice(&message.typ.to_array());
        let tag = key.seal(&nonce, &make_tls13_aad(total), payload.as_mut());
        payload.extend_from_slice(&tag);
        // A record claims TLS 1.2 (RFC 8446, section 5.2).
        Ok(OutboundOpaqueMessage::new(
            ContentType::ApplicationData,
            ProtocolVersion::TLSv1_2,
            payload,
        ))
    }

    fn encrypted_payload_len(&self, length: usize) -> usize {
        self.own.encrypted_payload_len(length)
    }
}

struct Decrypter {
    own: Box<dyn MessageDecrypter>,
    host: Host,
}

impl MessageDecrypter for Decrypter {
    fn decrypt<'a>(
        &mut self,
        mut message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let nonce = self.host.nonce(sequence);
        let length = message.payload.len();
        let Some(key) = self.host.key(length) else {
            return self.own.decrypt(message, sequence);
        };
        if !key.open(&nonce, &make_tls13_aad(length), &mut message.payload) {
            return Err(Error::DecryptError);
        }
        // An empty record is too short to get here.
        message.payload.truncate(length.saturating_sub(TAG));
        message.into_tls13_unpadded_message()
    }
}
