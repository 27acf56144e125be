//! The one error of this crate.

use std::{error, fmt};

/// An operation failed; which part is not told, so that nobody can build an oracle on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unspecified;

impl fmt::Display for Unspecified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cryptographic operation failed")
    }
}

impl error::Error for Unspecified {}
