//! The issuer's response on the status of a certificate, for clients that ask (OCSP, RFC 6960).
//! Used by `certificates`, `config` and `transport`.
//!
//! A client treats a response that is too old, or for another certificate, as an attack, and
//! usually accepts a missing one. A response for another certificate is therefore refused, and one
//! that is not valid now is not sent.

use der::Decode;
use der::asn1::ObjectIdentifier;
use ring::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512, digest};
use rustls::pki_types::CertificateDer;
use x509_ocsp::{
    BasicOcspResponse, CertId, CertStatus, OcspGeneralizedTime, OcspResponse, OcspResponseStatus,
    SingleResponse,
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// `id-pkix-ocsp-basic` (RFC 6960, section 4.2.1).
const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");

/// The seconds by which a responder's clock may be ahead of the local one, as in OpenSSL and
/// haproxy.
const SKEW: u64 = 300;

/// A response with the status good.
#[derive(Debug)]
pub struct Staple {
    pub response: Vec<u8>,
    pub window: Window,
}

/// The validity of a response, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: u64,
    pub until: u64,
}

/// The validity of a response at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    Early,
    Good,
    Late,
}

impl Staple {
    /// Parses a response in DER, for the first certificate of this chain. The error says what is
    /// wrong.
    pub fn new(response: Vec<u8>, chain: &[CertificateDer<'_>]) -> Result<Staple, String> {
        let said = basic(&response).map_err(|why| {
            format!("expected a successful OCSP response in DER, in base64: {why}")
        })?;
        let certificate = parsed(chain.first())?;
        let issuer = chain
            .get(1)
            .map(|issuer| parsed(Some(issuer)))
            .transpose()?;
        let is_of =
            |single: &&SingleResponse| is_of(&single.cert_id, &certificate, issuer.as_ref());
        let single = said.tbs_response_data.responses.iter().find(is_of);
        let single =
            single.ok_or("does not belong to the first certificate of chain or its issuer")?;
        match single.cert_status {
            CertStatus::Good(_) => {}
            CertStatus::Revoked(_) => return Err("says that the certificate is revoked".to_owned()),
            CertStatus::Unknown(_) => {
                return Err("says that its issuer does not know the certificate".to_owned());
            }
        }
        let until = single.next_update.as_ref().map(seconds);
        Ok(Staple {
            window: Window {
                from: seconds(&single.this_update),
                until: until.ok_or("has no end of validity (nextUpdate)")?,
            },
            response,
        })
    }
}

impl Window {
    /// The validity at `now`, in seconds since 1970.
    pub fn validity(&self, now: u64) -> Validity {
        match () {
            () if now > self.until => Validity::Late,
            () if now + SKEW < self.from => Validity::Early,
            () => Validity::Good,
        }
    }
}

fn basic(response: &[u8]) -> Result<BasicOcspResponse, String> {
    let outer = OcspResponse::from_der(response).map_err(|error| error.to_string())?;
    if outer.response_status != OcspResponseStatus::Successful {
        return Err(format!("its status is {:?}", outer.response_status));
    }
    let bytes = outer.response_bytes.ok_or("it has no content")?;
    if bytes.response_type != BASIC {
        return Err("it is not of the basic type".to_owned());
    }
    BasicOcspResponse::from_der(bytes.response.as_bytes()).map_err(|error| error.to_string())
}

fn parsed<'a>(certificate: Option<&'a CertificateDer<'_>>) -> Result<X509Certificate<'a>, String> {
    let certificate = certificate.ok_or("the chain is empty")?;
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => Ok(parsed),
        Err(error) => Err(format!("a certificate of chain: {error}")),
    }
}

/// Returns true if `id` names this certificate. Checks the issuer's key if its certificate is
/// known.
fn is_of(
    id: &CertId,
    certificate: &X509Certificate<'_>,
    issuer: Option<&X509Certificate<'_>>,
) -> bool {
    let Some(algorithm) = algorithm(id.hash_algorithm.oid) else {
        return false;
    };
    let is = |hash: &[u8], of: &[u8]| digest(algorithm, of).as_ref() == hash;
    let is_key = |issuer: &X509Certificate<'_>| {
        is(
            id.issuer_key_hash.as_bytes(),
            &issuer.public_key().subject_public_key.data,
        )
    };
    digits(id.serial_number.as_bytes()) == digits(certificate.raw_serial())
        && is(
            id.issuer_name_hash.as_bytes(),
            certificate.issuer().as_raw(),
        )
        && issuer.is_none_or(is_key)
}

/// The digits of a number without leading zeros.
fn digits(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// The hash algorithm of an OID (RFC 3279, section 2.2.1; RFC 5754, section 2).
fn algorithm(oid: ObjectIdentifier) -> Option<&'static Algorithm> {
    let known = [
        ("1.3.14.3.2.26", &SHA1_FOR_LEGACY_USE_ONLY),
        ("2.16.840.1.101.3.4.2.1", &SHA256),
        ("2.16.840.1.101.3.4.2.2", &SHA384),
        ("2.16.840.1.101.3.4.2.3", &SHA512),
    ];
    let found = known
        .into_iter()
        .find(|(name, _)| oid == ObjectIdentifier::new_unwrap(name));
    found.map(|(_, algorithm)| algorithm)
}

fn seconds(time: &OcspGeneralizedTime) -> u64 {
    time.0.to_unix_duration().as_secs()
}
