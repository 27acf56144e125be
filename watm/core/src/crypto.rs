//! Ciphers that a host may run for a transport: `wit/crypto.wit`.
//!
//! A protocol crate such as boringtun makes its keys deep inside, where no [`Host`](crate::Host)
//! is at hand. So the provider is set once for the thread, by the shell that
//! links the transport to its host; natively nobody sets one and libraries are used.

use std::cell::RefCell;

/// A ChaCha20-Poly1305 key (RFC 8439) held by the host.
pub trait AeadKey {
    /// Encrypt `in_out` in place and return the tag.
    fn seal(&self, nonce: &[u8; 12], associated_data: &[u8], in_out: &mut [u8]) -> [u8; 16];

    /// Decrypt `in_out`, a ciphertext followed by its 16-byte tag, in place. False, with
    /// `in_out` unchanged, if it is not authentic.
    fn open(&self, nonce: &[u8; 12], associated_data: &[u8], in_out: &mut [u8]) -> bool;
}

/// Hands a 32-byte key to the host; `None` if the host does not grant the service.
pub type Provider = fn(&[u8; 32]) -> Option<Box<dyn AeadKey>>;

thread_local! {
    static PROVIDER: RefCell<Option<Provider>> = const { RefCell::new(None) };
}

/// Use `provider` for the keys that this thread makes from now on.
pub fn set_provider(provider: Option<Provider>) {
    PROVIDER.with(|slot| *slot.borrow_mut() = provider);
}

/// Hand a ChaCha20-Poly1305 key to the host. `None`: use a library.
pub fn host_key(key: &[u8; 32]) -> Option<Box<dyn AeadKey>> {
    PROVIDER.with(|slot| *slot.borrow())?(key)
}
