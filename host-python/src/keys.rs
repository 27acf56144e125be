//! WireGuard's keys: Curve25519 (RFC 7748) in base64, as `wg genkey` and `wg pubkey` write them.

use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use watm_runtime::private;
use x25519_dalek::{PublicKey, StaticSecret};

/// A new private key, in base64.
#[pyfunction]
pub fn genkey() -> PyResult<String> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| PyOSError::new_err(error.to_string()))?;
    // Clamped as RFC 7748 section 5 has it, so that it reads the same after any tool.
    key[0] &= 248;
    key[31] = (key[31] & 127) | 64;
    Ok(BASE64_STANDARD.encode(key))
}

/// The public key of a private key, both in base64.
#[pyfunction]
pub fn pubkey(private_key: &str) -> PyResult<String> {
    let key: [u8; 32] = BASE64_STANDARD
        .decode(private_key)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| PyValueError::new_err("Invalid key."))?;
    Ok(BASE64_STANDARD.encode(PublicKey::from(&StaticSecret::from(key))))
}

/// Whether other users may read or write the file that a key is in. Where files have no
/// modes, on Windows, that is not found out, and the answer is no.
#[pyfunction]
pub fn is_open_to_others(path: PathBuf) -> PyResult<bool> {
    Ok(private::is_open_to_others(&path)?)
}
