//! The check of dialled servers by their certificates. Used by `transport`.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, OtherError, RootCertStore};

use crate::facts::{self, Facts};
use crate::failure;
use crate::signatures::signatures_by_provider;

/// Judges a server's certificate.
pub struct Judge {
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// The name to verify, if it differs from the requested one.
    verify: Option<ServerName<'static>>,
    pins: Vec<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl Judge {
    /// Fails if there are neither roots nor pins, or if the roots cannot be used.
    pub fn new(
        roots: Option<&RootCertStore>,
        pins: &[[u8; 32]],
        verify: Option<ServerName<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Judge, String> {
        let chain = roots.map(|roots| {
            let roots = Arc::new(roots.clone());
            WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
                .build()
                .map_err(|error| error.to_string())
        });
        Ok(Judge {
            chain: chain.transpose()?,
            verify,
            pins: pins.to_vec(),
            provider: provider.clone(),
        })
    }
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let other = |error: WrongKey| {
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
        };
        if !self.pins.is_empty() {
            let facts = Facts::of(end)
                .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
            if !self.pins.contains(&facts.key) {
                return Err(other(WrongKey(facts.key)));
            }
        }
        match &self.chain {
            Some(chain) => {
                let name = self.verify.as_ref().unwrap_or(name);
                let verified = chain.verify_server_cert(end, intermediates, name, ocsp, now);
                verified.map_err(|error| failure::explained(error, intermediates))
            }
            None => Ok(ServerCertVerified::assertion()),
        }
    }

    signatures_by_provider!();
}

/// The error for a key that is not pinned.
#[derive(Debug)]
struct WrongKey([u8; 32]);

impl fmt::Display for WrongKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key {} is not pinned", facts::pin(&self.0))
    }
}

impl std::error::Error for WrongKey {}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge").finish_non_exhaustive()
    }
}
