//! The client certificates in the session of a ticket. Used by `tickets`.
//!
//! rustls gives a ticketer a session as bytes, without a parser for them. The layout is that of its
//! `ServerSessionValue`: name, version, cipher suite, secret, the flag for the extended master secret, certificates,
//! and fields not needed here. Bytes in another layout are no session. A ticket with such bytes is declined, which only
//! costs a full handshake.

use rustls::pki_types::CertificateDer;

/// Returns the certificates that the client presented, the end entity first; empty if it presented none.
pub fn client_certificates(session: &[u8]) -> Option<Vec<CertificateDer<'_>>> {
    let mut rest = Reader(session);
    if rest.flag()? {
        rest.vector::<1>()?;
    }
    let _version_and_cipher_suite = rest.take(4)?;
    let _secret = rest.vector::<1>()?;
    let _extended_master_secret = rest.flag()?;
    let mut certificates = Vec::new();
    if rest.flag()? {
        let mut chain = Reader(rest.vector::<3>()?);
        while !chain.0.is_empty() {
            certificates.push(CertificateDer::from(chain.vector::<3>()?));
        }
    }
    Some(certificates)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take(1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    /// Reads a vector behind its length, which has `N` bytes.
    fn vector<const N: usize>(&mut self) -> Option<&'a [u8]> {
        let length = self.take(N)?.iter();
        let length = length.fold(0, |length, byte| length << 8 | usize::from(*byte));
        self.take(length)
    }
}
