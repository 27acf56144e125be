//! The few things that are done to files here.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::private;

/// What a state file is kept with: the system's files, or ones that a test takes the power from.
pub trait Files {
    /// Held as long as this lives.
    type Lock;

    /// Wait until no other process has this file locked, and lock it. It is made if it is missing.
    fn lock(&self, path: &Path) -> io::Result<Self::Lock>;

    /// All bytes, or an error beyond `limit`; `None` if there is no such file.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>>;

    /// Make a file that its owner alone can read and write, with these bytes, and have them
    /// reach the disk. Fails if there is one.
    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Remove a file if it is there.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Put a file in the place of another, in the same folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Have what was made, removed and renamed in a folder reach the disk.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The system's.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Files for System {
    type Lock = File;

    fn lock(&self, path: &Path) -> io::Result<File> {
        let file = private::open_file(path)?;
        file.lock()?;
        Ok(file)
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        match bytes.len() <= limit {
            true => Ok(Some(bytes)),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("is over {limit} bytes"),
            )),
        }
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = private::create_file(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        private::sync_folder(path)
    }
}

/// Make a file that its owner alone can read and write, such as one with a key, and have it reach
/// the disk. Fails if there is one.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    System.create(path, bytes)?;
    System.sync_folder(folder(path))
}

/// Put these bytes in the place of a file, or where there is none: by a file beside it (`NAME.new`)
/// that reaches the disk before it takes the other's place, so that after a power cut at any moment
/// there is the old file or the new one. Only one may do this at a time; see [`Files::lock`].
pub fn replace(files: &impl Files, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(path, ".new");
    // Left by a power cut; nobody else is writing it.
    files.remove(&new)?;
    files.create(&new, bytes)?;
    files.rename(&new, path)?;
    files.sync_folder(folder(path))
}

/// The file in the same folder whose name goes on with this.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(ending);
    path.into()
}

/// Where a file is.
pub(super) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
