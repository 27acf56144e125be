//! Which certificate a client is shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureAlgorithm};
use watm_core::ConfigError;

use crate::config::{Certificate, field};
use crate::keys::Key;

/// The certificates by name.
#[derive(Debug)]
pub struct Certificates {
    exact: BTreeMap<String, Arc<CertifiedKey>>,
    /// By what follows the first label.
    wild: BTreeMap<String, Arc<CertifiedKey>>,
    /// For all else.
    otherwise: Option<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Of those that have a name in common, the first one has it.
    pub fn new(
        certificates: &[Certificate],
        fall_back: bool,
        provider: &CryptoProvider,
    ) -> Result<Certificates, ConfigError> {
        let mut all = Certificates {
            exact: BTreeMap::new(),
            wild: BTreeMap::new(),
            otherwise: None,
        };
        for certificate in certificates {
            let key = certified(certificate, provider)?;
            for name in &certificate.names {
                let (names, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut all.wild, parent),
                    None => (&mut all.exact, name.as_str()),
                };
                names.entry(name.to_owned()).or_insert_with(|| key.clone());
            }
            if fall_back {
                all.otherwise.get_or_insert(key);
            }
        }
        Ok(all)
    }

    fn find(&self, name: &str) -> Option<&Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        let wild = || {
            let (_, parent) = name.split_once('.')?;
            self.wild.get(parent)
        };
        self.exact.get(&name).or_else(wild)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        hello
            .server_name()
            .and_then(|name| self.find(name))
            .or(self.otherwise.as_ref())
            .cloned()
    }
}

/// A chain with the key that belongs to it.
pub fn certified(
    certificate: &Certificate,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, ConfigError> {
    let path = format!("{}.{}", certificate.field, certificate.key.field());
    let key = certificate
        .key
        .load(provider)
        .map_err(|why| field(&path, why))?;
    let mut certified = CertifiedKey::new(certificate.chain.clone(), key);
    certified.ocsp = certificate.ocsp.clone();
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Arc::new(certified)),
        Err(Error::InconsistentKeys(_)) => Err(field(
            &path,
            "is not that of the first certificate in chain",
        )),
        Err(error) => Err(field(
            &format!("{}.chain", certificate.field),
            error.to_string(),
        )),
    }
}

/// Whether a key is slow in a module.
pub fn is_slow(certificate: &Certificate, provider: &CryptoProvider) -> bool {
    match &certificate.key {
        own @ Key::Own(_) => own
            .load(provider)
            .is_ok_and(|key| key.algorithm() == SignatureAlgorithm::RSA),
        Key::Host(_) => false,
    }
}
