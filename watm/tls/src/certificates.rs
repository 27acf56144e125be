//! The choice of the certificate that a client gets. Used by `transport`.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureAlgorithm, SignatureScheme};
use watm_core::ConfigError;

use crate::config::{Certificate, field};
use crate::keys::Key;
use crate::staple::{Validity, Window};

/// The certificates by name. Several may share a name, such as an ECDSA and an RSA certificate.
#[derive(Debug)]
pub struct Certificates {
    exact: BTreeMap<String, Vec<Arc<Shown>>>,
    /// Certificates for a wildcard, by the text after its first label.
    wild: BTreeMap<String, Vec<Arc<Shown>>>,
    /// Certificates for all other names.
    otherwise: Vec<Arc<Shown>>,
}

/// A certificate, with and without its staple.
#[derive(Debug)]
struct Shown {
    alone: Arc<CertifiedKey>,
    /// The certificate with its OCSP response, and the time in which that is valid.
    stapled: Option<(Window, Arc<CertifiedKey>)>,
}

impl Certificates {
    /// Certificates with a common name keep their order in `certificates`.
    pub fn new(
        certificates: &[Certificate],
        fall_back: bool,
        provider: &CryptoProvider,
    ) -> Result<Certificates, ConfigError> {
        let mut all = Certificates {
            exact: BTreeMap::new(),
            wild: BTreeMap::new(),
            otherwise: Vec::new(),
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
                    .or_default()
                    .push(shown.clone());
            }
            if fall_back {
                all.otherwise.push(shown);
            }
        }
        Ok(all)
    }

    /// The certificates for a name: exact ones first, then wildcards.
    fn named(&self, name: &str) -> Vec<&Shown> {
        let name = name.to_ascii_lowercase();
        let parent = name.split_once('.').map(|(_, parent)| parent);
        let wild = parent.and_then(|parent| self.wild.get(parent));
        let all = self.exact.get(&name).into_iter().chain(wild);
        all.flatten().map(|shown| &**shown).collect()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut candidates = hello
            .server_name()
            .map_or_else(Vec::new, |name| self.named(name));
        if candidates.is_empty() {
            candidates.extend(self.otherwise.iter().map(|shown| &**shown));
        }
        // A fallback for clients that can verify none: the handshake then fails with the first one.
        let chosen = verifiable(&candidates, hello.signature_schemes());
        let chosen = chosen.or_else(|| candidates.first().copied());
        chosen.map(|shown| shown.now().clone())
    }
}

/// The first certificate whose key signs with one of these schemes. Schemes of TLS 1.3 come first:
/// a resolver does not know the version, and PKCS #1 signatures belong to TLS 1.2 only.
fn verifiable<'a>(candidates: &[&'a Shown], schemes: &[SignatureScheme]) -> Option<&'a Shown> {
    let is_pkcs1 = |scheme: &SignatureScheme| {
        matches!(
            scheme,
            SignatureScheme::RSA_PKCS1_SHA256
                | SignatureScheme::RSA_PKCS1_SHA384
                | SignatureScheme::RSA_PKCS1_SHA512
        )
    };
    let of_both: Vec<_> = schemes
        .iter()
        .copied()
        .filter(|scheme| !is_pkcs1(scheme))
        .collect();
    [&of_both[..], schemes].into_iter().find_map(|schemes| {
        let signs = |shown: &&&Shown| shown.alone.key.choose_scheme(schemes).is_some();
        candidates.iter().find(signs).copied()
    })
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

/// Combines a chain with its key.
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
            "does not match the first certificate in chain",
        )),
        Err(error) => Err(field(
            &format!("{}.chain", certificate.field),
            error.to_string(),
        )),
    }
}

/// Returns true if the key is slow in a module.
pub fn is_slow(certificate: &Certificate, provider: &CryptoProvider) -> bool {
    match &certificate.key {
        own @ Key::Own(_) => own
            .load(provider)
            .is_ok_and(|key| key.algorithm() == SignatureAlgorithm::RSA),
        Key::Host(_) => false,
    }
}
