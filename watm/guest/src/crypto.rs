//! Host ciphers, on the import `crypto`.

use std::cell::Cell;
use std::sync::Arc;

use watm_core::crypto::{AeadKey, Algorithm, Opened, Text};

use crate::bindings::watm::transport::crypto as wit;
use crate::convert::to_error;

thread_local! {
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Hands a key to the host. A host that refuses the whole service is asked once.
pub fn host_key(algorithm: Algorithm, key: &[u8]) -> Option<Arc<dyn AeadKey>> {
    if REFUSED.get() {
        return None;
    }
    let algorithm = match algorithm {
        Algorithm::Chacha20Poly1305 => wit::AeadAlgorithm::Chacha20Poly1305,
        Algorithm::Aes128Gcm => wit::AeadAlgorithm::Aes128Gcm,
        Algorithm::Aes256Gcm => wit::AeadAlgorithm::Aes256Gcm,
    };
    match wit::AeadKey::create(algorithm, key) {
        Ok(key) => Some(Arc::new(HostKey(key))),
        Err(wit::ErrorCodeResult::AccessDenied | wit::ErrorCodeResult::NotSupported) => {
            REFUSED.set(true);
            None
        }
        // A refusal such as a limit on keys: the next key may be accepted.
        Err(_) => None,
    }
}

struct HostKey(wit::AeadKey);

impl AeadKey for HostKey {
    fn seal(&self, nonce: &[u8; 12], associated_data: &[u8], in_out: &mut [u8]) -> [u8; 16] {
        let sealed = self
            .0
            .seal(nonce, associated_data, in_out)
            // The nonce has 12 bytes, so that the contract leaves no error to handle.
            .unwrap_or_else(|error| panic!("the host cannot seal: {}", to_error(error)));
        let (text, tag) = sealed
            .split_last_chunk()
            .filter(|(text, _)| text.len() == in_out.len())
            // The length is that of `wit/crypto.wit`.
            .expect("a ciphertext is as long as its plaintext, and a tag follows");
        in_out.copy_from_slice(text);
        *tag
    }

    fn open(&self, nonce: &[u8; 12], associated_data: &[u8], in_out: &mut [u8]) -> bool {
        match self.0.open(nonce, associated_data, in_out) {
            Ok(Some(text)) if text.len() + 16 == in_out.len() => {
                in_out[..text.len()].copy_from_slice(&text);
                true
            }
            _ => false,
        }
    }

    fn seal_all(&self, texts: &[Text], buffer: &[u8]) -> Vec<u8> {
        self.0
            .seal_all(&nonces(texts), &[], buffer, &places(texts))
            .unwrap_or_else(|error| panic!("the host cannot seal: {}", to_error(error)))
    }

    fn open_all(&self, texts: &[Text], buffer: &[u8]) -> Opened {
        let opened = self
            .0
            .open_all(&nonces(texts), &[], buffer, &places(texts))
            .unwrap_or_else(|error| panic!("the host cannot open: {}", to_error(error)));
        Opened {
            buffer: opened.buffer,
            authentic: opened.authentic,
        }
    }
}

fn nonces(texts: &[Text]) -> Vec<u8> {
    texts.iter().flat_map(|text| text.nonce).collect()
}

fn places(texts: &[Text]) -> Vec<wit::Place> {
    let place = |text: &Text| wit::Place {
        // A buffer in this memory is shorter than 4 GiB.
        begin: text.begin as u32,
        len: text.len as u32,
    };
    texts.iter().map(place).collect()
}
