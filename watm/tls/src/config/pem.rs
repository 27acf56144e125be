//! Parsing of PEM (RFC 7468). Used by `config`.

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use watm_core::ConfigError;

use super::field;

/// Parses all certificates, at least one.
pub fn certificates(path: &str, text: &str) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let found = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    match found {
        Ok(found) if found.is_empty() => Err(field(path, "no PEM certificate found")),
        Ok(found) => Ok(found),
        Err(error) => Err(field(path, format!("not PEM: {error}"))),
    }
}

/// Parses all certificate revocation lists, at least one.
pub fn crls(
    path: &str,
    text: &str,
) -> Result<Vec<CertificateRevocationListDer<'static>>, ConfigError> {
    let found = CertificateRevocationListDer::pem_slice_iter(text.as_bytes());
    match found.collect::<Result<Vec<_>, _>>() {
        Ok(found) if found.is_empty() => Err(field(path, "no PEM X509 CRL found")),
        Ok(found) => Ok(found),
        Err(error) => Err(field(path, format!("not PEM: {error}"))),
    }
}

/// Parses the first private key.
pub fn key(path: &str, text: &str) -> Result<PrivateKeyDer<'static>, ConfigError> {
    match PrivateKeyDer::from_pem_slice(text.as_bytes()) {
        Ok(key) => Ok(key),
        Err(Error::NoItemsFound) if text.contains("ENCRYPTED PRIVATE KEY") => {
            let why = "the private key is encrypted; decrypt it first, as with openssl pkey";
            Err(field(path, why))
        }
        Err(Error::NoItemsFound) => Err(field(path, "no PEM private key found")),
        Err(error) => Err(field(path, format!("not PEM: {error}"))),
    }
}
