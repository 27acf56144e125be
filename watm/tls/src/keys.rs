//! Private keys: those in the configuration, and those that the host keeps. Used by `certificates`
//! and `config`.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use watm_core::ErrorCode;
use watm_core::signing::{self, PrivateKey};

/// The place of a private key.
#[derive(Debug)]
pub enum Key {
    /// A key in the configuration.
    Own(PrivateKeyDer<'static>),
    /// A key in the host, by its name.
    Host(String),
}

impl Key {
    /// The configuration field of the key.
    pub fn field(&self) -> &'static str {
        match self {
            Key::Own(_) => "key",
            Key::Host(_) => "host-key",
        }
    }

    /// Loads the key. The error says what is expected.
    pub fn load(&self, provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, String> {
        match self {
            Key::Own(key) => provider
                .key_provider
                .load_private_key(key.clone_key())
                .map_err(|_| {
                    "expected a P-256, P-384 or Ed25519 key, or an RSA key of at least 2048 bits"
                        .to_owned()
                }),
            Key::Host(name) => {
                let key = signing::host_key(name).map_err(|error| match error {
                    ErrorCode::AccessDenied => format!(
                        "the host has no key \"{name}\" for this module; name one that it has, or \
                         pass this one, such as with --key {name}=FILE"
                    ),
                    ErrorCode::NotSupported => {
                        "the host does not support keys; use the component on a host that does, \
                         or set key"
                            .to_owned()
                    }
                    error => format!("cannot use the host's key \"{name}\": {error}"),
                })?;
                Ok(Arc::new(HostKey::new(key)))
            }
        }
    }
}

/// A key with which the host signs.
struct HostKey {
    key: Arc<dyn PrivateKey>,
    public_key: Vec<u8>,
    schemes: Vec<SignatureScheme>,
}

impl HostKey {
    fn new(key: Box<dyn PrivateKey>) -> HostKey {
        let schemes = key.schemes().into_iter().map(SignatureScheme::from);
        HostKey {
            public_key: key.public_key(),
            schemes: schemes.collect(),
            key: key.into(),
        }
    }
}

impl SigningKey for HostKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut schemes = self.schemes.iter().copied();
        let scheme = schemes.find(|scheme| offered.contains(scheme))?;
        Some(Box::new(Signing {
            key: self.key.clone(),
            scheme,
        }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(&*self.public_key))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.schemes.first() {
            Some(SignatureScheme::ED25519 | SignatureScheme::ED448) => SignatureAlgorithm::ED25519,
            Some(
                SignatureScheme::ECDSA_NISTP256_SHA256
                | SignatureScheme::ECDSA_NISTP384_SHA384
                | SignatureScheme::ECDSA_NISTP521_SHA512,
            ) => SignatureAlgorithm::ECDSA,
            _ => SignatureAlgorithm::RSA,
        }
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKey")
            .field("schemes", &self.schemes)
            .finish_non_exhaustive()
    }
}

/// A pending signature.
struct Signing {
    key: Arc<dyn PrivateKey>,
    scheme: SignatureScheme,
}

impl Signer for Signing {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signed = self.key.sign(self.scheme.into(), message);
        signed.map_err(|error| Error::General(format!("the host failed to sign: {error}")))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signing").field(&self.scheme).finish()
    }
}
