//! What certificates say, and how things are called.

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

/// Of a client's certificate.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The last common name of its subject.
    pub common_name: Option<String>,
    /// Its alternative names: DNS names in lower case.
    pub hosts: Vec<String>,
    pub uris: Vec<String>,
    pub emails: Vec<String>,
    /// SHA-256 of its public key.
    pub key: [u8; 32],
}

impl Facts {
    /// Fails if it is no certificate.
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

    /// Its alternative names, each after its kind.
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

/// The DNS names that a certificate is for: its alternative names or, without any, its common one.
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

/// Bits of a certificate's key, if that is one of RSA.
pub fn rsa_bits(certificate: &CertificateDer<'_>) -> Option<usize> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    match parsed.public_key().parsed().ok()? {
        PublicKey::RSA(key) => Some(key.key_size()),
        _ => None,
    }
}

/// Whether a certificate is outside of the time that it is for, at these seconds since 1970.
pub fn is_out_of_date(certificate: &CertificateDer<'_>, now: u64) -> bool {
    X509Certificate::from_der(certificate).is_ok_and(|(_, parsed)| {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let validity = parsed.validity();
        now < validity.not_before.timestamp() || now > validity.not_after.timestamp()
    })
}

/// Whether the time is over for which a list of revoked certificates was made.
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

/// OpenSSL's name of a cipher, from [`suite`]: the PROXY protocol has these. Ciphers of TLS 1.3 have
/// IANA's name in OpenSSL too.
pub fn openssl_name(suite: &str) -> String {
    let Some((exchange, cipher)) = suite
        .strip_prefix("TLS_")
        .and_then(|name| name.split_once("_WITH_"))
    else {
        return suite.to_owned();
    };
    format!("{exchange}-{cipher}")
        .replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
        .replace("AES_", "AES")
        .replace('_', "-")
}

/// The name of a version, as OpenSSL has it.
pub fn version(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_2 => "TLSv1.2",
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        _ => "unknown",
    }
}

/// In hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// As a pin is written.
pub fn pin(key: &[u8; 32]) -> String {
    format!("sha256:{}", STANDARD.encode(key))
}

pub fn base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text.trim()).ok()
}
