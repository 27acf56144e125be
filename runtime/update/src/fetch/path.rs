//! Local files as sources. Used by `fetch` and `folder`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Fetched;
use crate::error::FetchError;
use crate::record::Validators;
use crate::task::blocking;

/// Reads the file at this path, also through a link, up to `limit` bytes. If it changes during the
/// read, verification refuses the bytes that were read.
pub(super) async fn fetch(path: &Path, limit: u64) -> Result<Fetched, FetchError> {
    let path = path.to_owned();
    let bytes = blocking(move || read(&path, limit)).await?;
    Ok(Fetched::File(bytes, Validators::default()))
}

/// Reads a regular file. A pipe or a device could block the reader indefinitely.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, FetchError> {
    if !std::fs::metadata(path)?.is_file() {
        let reason = "must be a file or a folder";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason).into());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= limit {
        true => Ok(bytes),
        false => Err(FetchError::TooLarge { limit }),
    }
}
