//! The parser of both versions, for the codec, for datagrams and for other programs.

use watm_proxy_header::SIGNATURE;

use crate::header::Header;
use crate::refused::Refused;
use crate::{v1, v2};

/// The default limit of a header in bytes: enough for everything that HAProxy sends about TLS,
/// except a client's certificate.
pub const LONGEST: usize = 536;

/// The headers that are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// True if version 1 is accepted.
    pub v1: bool,
    /// True if version 2 is accepted.
    pub v2: bool,
    /// The longest header of version 2 in bytes. A header of version 1 has at most 107.
    pub longest: usize,
    /// True if version 2's PROXY without addresses counts as LOCAL.
    pub unspecified_is_local: bool,
}

impl Default for Rules {
    /// Accepts both versions, up to [`LONGEST`], with addresses.
    fn default() -> Rules {
        Rules {
            v1: true,
            v2: true,
            longest: LONGEST,
            unspecified_is_local: false,
        }
    }
}

/// The result of parsing the beginning of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// More bytes are needed: parse again when they have arrived.
    Incomplete,
    /// A complete header of this length in bytes. The rest is the connection's data.
    Complete(usize, Header<'a>),
}

/// Parses a header at the front of `bytes`. The result does not depend on how the bytes arrive:
/// refused bytes are refused whatever follows.
pub fn parse<'a>(bytes: &'a [u8], rules: &Rules) -> Result<Parsed<'a>, Refused> {
    if rules.v2 && begins(bytes, SIGNATURE) {
        v2::parse(bytes, rules)
    } else if rules.v1 && begins(bytes, v1::SIGNATURE) {
        v1::parse(bytes)
    } else {
        Err(Refused::NotProxy)
    }
}

/// Returns true if `bytes` begin with `signature`, or are its beginning.
fn begins(bytes: &[u8], signature: &[u8]) -> bool {
    let both = bytes.len().min(signature.len());
    bytes[..both] == signature[..both]
}
