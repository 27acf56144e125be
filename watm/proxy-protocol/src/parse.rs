use crate::header::Header;
use crate::refused::Refused;
use crate::{v1, v2};

/// The longest header that is taken by default: with all that HAProxy sends of TLS, but for a
/// client's certificate.
pub const LONGEST: usize = 536;

/// Which headers are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Version 1.
    pub v1: bool,
    /// Version 2.
    pub v2: bool,
    /// Bytes of a header of version 2. One of version 1 has at most 107.
    pub longest: usize,
    /// Take version 2's PROXY without addresses for LOCAL.
    pub unspecified_is_local: bool,
}

impl Default for Rules {
    /// Both versions, up to [`LONGEST`], with addresses.
    fn default() -> Rules {
        Rules {
            v1: true,
            v2: true,
            longest: LONGEST,
            unspecified_is_local: false,
        }
    }
}

/// What the beginning of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Not enough to tell: ask again with more behind it.
    Incomplete,
    /// A whole header, of so many bytes. What follows is the connection's.
    Complete(usize, Header<'a>),
}

/// Read a header at the front of `bytes`. Whether it comes at once or byte by byte is the same:
/// what is refused is refused whatever follows.
pub fn parse<'a>(bytes: &'a [u8], rules: &Rules) -> Result<Parsed<'a>, Refused> {
    if rules.v2 && begins(bytes, v2::SIGNATURE) {
        v2::parse(bytes, rules)
    } else if rules.v1 && begins(bytes, v1::SIGNATURE) {
        v1::parse(bytes)
    } else {
        Err(Refused::NotProxy)
    }
}

/// Whether `bytes` begin with `signature`, as far as they go.
fn begins(bytes: &[u8], signature: &[u8]) -> bool {
    let both = bytes.len().min(signature.len());
    bytes[..both] == signature[..both]
}
