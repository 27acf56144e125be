//! What went wrong, in words.

use rustls::{CertificateError, Error};
use watm_core::ErrorCode;

/// As what ends a connection.
pub fn code(error: &Error) -> ErrorCode {
    ErrorCode::Other(words(error))
}

/// For people: which check failed, or what the other end said.
pub fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(why) => format!("the certificate: {}", certificate(why)),
        Error::NoCertificatesPresented => "no client certificate".to_owned(),
        Error::AlertReceived(alert) => format!("the other end said: {alert:?}"),
        Error::NoApplicationProtocol => "alpn: no protocol in common".to_owned(),
        Error::PeerIncompatible(why) => format!("nothing in common: {why:?}"),
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
            "it is not signed under a root that is trusted".to_owned()
        }
        CertificateError::NotValidForName => "it is for another name".to_owned(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "it is not for {}, but for {}",
            expected.to_str(),
            presented.join(", ")
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is for another purpose".to_owned()
        }
        CertificateError::Revoked => "it is revoked".to_owned(),
        CertificateError::UnknownRevocationStatus => {
            "no list says whether it, or what it is signed by, is revoked".to_owned()
        }
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            "the list of what its issuer has revoked is out of date".to_owned()
        }
        CertificateError::BadSignature => "a signature is wrong".to_owned(),
        CertificateError::Other(why) => why.0.to_string(),
        error => error.to_string(),
    }
}
