//! ChaCha20-Poly1305, compatible with libsodium. Used by `cipher`.
//!
//! The implementation is dryoc's, which processes eight blocks at a time with WebAssembly's
//! vectors. It is three times as fast as the RustCrypto crates, whose vectors are for other
//! machines only.

use dryoc::Error;
use dryoc::classic::crypto_aead_chacha20poly1305_ietf::{
    crypto_aead_chacha20poly1305_ietf_decrypt_detached_inplace as chacha20_open,
    crypto_aead_chacha20poly1305_ietf_encrypt_detached_inplace as chacha20_seal,
};
use dryoc::classic::crypto_aead_xchacha20poly1305_ietf::{
    crypto_aead_xchacha20poly1305_ietf_decrypt_detached_inplace as xchacha20_open,
    crypto_aead_xchacha20poly1305_ietf_encrypt_detached_inplace as xchacha20_seal,
};

use super::{Aead, BoxedAead, LONGEST_KEY, TAG};

/// A key with its two functions. They precompute nothing from a key that is worth keeping.
struct Sodium<const NONCE: usize> {
    key: [u8; LONGEST_KEY],
    seal: Seal<NONCE>,
    open: Open<NONCE>,
}

/// Encrypts in place: the text, its tag, the associated data, the nonce and the key.
type Seal<const NONCE: usize> = fn(
    &mut [u8],
    &mut [u8; TAG],
    Option<&[u8]>,
    &[u8; NONCE],
    &[u8; LONGEST_KEY],
) -> Result<(), Error>;

/// Decrypts in place, with the same arguments.
type Open<const NONCE: usize> =
    fn(&mut [u8], &[u8; TAG], Option<&[u8]>, &[u8; NONCE], &[u8; LONGEST_KEY]) -> Result<(), Error>;

impl<const NONCE: usize> Sodium<NONCE> {
    fn boxed(key: &[u8], seal: Seal<NONCE>, open: Open<NONCE>) -> BoxedAead {
        let key = key.try_into().expect("a key as long as the method's");
        Box::new(Sodium { key, seal, open })
    }
}

impl<const NONCE: usize> Aead for Sodium<NONCE> {
    fn nonce_length(&self) -> usize {
        NONCE
    }

    fn seal(&self, nonce: &[u8], text: &mut [u8]) -> [u8; TAG] {
        let nonce = nonce.try_into().expect("as long as nonce_length says");
        let mut tag = [0; TAG];
        (self.seal)(text, &mut tag, None, nonce, &self.key).expect("not too long");
        tag
    }

    fn open(&self, nonce: &[u8], sealed: &mut [u8]) -> bool {
        let nonce = nonce.try_into().expect("as long as nonce_length says");
        let Some((text, tag)) = sealed.split_last_chunk_mut() else {
            return false;
        };
        (self.open)(text, tag, None, nonce, &self.key).is_ok()
    }
}

/// ChaCha20-Poly1305 (RFC 8439) with this key of 32 bytes.
pub fn chacha20(key: &[u8]) -> BoxedAead {
    Sodium::boxed(key, chacha20_seal, chacha20_open)
}

/// XChaCha20-Poly1305 with this key of 32 bytes.
pub fn xchacha20(key: &[u8]) -> BoxedAead {
    Sodium::boxed(key, xchacha20_seal, xchacha20_open)
}
