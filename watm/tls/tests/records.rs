//! Records of TLS 1.3, encrypted by the host's ciphers.

mod support;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use support::{Authority, Two, client, server};
use watm_core::crypto::{AeadKey, Algorithm, set_provider};

thread_local! {
    /// The algorithms of the keys handed to the host, and the number of its calls.
    static KEYS: RefCell<Vec<Algorithm>> = const { RefCell::new(Vec::new()) };
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// A host's cipher.
struct Host(LessSafeKey);

impl AeadKey for Host {
    fn seal(&self, nonce: &[u8; 12], associated: &[u8], text: &mut [u8]) -> [u8; 16] {
        CALLS.set(CALLS.get() + 1);
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(associated), text);
        tag.unwrap().as_ref().try_into().unwrap()
    }

    fn open(&self, nonce: &[u8; 12], associated: &[u8], text: &mut [u8]) -> bool {
        CALLS.set(CALLS.get() + 1);
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(associated), text);
        opened.is_ok()
    }
}

fn grant(algorithm: Algorithm, key: &[u8]) -> Option<Arc<dyn AeadKey>> {
    KEYS.with_borrow_mut(|keys| keys.push(algorithm));
    let cipher = match algorithm {
        Algorithm::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        Algorithm::Aes128Gcm => &aead::AES_128_GCM,
        Algorithm::Aes256Gcm => &aead::AES_256_GCM,
    };
    let key = UnboundKey::new(cipher, key).unwrap();
    Some(Arc::new(Host(LessSafeKey::new(key))))
}

fn refuse(algorithm: Algorithm, _: &[u8]) -> Option<Arc<dyn AeadKey>> {
    KEYS.with_borrow_mut(|keys| keys.push(algorithm));
    None
}

/// A connection that uses only this cipher.
fn two(cipher: &str) -> Two {
    let authority = Authority::new();
    let pair = authority.sign(&["example.com"], "example.com");
    let server = server(&pair, &format!("\"ciphers\": [\"{cipher}\"]"));
    Two::met(&client(&authority, ""), &server, "example.com")
}

#[test]
fn large_records_are_the_hosts_and_small_ones_are_not() {
    for (cipher, algorithm) in [
        ("TLS_CHACHA20_POLY1305_SHA256", Algorithm::Chacha20Poly1305),
        ("TLS_AES_128_GCM_SHA256", Algorithm::Aes128Gcm),
        ("TLS_AES_256_GCM_SHA384", Algorithm::Aes256Gcm),
    ] {
        // The use of the host by the sender and by the receiver: either may be without one.
        for (speaking, listening) in [(true, true), (true, false), (false, true), (false, false)] {
            let provide = |host: bool| match host {
                true => set_provider(Some(grant)),
                false => set_provider(None),
            };
            set_provider(None);
            let mut two = two(cipher);
            CALLS.set(0);
            KEYS.take();
            let data: Vec<u8> = (0..40_000_u32).map(|n| n as u8).collect();
            provide(speaking);
            two.client.say(&data);
            provide(listening);
            two.talk();
            assert_eq!(two.server.heard.bytes(), data);
            // 40,000 bytes are three records.
            let sides = u32::from(speaking) + u32::from(listening);
            assert_eq!(CALLS.get(), 3 * sides, "{cipher}");
            assert_eq!(KEYS.take(), vec![algorithm; sides as usize]);
            // A record too short for a call.
            provide(speaking);
            two.client.say(&[1; 100]);
            two.talk();
            assert_eq!(CALLS.get(), 3 * sides);
            assert_eq!(two.server.heard.len(), data.len() + 100);
        }
    }
}

#[test]
fn a_host_that_takes_no_key_is_asked_once_for_each() {
    set_provider(Some(refuse));
    let mut two = two("TLS_AES_128_GCM_SHA256");
    KEYS.take();
    for _ in 0..3 {
        two.client.say(&[7; 30_000]);
        two.talk();
    }
    assert_eq!(two.server.heard.len(), 90_000);
    assert_eq!(KEYS.take().len(), 2);
}

#[test]
fn what_is_not_authentic_ends_the_connection() {
    set_provider(Some(grant));
    let mut two = two("TLS_AES_128_GCM_SHA256");
    two.client.say(&[7; 10_000]);
    let mut said = two.client.said();
    said[5000] ^= 1;
    two.server.hear(&said);
    let failure = two.server.failure.expect("an error").to_string();
    assert!(failure.contains("decrypt"), "{failure}");
}
