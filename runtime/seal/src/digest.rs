//! SHA-256 digests of bodies, files and roots.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::Refused;
use crate::bytes::malformed;
use watm_types::hex;

/// A SHA-256, shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Hashes these bytes, as `sha256sum` does.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest::of_parts(&[bytes])
    }

    /// Hashes the concatenation of these parts.
    pub(crate) fn of_parts(parts: &[&[u8]]) -> Digest {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Digest(hash.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses 64 lower-case hexadecimal digits.
impl FromStr for Digest {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Digest, Refused> {
        match hex::decode_array(text) {
            Some(bytes) => Ok(Digest(bytes)),
            None => Err(malformed(
                "sha256",
                format!("{text:?}; must be 64 hexadecimal digits"),
            )),
        }
    }
}
