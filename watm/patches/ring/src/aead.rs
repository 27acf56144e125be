//! ChaCha20-Poly1305 (RFC 8439), run by the host or by a library.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use dryoc::classic::crypto_aead_chacha20poly1305_ietf as library;
use watm_core::crypto::{self, AeadKey, Algorithm as HostAlgorithm};
use zeroize::Zeroizing;

use crate::batch;
use crate::error::Unspecified;

const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;

/// The length in bytes from which on a text goes to the host. A call costs half a microsecond, and
/// the library in a module takes that much longer for this many bytes. The limit also keeps a
/// handshake's ephemeral keys, which encrypt at most 48 bytes, from being handed over at all.
const HOST_FROM: usize = 512;

/// A cipher. The only one is [`CHACHA20_POLY1305`].
#[derive(Debug)]
pub struct Algorithm(());

/// ChaCha20-Poly1305 (RFC 8439).
pub static CHACHA20_POLY1305: Algorithm = Algorithm(());

/// A key without a choice of nonces.
pub struct UnboundKey(Zeroizing<[u8; KEY_LEN]>);

impl UnboundKey {
    /// Fails unless the key has 32 bytes.
    pub fn new(_algorithm: &'static Algorithm, key: &[u8]) -> Result<Self, Unspecified> {
        let key = key.try_into().map_err(|_| Unspecified)?;
        Ok(UnboundKey(Zeroizing::new(key)))
    }
}

/// A key whose caller chooses the nonces, each only once.
pub struct LessSafeKey {
    key: Zeroizing<[u8; KEY_LEN]>,
    /// The key in the host, made with the first text that is long enough. The inner `None`: the
    /// host does not grant it.
    host: OnceCell<Option<Arc<dyn AeadKey>>>,
}

impl LessSafeKey {
    /// Leaves the choice of nonces to the caller.
    pub fn new(key: UnboundKey) -> Self {
        LessSafeKey {
            key: key.0,
            host: OnceCell::new(),
        }
    }

    /// Encrypt `in_out` in place and return its tag.
    pub fn seal_in_place_separate_tag<A: AsRef<[u8]>>(
        &self,
        nonce: Nonce,
        aad: Aad<A>,
        in_out: &mut [u8],
    ) -> Result<Tag, Unspecified> {
        if let Some(host) = self.host(in_out.len()) {
            let aad = aad.0.as_ref();
            if aad.is_empty() && batch::leave(host, nonce.0) {
                return Ok(Tag([0; TAG_LEN]));
            }
            return Ok(Tag(host.seal(&nonce.0, aad, in_out)));
        }
        let mut tag = [0; TAG_LEN];
        library::crypto_aead_chacha20poly1305_ietf_encrypt_detached_inplace(
            in_out,
            &mut tag,
            Some(aad.0.as_ref()),
            &nonce.0,
            &self.key,
        )
        .map(|()| Tag(tag))
        .map_err(|_| Unspecified)
    }

    /// Decrypt `in_out`, a ciphertext followed by its tag, in place, and return the
    /// plaintext. Fails if it is not authentic.
    pub fn open_in_place<'a, A: AsRef<[u8]>>(
        &self,
        nonce: Nonce,
        aad: Aad<A>,
        in_out: &'a mut [u8],
    ) -> Result<&'a mut [u8], Unspecified> {
        let length = in_out.len().checked_sub(TAG_LEN).ok_or(Unspecified)?;
        if let Some(authentic) = self.open_by_host(&nonce.0, aad.0.as_ref(), in_out) {
            return match authentic {
                true => Ok(&mut in_out[..length]),
                false => Err(Unspecified),
            };
        }
        let (text, tag) = in_out.split_last_chunk_mut().ok_or(Unspecified)?;
        library::crypto_aead_chacha20poly1305_ietf_decrypt_detached_inplace(
            text,
            tag,
            Some(aad.0.as_ref()),
            &nonce.0,
            &self.key,
        )
        .map_err(|_| Unspecified)?;
        Ok(text)
    }

    /// Returns true if a text that the host opens, now or ahead, is authentic. `None`: the host does
    /// not open it.
    fn open_by_host(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], in_out: &mut [u8]) -> Option<bool> {
        let ahead = match self.host.get() {
            Some(Some(host)) if aad.is_empty() => batch::take(host, nonce, in_out),
            _ => None,
        };
        if ahead.is_some() {
            return ahead;
        }
        let host = self.host(in_out.len().saturating_sub(TAG_LEN))?;
        batch::note(host);
        Some(host.open(nonce, aad, in_out))
    }

    fn host(&self, text_len: usize) -> Option<&Arc<dyn AeadKey>> {
        if text_len < HOST_FROM {
            return None;
        }
        self.host
            .get_or_init(|| crypto::host_key(HostAlgorithm::Chacha20Poly1305, &*self.key))
            .as_ref()
    }
}

impl fmt::Debug for LessSafeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LessSafeKey")
    }
}

/// A number used once.
pub struct Nonce([u8; NONCE_LEN]);

impl Nonce {
    /// Makes a nonce. The caller guarantees that this key has not used it.
    pub fn assume_unique_for_key(value: [u8; NONCE_LEN]) -> Self {
        Nonce(value)
    }
}

/// Data that is authenticated but not encrypted.
pub struct Aad<A>(A);

impl<A: AsRef<[u8]>> Aad<A> {
    /// Authenticates `aad`.
    pub fn from(aad: A) -> Self {
        Aad(aad)
    }
}

/// The proof that a ciphertext is authentic.
#[derive(Clone, Copy)]
pub struct Tag([u8; TAG_LEN]);

impl AsRef<[u8]> for Tag {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
