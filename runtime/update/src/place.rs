use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use watm_seal::state::{Files, System, beside, follow_links, replace, replace_shared};
use watm_seal::{MAX_FILE_BYTES, private};

use crate::record::Record;

/// How long an update waits for another of the same place, which ends by its own time limit.
const LONGEST_WAIT: Duration = Duration::from_secs(20 * 60);
/// Nobody notices this much.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Where a module is kept for its host: a file, and what belongs to it in the same folder.
///
/// | file | is |
/// |---|---|
/// | `NAME` | the module in use |
/// | `NAME.pending` | one that asks for more than is approved, kept aside |
/// | `NAME.part` | what has come so far of one |
/// | `NAME.update` | by which a server is asked only for what is new |
/// | `NAME.lock` | held while one update works |
///
/// Each is replaced as a whole: a power cut at any moment leaves the old one or the new one. The
/// module keeps its mode and, where the system allows that, its owner and group; a new one can be
/// read by everybody whom the umask does not exclude. The others can be read by their owner alone.
///
/// Where `NAME` is a symbolic link, the file that it leads to is replaced, and locked beside itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// This file, which need not be there; its folder must.
    pub fn new(path: impl Into<PathBuf>) -> Place {
        Place { path: path.into() }
    }

    /// Of the module in use.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Of the module that waits for an approval.
    pub fn pending(&self) -> PathBuf {
        beside(&self.path, ".pending")
    }

    /// Wait until no other update is at work here.
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
                        "another update of the same file does not end",
                    ));
                }
            }
        }
    }

    /// The module in use.
    pub(crate) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        System.read(&self.path, MAX_FILE_BYTES)
    }

    /// The module that waits for an approval.
    pub(crate) fn read_pending(&self) -> io::Result<Option<Vec<u8>>> {
        System.read(&self.pending(), MAX_FILE_BYTES)
    }

    /// Put a module into use. What waited is of no use any more.
    pub(crate) fn put(&self, module: &[u8]) -> io::Result<()> {
        replace_shared(&self.path, module)?;
        System.remove(&self.pending())
    }

    /// Keep a module aside.
    pub(crate) fn put_aside(&self, module: &[u8]) -> io::Result<()> {
        replace(&System, &self.pending(), module)
    }

    /// Of what has come so far.
    pub(crate) fn part(&self) -> PathBuf {
        beside(&self.path, ".part")
    }

    /// What is remembered; nothing if it cannot be read, since it saves work and decides nothing.
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
