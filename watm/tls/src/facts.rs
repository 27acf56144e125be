//! Facts of certificates, and the names of ciphers and versions. Used throughout the crate.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::{CipherSuite, ProtocolVersion};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::names;

/// The facts of a client's certificate.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The last common name of the subject.
    pub common_name: Option<String>,
    /// The alternative names: DNS names in lower case.
    pub hosts: Vec<String>,
    pub uris: Vec<String>,
    pub emails: Vec<String>,
    /// The SHA-256 hash of the public key.
    pub key: [u8; 32],
}

impl Facts {
    /// Parses a certificate. Fails if it is malformed.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Facts, String> {
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|error| format!("not a certificate: {error}"))?;
        let mut facts = Facts {
            common_name: parsed
                .subject()
                .iter_common_name()
                .last()
                .and_then(|name| name.as_str().ok())
                .map(str::to_owned),
            ..Facts::default()
        };
        let hash = digest(&SHA256, parsed.public_key().raw);
        facts.key.copy_from_slice(hash.as_ref());
        let names = parsed.subject_alternative_name();
        for name in names
            .ok()
            .flatten()
            .iter()
            .flat_map(|names| &names.value.general_names)
        {
            match name {
                GeneralName::DNSName(name) => facts.hosts.push(name.to_ascii_lowercase()),
                GeneralName::URI(uri) => facts.uris.push((*uri).to_owned()),
                GeneralName::RFC822Name(email) => facts.emails.push((*email).to_owned()),
                _ => {}
            }
        }
        Ok(facts)
    }

    /// The alternative names, each with its kind in front.
    pub fn alternatives(&self) -> Vec<String> {
        let named = |kind: &'static str, names: &[String]| {
            let name = move |name: &String| format!("{kind}:{name}");
            names.iter().map(name).collect::<Vec<_>>()
        };
        [
            named("dns", &self.hosts),
            named("uri", &self.uris),
            named("email", &self.emails),
        ]
        .concat()
    }
}

/// The DNS names of a certificate: its alternative names or, without any, its common name.
pub fn hosts(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let facts = Facts::of(certificate)?;
    match facts.hosts.is_empty() {
        false => Ok(facts.hosts),
        true => Ok(facts
            .common_name
            .iter()
            .filter_map(|name| names::host(name))
            .collect()),
    }
}

/// The bits of a certificate's key, if it is an RSA key.
pub fn rsa_bits(certificate: &CertificateDer<'_>) -> Option<usize> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    match parsed.public_key().parsed().ok()? {
        PublicKey::RSA(key) => Some(key.key_size()),
        _ => None,
    }
}

/// Returns true if a certificate is outside its validity at `now`, in seconds since 1970.
pub fn is_out_of_date(certificate: &CertificateDer<'_>, now: u64) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let validity = parsed.validity();
        now < validity.not_before.timestamp() || now > validity.not_after.timestamp()
    })
}

/// Returns true if a certificate revocation list is past its next update.
pub fn is_stale(list: &CertificateRevocationListDer<'_>, now: u64) -> bool {
    CertificateRevocationList::from_der(list).is_ok_and(|(_, parsed)| {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        parsed
            .next_update()
            .is_some_and(|next| next.timestamp() < now)
    })
}

/// The name of a cipher (RFC 8446, and IANA's registry).
pub fn suite(suite: CipherSuite) -> String {
    format!("{suite:?}").replacen("TLS13_", "TLS_", 1)
}

/// The name of a version, as in OpenSSL.
pub fn version(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        _ => "unknown",
    }
}

/// Encodes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Formats a pin.
pub fn pin(key: &[u8; 32]) -> String {
    format!("sha256:{}", STANDARD.encode(key))
}

/// Parses a pin: `sha256:` and the hash of a public key (SubjectPublicKeyInfo).
pub fn parse_pin(text: &str) -> Result<[u8; 32], &'static str> {
    text.strip_prefix("sha256:")
        .and_then(base64)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or("expected sha256: and the hash of a public key in base64")
}

pub fn base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text.trim()).ok()
}
