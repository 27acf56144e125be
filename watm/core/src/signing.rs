//! Private keys that stay in the host: `wit/signing.wit`.
//!
//! The shell that links the transport to its host sets the provider once for the thread, as with
//! [`crypto`](crate::crypto). No provider is set natively and in WATER modules.

use std::cell::Cell;

use crate::ErrorCode;

/// A private key that the host signs with.
pub trait PrivateKey: Send + Sync {
    /// The public key: a SubjectPublicKeyInfo in DER (RFC 5280).
    fn public_key(&self) -> Vec<u8>;

    /// The signature schemes of the key, best first, as TLS numbers (RFC 8446, section 4.2.3).
    fn schemes(&self) -> Vec<u16>;

    /// Sign a message of a TLS handshake.
    ///
    /// Fails with [`ErrorCode::NotSupported`] if the key lacks this scheme, with
    /// [`ErrorCode::InvalidArgument`] for a message that is not part of a TLS handshake, and with
    /// the host's error if the key cannot be used now.
    fn sign(&self, scheme: u16, message: &[u8]) -> Result<Vec<u8>, ErrorCode>;
}

/// Finds the key that the user gave the host under a name. Fails with [`ErrorCode::AccessDenied`]
/// if there is none.
pub type Provider = fn(&str) -> Result<Box<dyn PrivateKey>, ErrorCode>;

thread_local! {
    static PROVIDER: Cell<Option<Provider>> = const { Cell::new(None) };
}

/// Use `provider` for the keys that this thread asks for from now on.
pub fn set_provider(provider: Option<Provider>) {
    PROVIDER.set(provider);
}

/// Returns the host's key of this name. Fails with [`ErrorCode::NotSupported`] if no provider is
/// set, and with [`ErrorCode::AccessDenied`] if the host grants the module no key of this name.
pub fn host_key(name: &str) -> Result<Box<dyn PrivateKey>, ErrorCode> {
    match PROVIDER.get() {
        Some(provider) => provider(name),
        None => Err(ErrorCode::NotSupported),
    }
}
