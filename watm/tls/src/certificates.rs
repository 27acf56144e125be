//! Which certificate a client is shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureAlgorithm};
use watm_core::ConfigError;

use crate::config::{Certificate, field};
use crate::keys::Key;
use crate::staple::{Validity, Window};

/// The certificates by name.
#[derive(Debug)]
pub struct Certificates {
    exact: BTreeMap<String, Arc<Shown>>,
    /// By what follows the first label.
    wild: BTreeMap<String, Arc<Shown>>,
    /// For all else.
    otherwise: Option<Arc<Shown>>,
}

/// One certificate.
#[derive(Debug)]
struct Shown {
    alone: Arc<CertifiedKey>,
    /// With what its issuer says of it, while that is to be believed.
    stapled: Option<(Window, Arc<CertifiedKey>)>,
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
            let shown = Arc::new(Shown::new(certificate, provider)?);
            for name in &certificate.names {
                let (names, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut all.wild, parent),
                    None => (&mut all.exact, name.as_str()),
                };
                names
                    .entry(name.to_owned())
                    .or_insert_with(|| shown.clone());
            }
            if fall_back {
                all.otherwise.get_or_insert(shown);
            }
        }
        Ok(all)
    }

    fn find(&self, name: &str) -> Option<&Arc<Shown>> {
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
            .map(|shown| shown.now().clone())
    }
}

impl Shown {
    fn new(certificate: &Certificate, provider: &CryptoProvider) -> Result<Shown, ConfigError> {
        let alone = certified(certificate, provider)?;
        let stapled = certificate.staple.as_ref().map(|staple| {
            let mut stapled = CertifiedKey::clone(&alone);
            stapled.ocsp = Some(staple.response.clone());
            (staple.window, Arc::new(stapled))
        });
        Ok(Shown { alone, stapled })
    }

    fn now(&self) -> &Arc<CertifiedKey> {
        match &self.stapled {
            Some((window, stapled))
                if window.validity(UnixTime::now().as_secs()) == Validity::Good =>
            {
                stapled
            }
            _ => &self.alone,
        }
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
    let certified = CertifiedKey::new(certificate.chain.clone(), key);
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
