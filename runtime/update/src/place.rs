//! Places: the file from which a host loads its module, and the files that belong to it. The
//! updater writes them.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use watm_seal::state::{Files, System, beside, follow_links, replace, replace_shared};
use watm_seal::{MAX_FILE_BYTES, private};

use crate::record::Record;

/// The longest wait for another update of the same place, whose own time limit is shorter.
const LONGEST_WAIT: Duration = Duration::from_secs(20 * 60);
/// The interval between attempts to lock, too short to notice.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// The place where a module is kept for its host: a file, and its companions in the same folder.
///
/// | file | is |
/// |---|---|
/// | `NAME` | the module in use |
/// | `NAME.pending` | a module that requests more than is approved, kept aside |
/// | `NAME.part` | a partial download |
/// | `NAME.update` | validators, for asking a server only for what is new |
/// | `NAME.lock` | held while one update works |
///
/// Each is replaced as a whole: a power cut at any moment leaves the old one or the new one. The
/// module keeps its mode and, where the system allows that, its owner and group. A new one can be
/// read by everybody whom the umask does not exclude. The others can be read by their owner alone.
///
/// A symbolic link stays: the file that it leads to is replaced, and the lock lies beside
/// that file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// Creates a place from the path of a file. The file need not exist; its folder must.
    pub fn new(path: impl Into<PathBuf>) -> Place {
        Place { path: path.into() }
    }

    /// Returns the path of the module in use.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the module that waits for approval.
    pub fn pending(&self) -> PathBuf {
        beside(&self.path, ".pending")
    }

    /// Waits until no other update works here, and locks the place.
    pub(crate) async fn lock(&self) -> io::Result<File> {
        // Links that lead to one file share its lock.
        let file = private::open_file(&beside(&follow_links(&self.path)?, ".lock"))?;
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    sleep(BETWEEN_TRIES).await;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::new(
                        io::ErrorKind::WouldBlock,
                        "another update of the same file is still running",
                    ));
                }
            }
        }
    }

    /// Reads the module in use.
    pub(crate) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        System.read(&self.path, MAX_FILE_BYTES)
    }

    /// Reads the module that waits for approval.
    pub(crate) fn read_pending(&self) -> io::Result<Option<Vec<u8>>> {
        System.read(&self.pending(), MAX_FILE_BYTES)
    }

    /// Puts a module into use, and removes the one that waited.
    pub(crate) fn put(&self, module: &[u8]) -> io::Result<()> {
        replace_shared(&self.path, module)?;
        System.remove(&self.pending())
    }

    /// Keeps a module aside.
    pub(crate) fn put_aside(&self, module: &[u8]) -> io::Result<()> {
        replace(&System, &self.pending(), module)
    }

    /// Returns the path of the partial download.
    pub(crate) fn part(&self) -> PathBuf {
        beside(&self.path, ".part")
    }

    /// Reads the record. Returns an empty one if it cannot be read, since it saves work and decides
    /// nothing.
    pub(crate) fn record(&self) -> Record {
        let bytes = System.read(&self.record_path(), Record::MAX_BYTES);
        bytes
            .ok()
            .flatten()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    pub(crate) fn write_record(&self, record: &Record) -> io::Result<()> {
        let bytes = serde_json::to_vec(record).map_err(io::Error::other)?;
        replace(&System, &self.record_path(), &bytes)
    }

    fn record_path(&self) -> PathBuf {
        beside(&self.path, ".update")
    }
}
