//! The timestamp of a handshake initiation, as its sender wrote it. Used by `floor` and `tunnel`.
//!
//! boringtun compares this timestamp with that of the last accepted initiation, and reveals
//! neither; but the next generation must continue from it. This is the responder's side of the
//! first message of Noise IKpsk2 (WireGuard paper, section 5.4.2), as far as its timestamp.

use blake2::digest::{FixedOutput, Mac};
use blake2::{Blake2s256, Digest};
use boringtun::x25519::{PublicKey, StaticSecret};
use chacha20poly1305::{AeadInPlace, ChaCha20Poly1305, KeyInit};
use hmac::SimpleHmac;

use crate::floor::Initiation;

/// A TAI64N timestamp. Its byte order is the order of time.
pub type Timestamp = [u8; 12];

const CONSTRUCTION: &[u8] = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const IDENTIFIER: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";

const TAG: usize = 16;

/// The timestamp of an initiation that `peer` made for this server. `None` if another made it.
pub fn timestamp(
    private: &StaticSecret,
    public: &PublicKey,
    peer: &PublicKey,
    initiation: &Initiation,
) -> Option<Timestamp> {
    let (ephemeral, rest) = initiation.split_first_chunk::<32>()?;
    let (sealed_static, sealed_time) = rest.split_at_checked(32 + TAG)?;
    let chain = hash(&[CONSTRUCTION]);
    let transcript = hash(&[&chain, IDENTIFIER]);
    let transcript = hash(&[&transcript, public.as_bytes()]);
    let transcript = hash(&[&transcript, ephemeral]);
    let (chain, _) = derive(&chain, ephemeral);
    let shared = private.diffie_hellman(&PublicKey::from(*ephemeral));
    let (chain, key) = derive(&chain, shared.as_bytes());
    let sender: [u8; 32] = open(&key, &transcript, sealed_static)?;
    if &sender != peer.as_bytes() {
        return None;
    }
    let transcript = hash(&[&transcript, sealed_static]);
    let shared = private.diffie_hellman(peer);
    let (_, key) = derive(&chain, shared.as_bytes());
    open(&key, &transcript, sealed_time)
}

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Blake2s256::new();
    for part in parts {
        Digest::update(&mut hash, part);
    }
    hash.finalize().into()
}

fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac: SimpleHmac<Blake2s256> =
        Mac::new_from_slice(key).expect("an HMAC takes a key of any length");
    for part in parts {
        Mac::update(&mut mac, part);
    }
    mac.finalize_fixed().into()
}

/// The first two keys that follow from a chaining key and an input (`KDF2` of the paper).
fn derive(chain: &[u8; 32], input: &[u8]) -> ([u8; 32], [u8; 32]) {
    let secret = hmac(chain, &[input]);
    let first = hmac(&secret, &[&[1]]);
    let second = hmac(&secret, &[&first, &[2]]);
    (first, second)
}

fn open<const N: usize>(key: &[u8; 32], transcript: &[u8; 32], sealed: &[u8]) -> Option<[u8; N]> {
    let (text, tag) = sealed.split_at_checked(N)?;
    let mut text: [u8; N] = text.try_into().ok()?;
    let tag: [u8; TAG] = tag.try_into().ok()?;
    ChaCha20Poly1305::new(key.into())
        .decrypt_in_place_detached(&[0; 12].into(), transcript, &mut text, &tag.into())
        .ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use boringtun::noise::{Tunn, TunnResult};
    use mock_instant::MockClock;

    use super::*;
    use crate::floor::initiation;

    #[test]
    fn the_times_of_another_implementation_are_read_and_grow() {
        let [ours, theirs, strangers] = [1, 2, 3].map(|number| StaticSecret::from([number; 32]));
        let [our, their, stranger] = [&ours, &theirs, &strangers].map(PublicKey::from);
        let mut tunn = Tunn::new(theirs, our, Some([9; 32]), None, 1, None);
        let mut next = || {
            let mut buffer = [0; 148];
            match tunn.format_handshake_initiation(&mut buffer, true) {
                TunnResult::WriteToNetwork(message) => *initiation(message).unwrap(),
                other => panic!("no initiation: {other:?}"),
            }
        };
        let first = next();
        MockClock::advance(Duration::from_secs(3));
        let second = next();
        let time = |message: &Initiation| timestamp(&ours, &our, &their, message);
        let seconds =
            |time: Timestamp| u64::from_be_bytes(*time.first_chunk().unwrap()) - (1 << 62);
        let (first_time, second_time) = (time(&first).unwrap(), time(&second).unwrap());
        assert!(first_time < second_time);
        assert_eq!(seconds(second_time) - seconds(first_time), 3);

        assert_eq!(timestamp(&ours, &our, &stranger, &first), None);
        assert_eq!(timestamp(&strangers, &stranger, &their, &first), None);
        for place in [0, 40, 80, 107] {
            let mut wrong = first;
            wrong[place] ^= 1;
            assert_eq!(time(&wrong), None, "at {place}");
        }
    }
}
