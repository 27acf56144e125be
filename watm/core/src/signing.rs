//! Private keys that stay in the host: `wit/signing.wit`.
//!
//! As with [`crypto`](crate::crypto), the provider is set once for the thread, by the shell that
//! links the transport to its host. Natively, and in modules for WATER, nobody sets one.

use std::cell::Cell;

use crate::ErrorCode;

/// A private key that the host signs with.
pub trait PrivateKey: Send + Sync {
    /// The public key: a SubjectPublicKeyInfo in DER (RFC 5280).
    fn public_key(&self) -> Vec<u8>;

    /// What it can sign by, the best first, by TLS's numbers (RFC 8446, section 4.2.3).
    fn schemes(&self) -> Vec<u16>;

    /// The signature of a message that a handshake of TLS has to have signed.
    ///
    /// Fails with [`ErrorCode::NotSupported`] if the key has not this scheme, with
    /// [`ErrorCode::InvalidArgument`] for any other message, and as the host says if the key
    /// cannot be used now.
    fn sign(&self, scheme: u16, message: &[u8]) -> Result<Vec<u8>, ErrorCode>;
}

/// Finds the key that the user gave the host under a name; [`ErrorCode::AccessDenied`]: none.
pub type Provider = fn(&str) -> Result<Box<dyn PrivateKey>, ErrorCode>;

thread_local! {
    static PROVIDER: Cell<Option<Provider>> = const { Cell::new(None) };
}

/// Use `provider` for the keys that this thread asks for from now on.
pub fn set_provider(provider: Option<Provider>) {
    PROVIDER.set(provider);
}

/// The host's key of this name. Fails with [`ErrorCode::NotSupported`] where no host has keys,
/// with [`ErrorCode::AccessDenied`] if this one has none of this name for the module.
pub fn host_key(name: &str) -> Result<Box<dyn PrivateKey>, ErrorCode> {
    match PROVIDER.get() {
        Some(provider) => provider(name),
        None => Err(ErrorCode::NotSupported),
    }
}
