//! Files with descriptions and roots, and the time of a seal.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use watm_seal::{Root, SignedRoot};
use watm_types::Error;

use crate::unusable::{Unusable, invalid};

/// Reads a file. The error names it.
pub fn read(path: &Path) -> Result<Vec<u8>, Unusable> {
    let path = path.to_owned();
    fs::read(&path).map_err(|source| Unusable(Error::File { path, source }.to_string()))
}

/// Parses a description in JSON.
pub fn parse_json<T: DeserializeOwned>(path: &Path) -> Result<T, Unusable> {
    serde_json::from_slice(&read(path)?).map_err(|error| invalid(path, error))
}

/// Reads a root record with the signatures collected so far.
pub fn read_root(path: &Path) -> Result<SignedRoot, Unusable> {
    SignedRoot::from_file(&read(path)?).map_err(|error| invalid(path, error))
}

/// Reads a root record that enough of its own keys have signed.
pub fn read_complete_root(path: &Path) -> Result<Root, Unusable> {
    Root::trust(read_root(path)?).map_err(|error| invalid(path, error))
}

/// Writes a public file, and replaces an existing one.
pub fn write_output(path: &Path, bytes: &[u8]) -> Result<(), Unusable> {
    fs::write(path, bytes).map_err(|error| invalid(path, error))
}

/// Returns the clock's time, in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
