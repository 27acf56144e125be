//! Private keys in memory, which sign by rustls. `Keys::add_file` makes them.

use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::sign::SigningKey;

use super::Signer;

/// The signature schemes of rustls, the best first.
const SCHEMES: [SignatureScheme; 9] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA256,
];

/// A key in this process's memory.
pub(super) struct LoadedKey {
    key: Arc<dyn SigningKey>,
    public_key: Vec<u8>,
}

impl LoadedKey {
    /// Parses a PEM file. The error says what it should contain.
    pub(super) fn of_pem(text: &[u8]) -> Result<LoadedKey, String> {
        let der = PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
            Error::NoItemsFound if contains(text, b"ENCRYPTED PRIVATE KEY") => {
                "the private key is encrypted; decrypt it first, as with openssl pkey".to_owned()
            }
            Error::NoItemsFound => "no PEM private key found".to_owned(),
            error => format!("not PEM: {error}"),
        })?;
        let expected =
            "must be a private key of P-256, P-384 or Ed25519, or an RSA key of at least 2048 bits";
        let key = any_supported_type(&der).map_err(|_| expected.to_owned())?;
        let public_key = key.public_key().ok_or(expected)?.as_ref().to_vec();
        Ok(LoadedKey { key, public_key })
    }
}

fn contains(text: &[u8], words: &[u8]) -> bool {
    memchr::memmem::find(text, words).is_some()
}

impl Signer for LoadedKey {
    fn public_key(&self) -> Vec<u8> {
        self.public_key.clone()
    }

    fn schemes(&self) -> Vec<u16> {
        let has = |scheme: &&SignatureScheme| self.key.choose_scheme(&[**scheme]).is_some();
        SCHEMES.iter().filter(has).copied().map(u16::from).collect()
    }

    fn sign(&self, scheme: u16, message: &[u8]) -> Result<Vec<u8>, String> {
        let signer = self.key.choose_scheme(&[SignatureScheme::from(scheme)]);
        let signer = signer.ok_or("the key does not support this signature scheme")?;
        signer.sign(message).map_err(|error| error.to_string())
    }
}
