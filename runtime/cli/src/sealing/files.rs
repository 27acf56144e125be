//! Files of the commands that seal and trust.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use watm_runtime::printable;
use watm_seal::{Root, SignedRoot};

use crate::failure::Failure;
use crate::inputs::read;

/// The longest reason, in bytes: a sentence with a few names in it.
const LONGEST_REASON: usize = 700;

/// Makes a failure for an unusable file. The reason may repeat parts of the file: it becomes one
/// line of bounded length.
pub(crate) fn invalid(path: &Path, reason: impl Display) -> Failure {
    let reason = reason.to_string();
    let reason = printable(&reason, LONGEST_REASON);
    Failure::unusable(format!("{}: {reason}", path.display()))
}

/// Parses a description in JSON.
pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    serde_json::from_slice(&read(path)?).map_err(|error| invalid(path, error))
}

/// Reads a root record with the signatures collected so far.
pub(crate) fn read_root(path: &Path) -> Result<SignedRoot, Failure> {
    SignedRoot::from_file(&read(path)?).map_err(|error| invalid(path, error))
}

/// Reads a root record that enough of its own keys have signed.
pub(crate) fn read_complete_root(path: &Path) -> Result<Root, Failure> {
    Root::trust(read_root(path)?).map_err(|error| invalid(path, error))
}

/// Writes a public file, and replaces an existing one.
pub(crate) fn write_output(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|error| invalid(path, error))
}

/// Returns the clock's time, in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
