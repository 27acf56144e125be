//! Error messages for failed handshakes. Used throughout the crate.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Error, OtherError};
use watm_core::ErrorCode;

use crate::facts;

/// The bits of the shortest RSA key whose signatures ring verifies.
const SHORTEST_RSA: usize = 2048;

/// Converts to the error that ends a connection.
pub fn code(error: &Error) -> ErrorCode {
    ErrorCode::Other(words(error))
}

/// Describes an error for people: the failed check, or the alert of the other end.
pub fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => format!("the certificate: {}", certificate(why)),
        Error::NoCertificatesPresented => "no client certificate".to_owned(),
        Error::AlertReceived(alert) => format!("the peer sent the alert {alert:?}"),
        Error::NoApplicationProtocol => "alpn: no protocol in common".to_owned(),
        Error::PeerIncompatible(why) => format!("no common TLS parameters: {why:?}"),
        Error::InvalidMessage(why) => format!("not TLS: {why:?}"),
        error => error.to_string(),
    }
}

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "it is not signed by a trusted root (unknown issuer)".to_owned()
        }
        CertificateError::NotValidForName => "it is for another name".to_owned(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let expected = expected.to_str();
            match presented.join(", ") {
                none if none.is_empty() => format!("it is not for {expected}, and has no names"),
                names => format!("it is not for {expected}, but for {names}"),
            }
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is for another purpose".to_owned()
        }
        CertificateError::Revoked => "it is revoked".to_owned(),
        CertificateError::UnknownRevocationStatus => {
            "its revocation status, or that of an issuer, is unknown: no list (CRL) covers it"
                .to_owned()
        }
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            "the revocation list (CRL) of its issuer is out of date".to_owned()
        }
        CertificateError::BadSignature => "a signature is invalid".to_owned(),
        CertificateError::BadEncoding => "it is damaged: its encoding is not DER".to_owned(),
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed by an algorithm that is not supported, such as one with SHA-1".to_owned()
        }
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that is not supported".to_owned()
        }
        CertificateError::Other(why) => match why.0.downcast_ref::<webpki::Error>() {
            Some(error) => chain(error),
            None => why.0.to_string(),
        },
        error => error.to_string(),
    }
}

/// The broken rule of a chain (RFC 5280, section 6).
fn chain(error: &webpki::Error) -> String {
    use webpki::Error;
    let text = match error {
        Error::CaUsedAsEndEntity => {
            "it is a CA certificate (basic constraints), which a client or server cannot use"
        }
        Error::EndEntityUsedAsCa => {
            "it is signed by a certificate that is not a CA (basic constraints)"
        }
        Error::NameConstraintViolation => "its issuer may not sign for its names",
        Error::PathLenConstraintViolated | Error::MaximumPathDepthExceeded => {
            "there are more certificates between it and a root than are allowed"
        }
        Error::UnsupportedCertVersion => "it is not an X.509 version 3 certificate",
        Error::ExtensionValueInvalid
        | Error::MalformedExtensions
        | Error::MalformedNameConstraint
        | Error::MalformedDnsIdentifier => "it is damaged: an extension cannot be read",
        error => return format!("its chain is not valid: {error}"),
    };
    text.to_owned()
}

/// A signature that cannot be verified because the key that made it is too short.
#[derive(Debug)]
struct ShortKey {
    bits: usize,
}

impl fmt::Display for ShortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an RSA key of {} bits, expected {SHORTEST_RSA} or more",
            self.bits
        )
    }
}

impl std::error::Error for ShortKey {}

/// Replaces the error about a bad signature by one about a key in these certificates that is too
/// short: ring verifies none of its signatures.
pub fn explained<'a>(
    error: Error,
    shown: impl IntoIterator<Item = &'a CertificateDer<'a>>,
) -> Error {
    if error != Error::InvalidCertificate(CertificateError::BadSignature) {
        return error;
    }
    let short = |certificate| facts::rsa_bits(certificate).filter(|bits| *bits < SHORTEST_RSA);
    match shown.into_iter().find_map(short) {
        Some(bits) => {
            let short = OtherError(Arc::new(ShortKey { bits }));
            Error::InvalidCertificate(CertificateError::Other(short))
        }
        None => error,
    }
}
