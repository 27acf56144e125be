//! The check of clients by their certificates. Used by `config`, `tickets` and `transport`.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error, OtherError, RootCertStore};

use crate::facts::{self, Facts};
use crate::signatures::signatures_by_provider;
use crate::{failure, names};

/// The configured rules.
#[derive(Debug)]
pub struct Clients {
    pub wanted: Wanted,
    /// The accepted roots. `None`: keys are pinned.
    pub roots: Option<RootCertStore>,
    /// The lists of revoked certificates under the roots.
    pub crls: Vec<CertificateRevocationListDer<'static>>,
    /// True if lists past their next update still count.
    pub stale_crls: bool,
    /// The allowed clients. Empty: all clients with a valid certificate.
    pub allow: Vec<Allow>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Optional,
    Required,
}

/// An allowed identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allow {
    CommonName(String),
    Host(String),
    Uri(String),
    Email(String),
    Key([u8; 32]),
}

impl Allow {
    /// Parses an entry. The error says what is expected.
    pub fn parse(text: &str) -> Result<Allow, &'static str> {
        const EXPECTED: &str =
            "expected cn:, dns:, uri: or email: before a name, or spki:sha256: before a hash";
        let (kind, rest) = text.split_once(':').ok_or(EXPECTED)?;
        if rest.is_empty() {
            return Err(EXPECTED);
        }
        match kind {
            "cn" => Ok(Allow::CommonName(rest.to_owned())),
            "dns" => names::host(rest)
                .map(Allow::Host)
                .ok_or("expected a name such as example.com or *.example.com after dns:"),
            "uri" => Ok(Allow::Uri(rest.to_owned())),
            "email" => Ok(Allow::Email(rest.to_owned())),
            "spki" => facts::parse_pin(rest).map(Allow::Key),
            _ => Err(EXPECTED),
        }
    }

    /// Returns true if it pins a key, and thus needs no root.
    pub fn is_pin(&self) -> bool {
        matches!(self, Allow::Key(_))
    }

    fn has(&self, facts: &Facts) -> bool {
        let among = |names: &[String], pattern: &str| {
            names.iter().any(|name| names::is_like(pattern, name, '/'))
        };
        match self {
            Allow::CommonName(pattern) => facts
                .common_name
                .as_ref()
                .is_some_and(|name| names::is_like(pattern, name, '/')),
            Allow::Host(pattern) => facts.hosts.iter().any(|name| names::is_host(pattern, name)),
            Allow::Uri(pattern) => among(&facts.uris, pattern),
            Allow::Email(pattern) => among(&facts.emails, pattern),
            Allow::Key(key) => facts.key == *key,
        }
    }
}

/// Judges certificates of clients.
pub struct Gate {
    chain: Option<Arc<dyn ClientCertVerifier>>,
    provider: Arc<CryptoProvider>,
    allow: Vec<Allow>,
    wanted: Wanted,
    /// True if the handshake admits every client, and the judgement follows it.
    later: bool,
}

impl Gate {
    /// Fails if the roots or the revocation lists cannot be used.
    pub fn new(
        clients: &Clients,
        provider: &Arc<CryptoProvider>,
        later: bool,
    ) -> Result<Gate, String> {
        let chain = clients.roots.as_ref().map(|roots| {
            let roots = Arc::new(roots.clone());
            let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
                .allow_unauthenticated()
                .with_crls(clients.crls.iter().cloned());
            if !clients.stale_crls {
                builder = builder.enforce_revocation_expiration();
            }
            builder.build().map_err(|error| error.to_string())
        });
        Ok(Gate {
            chain: chain.transpose()?,
            provider: provider.clone(),
            allow: clients.allow.clone(),
            wanted: clients.wanted,
            later,
        })
    }

    /// Checks the certificates that a client presented. The error is the reason for refusing it.
    pub fn judge(&self, shown: Option<&[CertificateDer<'_>]>, now: UnixTime) -> Result<(), String> {
        match shown.and_then(<[_]>::split_first) {
            None if self.wanted == Wanted::Required => Err("no client certificate".to_owned()),
            None => Ok(()),
            Some((end, intermediates)) => self
                .check(end, intermediates, now)
                .map_err(|error| failure::words(&error)),
        }
    }

    fn check(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let facts =
            Facts::of(end).map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let found = self.allow.iter().find(|allow| allow.has(&facts));
        if found.is_some_and(Allow::is_pin) {
            return Ok(());
        }
        match &self.chain {
            Some(chain) => chain
                .verify_client_cert(end, intermediates, now)
                .map(drop)
                .map_err(|error| failure::explained(error, intermediates))?,
            None => return Err(not_allowed()),
        }
        match found.is_some() || self.allow.is_empty() {
            true => Ok(()),
            false => Err(not_allowed()),
        }
    }
}

fn not_allowed() -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(NotAllowed))))
}

/// The error for a valid certificate that is not allowed.
#[derive(Debug)]
struct NotAllowed;

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client is not in the allow list")
    }
}

impl std::error::Error for NotAllowed {}

impl ClientCertVerifier for Gate {
    fn client_auth_mandatory(&self) -> bool {
        self.wanted == Wanted::Required && !self.later
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A pinned key may come from any issuer.
        match &self.chain {
            Some(chain) if !self.allow.iter().any(Allow::is_pin) => chain.root_hint_subjects(),
            _ => &[],
        }
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if !self.later {
            self.check(end, intermediates, now)?;
        }
        Ok(ClientCertVerified::assertion())
    }

    signatures_by_provider!();
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}
