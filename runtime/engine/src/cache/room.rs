//! The room of the cache on disk: `cache` keeps it within a bound, and drops first what was not used
//! for the longest time.
//!
//! Several processes may share the directory. Each removal is one call that may find the file gone,
//! and an entry that another process reads at that moment stays readable to it.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The age of a temporary file whose process must have ended before it was complete.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A file of the cache.
struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Marks an entry as used now. A failure only makes it look older.
pub(super) fn touch(path: &Path) {
    let file = File::options().write(true).open(path);
    let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
}

/// Removes entries of the directory until they leave room for `bytes` within `most`. Returns false
/// if there is no such room.
pub(super) fn free(directory: &Path, bytes: u64, most: u64) -> io::Result<bool> {
    let Some(rest) = most.checked_sub(bytes) else {
        return Ok(false);
    };
    let mut entries = read(directory)?;
    entries.sort_by_key(|entry| entry.used);
    let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    for entry in entries {
        if total <= rest {
            break;
        }
        match fs::remove_file(&entry.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => total -= entry.bytes,
        }
    }
    Ok(true)
}

/// Returns the entries, and removes temporary files that nobody writes any more.
fn read(directory: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for found in fs::read_dir(directory)? {
        let path = found?.path();
        // Another process may have removed it.
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("bin") => entries.push(entry(path, &metadata)?),
            Some("tmp") if is_abandoned(&metadata) => drop(fs::remove_file(&path)),
            _ => {}
        }
    }
    Ok(entries)
}

fn entry(path: PathBuf, metadata: &Metadata) -> io::Result<Entry> {
    Ok(Entry {
        path,
        bytes: metadata.len(),
        used: metadata.modified()?,
    })
}

fn is_abandoned(metadata: &Metadata) -> bool {
    let age = metadata
        .modified()
        .ok()
        .and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age > ABANDONED)
}
