//! Comparison of secrets.

use subtle::ConstantTimeEq;

use crate::error::Unspecified;

/// Returns `Ok` if the slices are equal, in a time that depends on their lengths only.
pub fn verify_slices_are_equal(a: &[u8], b: &[u8]) -> Result<(), Unspecified> {
    if bool::from(a.ct_eq(b)) {
        Ok(())
    } else {
        Err(Unspecified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_means_every_byte_and_the_length() {
        assert!(verify_slices_are_equal(b"abc", b"abc").is_ok());
        assert!(verify_slices_are_equal(b"", b"").is_ok());
        for other in [&b"abd"[..], b"xbc", b"ab", b"abcd", b""] {
            assert!(verify_slices_are_equal(b"abc", other).is_err());
        }
    }
}
