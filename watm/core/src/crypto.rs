//! Ciphers that a host may run for a transport: `wit/crypto.wit`.
//!
//! A protocol crate such as boringtun makes its keys in code that has no [`Host`](crate::Host). The
//! shell that links the transport to its host therefore sets the provider once for the thread.
//! Natively no provider is set, and the transport uses libraries.

use std::cell::RefCell;
use std::sync::Arc;

/// The length of a tag in bytes.
const TAG_LEN: usize = 16;

/// Ciphers that a host may offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 8439, with a key of 32 bytes.
    Chacha20Poly1305,
    /// AES-GCM (RFC 5116), with a key of 16 bytes.
    Aes128Gcm,
    /// AES-GCM (RFC 5116), with a key of 32 bytes.
    Aes256Gcm,
}

/// The place of a ciphertext and its tag in a buffer, and the nonce. The plaintext starts the
/// place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text {
    /// The nonce.
    pub nonce: [u8; 12],
    /// The start of the place, in bytes.
    pub begin: usize,
    /// The length of the ciphertext and its 16-byte tag, in bytes.
    pub len: usize,
}

/// Decrypted texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The buffer, with the plaintexts in it.
    pub buffer: Vec<u8>,
    /// An entry for each text: true if it is authentic.
    pub authentic: Vec<bool>,
}

/// A key held by the host.
pub trait AeadKey: Send + Sync {
    /// Encrypt `in_out` in place and return the tag.
    fn seal(&self, nonce: &[u8; 12], associated_data: &[u8], in_out: &mut [u8]) -> [u8; 16];

    /// Decrypt `in_out`, a ciphertext followed by its 16-byte tag, in place. Returns false, with
    /// `in_out` unchanged, if it is not authentic.
    fn open(&self, nonce: &[u8; 12], associated_data: &[u8], in_out: &mut [u8]) -> bool;

    /// Encrypt the texts of a buffer, without associated data. The texts follow each other. Returns the
    /// buffer with the ciphertexts and tags.
    fn seal_all(&self, texts: &[Text], buffer: &[u8]) -> Vec<u8> {
        let mut buffer = buffer.to_vec();
        for text in texts {
            let place = &mut buffer[text.begin..][..text.len];
            let (plain, tag) = place.split_at_mut(text.len - TAG_LEN);
            tag.copy_from_slice(&self.seal(&text.nonce, &[], plain));
        }
        buffer
    }

    /// Decrypt the texts of a buffer, without associated data. The texts follow each other.
    fn open_all(&self, texts: &[Text], buffer: &[u8]) -> Opened {
        let mut buffer = buffer.to_vec();
        let open = |text: &Text| self.open(&text.nonce, &[], &mut buffer[text.begin..][..text.len]);
        let authentic = texts.iter().map(open).collect();
        Opened { buffer, authentic }
    }
}

/// Hands a key to the host. Returns `None` if the host does not grant the service or lacks this
/// cipher.
pub type Provider = fn(Algorithm, &[u8]) -> Option<Arc<dyn AeadKey>>;

thread_local! {
    static PROVIDER: RefCell<Option<Provider>> = const { RefCell::new(None) };
}

/// Use `provider` for the keys that this thread makes from now on.
pub fn set_provider(provider: Option<Provider>) {
    PROVIDER.with(|slot| *slot.borrow_mut() = provider);
}

/// Hand a key to the host. `None`: use a library instead.
pub fn host_key(algorithm: Algorithm, key: &[u8]) -> Option<Arc<dyn AeadKey>> {
    PROVIDER.with(|slot| *slot.borrow())?(algorithm, key)
}
