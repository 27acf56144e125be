use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Fetched;
use crate::error::FetchError;
use crate::record::Validators;
use crate::task::blocking;

/// The file at this path. Whatever is there is read, a link too, and no further than `limit`; it
/// may change under the reader's hands, and is then refused for what was read.
pub(super) async fn fetch(path: &Path, limit: u64) -> Result<Fetched, FetchError> {
    let path = path.to_owned();
    let bytes = blocking(move || read(&path, limit)).await?;
    Ok(Fetched::File(bytes, Validators::default()))
}

/// A pipe or a device could keep the reader for ever.
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
