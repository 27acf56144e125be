//! X25519MLKEM768, the key exchange that combines X25519 and ML-KEM-768. Used by `config`.
//!
//! A quantum computer would break X25519, also in recordings made before it existed. ML-KEM is
//! designed to withstand it, and X25519 stays in case ML-KEM does not withstand today's computers.
//! The layout is that of draft-ietf-tls-ecdhe-mlkem, section 4: ML-KEM's part comes first, in both
//! shares and in the secret.
//!
//! | | ML-KEM-768 | X25519 |
//! |---|---|---|
//! | client's share | an encapsulation key, 1184 bytes | 32 bytes |
//! | server's share | a ciphertext, 1088 bytes | 32 bytes |
//! | secret | 32 bytes | 32 bytes |

use std::fmt;

use ml_kem::ml_kem_768::{Ciphertext, DecapsulationKey, EncapsulationKey};
use ml_kem::{B32, Decapsulate, Key, KeyExport, Seed};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::crypto::ring::kx_group::X25519;
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

/// The length of a client's ML-KEM part in bytes (FIPS 203, table 3).
const ENCAPSULATION_KEY: usize = 1184;
/// The length of a server's ML-KEM part in bytes.
const CIPHERTEXT: usize = 1088;

/// The group, for TLS 1.3 only.
pub static X25519MLKEM768: &dyn SupportedKxGroup = &Hybrid;

#[derive(Debug)]
struct Hybrid;

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let classical = X25519.start()?;
        let mut seed = Seed::default();
        fill(&mut seed)?;
        let key = Box::new(DecapsulationKey::from_seed(seed));
        let share = joined(&key.encapsulation_key().to_bytes(), classical.pub_key());
        Ok(Box::new(Started {
            key,
            classical,
            share,
        }))
    }

    fn start_and_complete(&self, share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (key, theirs) = share
            .split_at_checked(ENCAPSULATION_KEY)
            .ok_or(PeerMisbehaved::InvalidKeyShare)?;
        // Fails if the share has the wrong length.
        let classical = X25519.start_and_complete(theirs)?;
        let key = Key::<EncapsulationKey>::try_from(key)
            .ok()
            .and_then(|key| EncapsulationKey::new(&key).ok())
            .ok_or(PeerMisbehaved::InvalidKeyShare)?;
        let mut message = B32::default();
        fill(&mut message)?;
        let (ciphertext, secret) = key.encapsulate_deterministic(&message);
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: joined(&ciphertext, &classical.pub_key),
            secret: joined(&secret, classical.secret.secret_bytes()).into(),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

/// A client's key exchange before the server's answer.
struct Started {
    key: Box<DecapsulationKey>,
    classical: Box<dyn ActiveKeyExchange>,
    share: Vec<u8>,
}

impl ActiveKeyExchange for Started {
    fn complete(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        let (ciphertext, theirs) = share
            .split_at_checked(CIPHERTEXT)
            .ok_or(PeerMisbehaved::InvalidKeyShare)?;
        let classical = self.classical.complete(theirs)?;
        let ciphertext =
            Ciphertext::try_from(ciphertext).map_err(|_| PeerMisbehaved::InvalidKeyShare)?;
        let secret = self.key.decapsulate(&ciphertext);
        Ok(joined(&secret, classical.secret_bytes()).into())
    }

    /// The X25519 share, which is also sent by itself: a server without ML-KEM then answers at
    /// once.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((self.classical.group(), self.classical.pub_key()))
    }

    fn complete_hybrid_component(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        self.classical.complete(share)
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").finish_non_exhaustive()
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), Error> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| GetRandomFailed.into())
}

fn joined(post_quantum: &[u8], classical: &[u8]) -> Vec<u8> {
    [post_quantum, classical].concat()
}
