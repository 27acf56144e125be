//! The only error of this crate.

use std::{error, fmt};

/// The error of a failed operation. It names no cause, so that it is no oracle for attackers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unspecified;

impl fmt::Display for Unspecified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cryptographic operation failed")
    }
}

impl error::Error for Unspecified {}
