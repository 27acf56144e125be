//! Authenticated ciphers and their keys, for streams and datagrams. Used throughout the crate.

use std::cell::OnceCell;
use std::sync::Arc;

use aes::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::array::typenum::{U12, U16, Unsigned};
use aes_gcm::aead::{AeadCore, AeadInOut, KeyInit, Nonce};
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm};
use chacha20poly1305::{ChaCha8Poly1305, ChaCha12Poly1305, XChaCha8Poly1305, XChaCha12Poly1305};
use hkdf::Hkdf;
use md5::{Digest, Md5};
use sha1::Sha1;
use watm_core::crypto::{self, AeadKey, Algorithm};

use crate::method::Method;

mod sodium;
#[cfg(test)]
mod vectors;

/// The length of a tag in bytes.
pub const TAG: usize = 16;

/// The length of the longest key and salt in bytes.
pub const LONGEST_KEY: usize = 32;

/// The length of the longest nonce in bytes.
const LONGEST_NONCE: usize = 24;

/// The key derivation context of session keys.
const SESSION: &str = "shadowsocks 2022 session subkey";

/// The key derivation context of keys that encrypt the names of users.
const IDENTITY: &str = "shadowsocks 2022 identity subkey";

/// A cipher with its key.
pub trait Aead {
    /// The length of a nonce in bytes.
    fn nonce_length(&self) -> usize;

    /// Encrypt in place and return the tag. The caller uses each nonce once.
    fn seal(&self, nonce: &[u8], text: &mut [u8]) -> [u8; TAG];

    /// Decrypt a text followed by its tag in place. Returns false if it is not authentic; it is
    /// then unusable.
    fn open(&self, nonce: &[u8], sealed: &mut [u8]) -> bool;
}

impl<A> Aead for A
where
    A: AeadInOut + AeadCore<TagSize = U16>,
{
    fn nonce_length(&self) -> usize {
        <A as AeadCore>::NonceSize::USIZE
    }

    fn seal(&self, nonce: &[u8], text: &mut [u8]) -> [u8; TAG] {
        let nonce = Nonce::<A>::try_from(nonce).expect("as long as nonce_length says");
        self.encrypt_inout_detached(&nonce, &[], text.into())
            // The limits are gigabytes; a message here is shorter than 64 KiB.
            .expect("not too long")
            .into()
    }

    fn open(&self, nonce: &[u8], sealed: &mut [u8]) -> bool {
        let nonce = Nonce::<A>::try_from(nonce).expect("as long as nonce_length says");
        let Some((text, tag)) = sealed.split_last_chunk_mut::<TAG>() else {
            return false;
        };
        self.decrypt_inout_detached(&nonce, &[], text.into(), &(*tag).into())
            .is_ok()
    }
}

/// The length in bytes from which on a text goes to the host. A call costs half a microsecond, as
/// much as the library in a module takes for this many bytes of ChaCha20, or for fewer of AES.
const HOST_FROM: usize = 128;

/// A cipher that the host runs, if it grants this.
struct HostAead {
    own: BoxedAead,
    algorithm: Algorithm,
    key: Key,
    /// The key in the host, handed over with the first text that is long enough. The inner `None`:
    /// the host does not grant it.
    host: OnceCell<Option<Arc<dyn AeadKey>>>,
}

impl HostAead {
    fn boxed(own: BoxedAead, algorithm: Algorithm, key: &[u8]) -> BoxedAead {
        Box::new(HostAead {
            own,
            algorithm,
            key: Key::new(key).expect("a key as long as the method's"),
            host: OnceCell::new(),
        })
    }

    fn host(&self, length: usize) -> Option<&dyn AeadKey> {
        if length < HOST_FROM {
            return None;
        }
        let key = || crypto::host_key(self.algorithm, self.key.bytes());
        self.host.get_or_init(key).as_deref()
    }
}

impl Aead for HostAead {
    fn nonce_length(&self) -> usize {
        12
    }

    fn seal(&self, nonce: &[u8], text: &mut [u8]) -> [u8; TAG] {
        match (self.host(text.len()), nonce.first_chunk()) {
            (Some(host), Some(nonce)) => host.seal(nonce, &[], text),
            _ => self.own.seal(nonce, text),
        }
    }

    fn open(&self, nonce: &[u8], sealed: &mut [u8]) -> bool {
        match (self.host(sealed.len()), nonce.first_chunk()) {
            (Some(host), Some(nonce)) => host.open(nonce, &[], sealed),
            _ => self.own.open(nonce, sealed),
        }
    }
}

/// A cipher with its key, which has the method's length.
pub type BoxedAead = Box<dyn Aead>;

/// The cipher of a session's messages.
pub fn session_aead(method: Method, key: &[u8]) -> BoxedAead {
    let host = |own, algorithm| HostAead::boxed(own, algorithm, key);
    match method {
        Method::Aes128Gcm | Method::Blake3Aes128Gcm => {
            host(keyed::<Aes128Gcm>(key), Algorithm::Aes128Gcm)
        }
        Method::Aes192Gcm => keyed::<AesGcm<Aes192, U12>>(key),
        Method::Aes256Gcm | Method::Blake3Aes256Gcm => {
            host(keyed::<Aes256Gcm>(key), Algorithm::Aes256Gcm)
        }
        Method::Chacha20IetfPoly1305 | Method::Blake3Chacha20Poly1305 => {
            host(sodium::chacha20(key), Algorithm::Chacha20Poly1305)
        }
        Method::Xchacha20IetfPoly1305 => sodium::xchacha20(key),
        Method::Blake3Chacha12Poly1305 => keyed::<ChaCha12Poly1305>(key),
        Method::Blake3Chacha8Poly1305 => keyed::<ChaCha8Poly1305>(key),
    }
}

/// The cipher of SIP022 datagrams without a separate header: it uses the key itself, and a nonce of
/// 24 random bytes.
pub fn datagram_aead(method: Method, key: &[u8]) -> BoxedAead {
    match method {
        Method::Blake3Chacha12Poly1305 => keyed::<XChaCha12Poly1305>(key),
        Method::Blake3Chacha8Poly1305 => keyed::<XChaCha8Poly1305>(key),
        _ => sodium::xchacha20(key),
    }
}

fn keyed<A: Aead + KeyInit + 'static>(key: &[u8]) -> BoxedAead {
    Box::new(A::new_from_slice(key).expect("a key as long as the method's"))
}

/// A nonce that counts from 0, little-endian.
#[derive(Debug, Clone, Default)]
pub struct Counter([u8; LONGEST_NONCE]);

impl Counter {
    /// Returns the first `length` bytes of this nonce, and increments it.
    pub fn next(&mut self, length: usize) -> [u8; LONGEST_NONCE] {
        let nonce = self.0;
        for byte in &mut self.0[..length] {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                break;
            }
        }
        nonce
    }
}

/// A key of at most [`LONGEST_KEY`] bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    bytes: [u8; LONGEST_KEY],
    length: usize,
}

impl Key {
    /// A copy of `bytes`. `None` if they are too long.
    pub fn new(bytes: &[u8]) -> Option<Key> {
        let mut key = Key {
            bytes: [0; LONGEST_KEY],
            length: bytes.len(),
        };
        key.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(key)
    }

    /// The bytes of the key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Derives a key from a password (`EVP_BytesToKey` of OpenSSL with MD5, as in SIP004).
    pub fn from_password(password: &str, length: usize) -> Key {
        let mut bytes = [0; LONGEST_KEY];
        let mut previous = None;
        for part in bytes[..length].chunks_mut(16) {
            let mut hash = Md5::new();
            if let Some(previous) = previous {
                hash.update(previous);
            }
            hash.update(password);
            let digest: [u8; 16] = hash.finalize().into();
            part.copy_from_slice(&digest[..part.len()]);
            previous = Some(digest);
        }
        Key { bytes, length }
    }

    /// The cipher of the data behind a salt, in a stream or in a datagram of SIP004.
    pub fn session(&self, method: Method, salt: &[u8]) -> BoxedAead {
        let key = match method.is_2022() {
            true => self.derive(SESSION, salt),
            false => {
                let mut bytes = [0; LONGEST_KEY];
                Hkdf::<Sha1>::new(Some(salt), self.bytes())
                    .expand(b"ss-subkey", &mut bytes[..self.length])
                    .expect("32 bytes are not too many");
                Key {
                    bytes,
                    length: self.length,
                }
            }
        };
        session_aead(method, key.bytes())
    }

    /// The cipher for the name of a request's user, with the salt of the request.
    pub fn identity(&self, salt: &[u8]) -> BlockCipher {
        BlockCipher::new(&self.derive(IDENTITY, salt))
    }

    /// The name of this key, for the owner of another key.
    pub fn name(&self) -> [u8; 16] {
        let hash = blake3::hash(self.bytes());
        *hash.as_bytes().first_chunk().expect("it has 32 bytes")
    }

    fn derive(&self, context: &str, salt: &[u8]) -> Key {
        let mut material = [0; 2 * LONGEST_KEY];
        let length = self.length + salt.len();
        material[..self.length].copy_from_slice(self.bytes());
        material[self.length..length].copy_from_slice(salt);
        Key {
            // A shorter key is the beginning of the longest one.
            bytes: blake3::derive_key(context, &material[..length]),
            length: self.length,
        }
    }
}

/// AES for single blocks of 16 bytes.
pub enum BlockCipher {
    /// AES with a key of 16 bytes.
    Aes128(Box<Aes128>),
    /// AES with a key of 32 bytes.
    Aes256(Box<Aes256>),
}

impl BlockCipher {
    /// Makes a cipher with this key, of 16 or 32 bytes.
    pub fn new(key: &Key) -> BlockCipher {
        let made = "16 or 32 bytes, as methods with headers have";
        match key.length {
            16 => BlockCipher::Aes128(Box::new(Aes128::new_from_slice(key.bytes()).expect(made))),
            _ => BlockCipher::Aes256(Box::new(Aes256::new_from_slice(key.bytes()).expect(made))),
        }
    }

    /// Encrypt in place.
    pub fn encrypt(&self, block: &mut [u8; 16]) {
        let block: &mut Block<Aes128> = block.into();
        match self {
            BlockCipher::Aes128(cipher) => cipher.encrypt_block(block),
            BlockCipher::Aes256(cipher) => cipher.encrypt_block(block),
        }
    }

    /// Decrypt in place.
    pub fn decrypt(&self, block: &mut [u8; 16]) {
        let block: &mut Block<Aes128> = block.into();
        match self {
            BlockCipher::Aes128(cipher) => cipher.decrypt_block(block),
            BlockCipher::Aes256(cipher) => cipher.decrypt_block(block),
        }
    }
}

/// Fills `bytes` with random ones. Panics if the system has no randomness, because nothing here
/// could be trusted then.
pub fn random(bytes: &mut [u8]) {
    getrandom::getrandom(bytes).expect("the system has randomness to give");
}

/// A random number from 0 to `bound` - 1.
pub fn random_below(bound: u32) -> u32 {
    let mut bytes = [0; 8];
    random(&mut bytes);
    // The bias is at most 1 in 2^32.
    (((u64::from_le_bytes(bytes) >> 32) * u64::from(bound)) >> 32) as u32
}
