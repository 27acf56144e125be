//! WireGuard keys for Python programs: Curve25519 (RFC 7748) in base64, as `wg genkey` and `wg
//! pubkey` write them.

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use watm_runtime::private;
use x25519_dalek::{PublicKey, StaticSecret};

/// Generates a private key, in base64.
#[pyfunction]
pub fn genkey() -> PyResult<String> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| PyOSError::new_err(error.to_string()))?;
    // Clamped as in RFC 7748, section 5, so that it reads the same after any tool.
    key[0] &= 248;
    key[31] = (key[31] & 127) | 64;
    Ok(BASE64_STANDARD.encode(key))
}

/// Returns the public key of a private key, both in base64.
#[pyfunction]
pub fn pubkey(private_key: &str) -> PyResult<String> {
    let key: [u8; 32] = BASE64_STANDARD
        .decode(private_key)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| PyValueError::new_err("Invalid key."))?;
    Ok(BASE64_STANDARD.encode(PublicKey::from(&StaticSecret::from(key))))
}

/// Returns True if other users may read or write the file of a key. Always False on Windows, where
/// files have no modes.
#[pyfunction]
pub fn is_open_to_others(path: PathBuf) -> PyResult<bool> {
    Ok(private::is_open_to_others(&path)?)
}
