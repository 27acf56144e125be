//! The state in a file, which the host and the commands load and update.

use std::io;
use std::path::{Path, PathBuf};

use super::files::{Files, System, beside, replace};
use super::{State, encoding};
use crate::Refused;

/// A state that survives the process, and a power cut at any moment: the file holds the state
/// before a change or the one after it.
///
/// A change is written to a temporary file (`NAME.new`), which reaches the disk before it replaces
/// the old file. Processes that share a state take turns with a lock file (`NAME.lock`).
#[derive(Debug, Clone)]
pub struct StateFile<F = System> {
    files: F,
    path: PathBuf,
}

impl StateFile {
    /// Creates a handle to the state at this path. The folder must exist; the file need not.
    pub fn new(path: impl Into<PathBuf>) -> StateFile {
        StateFile::with_files(System, path)
    }
}

impl<F: Files> StateFile<F> {
    /// Creates a handle as [`new`](StateFile::new) does, with these file operations.
    pub fn with_files(files: F, path: impl Into<PathBuf>) -> StateFile<F> {
        StateFile {
            files,
            path: path.into(),
        }
    }

    /// Loads the state. Returns an empty one if there is no file. A damaged file is an error and
    /// not an empty state, so that damaging it gains an attacker nothing.
    pub fn load(&self) -> Result<State, StateError> {
        let bytes = self
            .files
            .read(&self.path, encoding::MAX_BYTES)
            .map_err(|source| StateError::File {
                path: self.path.clone(),
                source,
            })?;
        match bytes {
            Some(bytes) => encoding::read(&bytes).map_err(|reason| StateError::Damaged {
                path: self.path.clone(),
                reason: Box::new(reason),
            }),
            None => Ok(State::default()),
        }
    }

    /// Reads the state, applies `change`, and writes the outcome if it differs. Once this has
    /// returned, the change has reached the disk. A folder that is full or read-only is a
    /// [`StateError::Write`], after which the file is as it was.
    pub fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, StateError> {
        let _lock = self
            .files
            .lock(&beside(&self.path, ".lock"))
            .map_err(|source| self.unwritable(source))?;
        let before = self.load()?;
        let mut state = before.clone();
        let outcome = change(&mut state);
        if state != before {
            replace(&self.files, &self.path, &encoding::write(&state))
                .map_err(|source| self.unwritable(source))?;
        }
        Ok(outcome)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn unwritable(&self, source: io::Error) -> StateError {
        StateError::Write {
            path: self.path.clone(),
            source,
        }
    }
}

/// The reason why a state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refuses to read it.
    #[error("{path}: the state cannot be read: {source}")]
    File {
        /// The path of the state.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refuses to write it: the disk is full or read-only, or the folder is another
    /// user's.
    #[error(
        "{path}: the state cannot be written: {source}; a new release, floor, approval or root \
         takes effect only once it is saved there"
    )]
    Write {
        /// The path of the state.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Its content is damaged.
    #[error(
        "{path}: {reason}; restore it from a backup, or remove it to keep only the floors of this \
         host"
    )]
    Damaged {
        /// The path of the state.
        path: PathBuf,
        /// The damage.
        reason: Box<Refused>,
    },
}
