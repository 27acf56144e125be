//! File operations that survive power cuts. `StateFile`, and the commands and updates that replace
//! files, use them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::private;

/// The most symbolic links of a path that are followed, as in Linux.
const MOST_LINKS: usize = 40;

/// The file operations of a state file: the system's, or a test's that simulates power cuts.
pub trait Files {
    /// A lock, held until it is dropped.
    type Lock;

    /// Waits until no other process has locked this file, and locks it. Creates it if it is
    /// missing.
    fn lock(&self, path: &Path) -> io::Result<Self::Lock>;

    /// Reads the whole file. Fails beyond `limit` bytes. Returns `None` if there is no such file.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Option<Vec<u8>>>;

    /// Creates a file that only its owner can read and write, writes these bytes, and flushes them
    /// to disk. Fails if the file exists.
    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Removes a file if it exists.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Replaces a file with another of the same folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Flushes the entries of a folder to disk: files made, removed and renamed.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The system's file operations.
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
                format!("is larger than {limit} bytes"),
            )),
        }
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        write_synced(private::create_file(path)?, bytes)
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

/// Creates a file that only its owner can read and write, such as a key, and flushes it to disk.
/// Fails if the file exists.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    System.create(path, bytes)?;
    System.sync_folder(folder(path))
}

/// Replaces or creates a file with these bytes. A temporary file (`NAME.new`) reaches the disk
/// before it replaces the old one, so a power cut at any moment leaves the old file or the new one.
/// Only one process may do this at a time; see [`Files::lock`].
pub fn replace(files: &impl Files, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_by(files, path, |new| files.create(new, bytes))
}

/// Replaces a file that others read too, as [`replace`] does. The new file has the mode of the old
/// one, and its owner and group as far as this user may give files away. A symbolic link stays, and
/// the file that it leads to is replaced.
pub fn replace_shared(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = &follow_links(path)?;
    let old = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other?),
    };
    replace_by(&System, path, |new| {
        write_synced(private::create_like(new, old.as_ref())?, bytes)
    })
}

/// Returns the file that a path leads to through symbolic links. It need not exist.
pub fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => path = folder(&path).join(fs::read_link(&path)?),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return Ok(path),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("leads through more than {MOST_LINKS} symbolic links"),
    ))
}

fn replace_by(
    files: &impl Files,
    path: &Path,
    create: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let new = beside(path, ".new");
    // A leftover of a power cut: nobody else writes it.
    files.remove(&new)?;
    let replaced = create(&new).and_then(|()| files.rename(&new, path));
    if let Err(error) = replaced {
        // A full disk needs the space. The first error says why nothing was replaced.
        let _ = files.remove(&new);
        return Err(error);
    }
    files.sync_folder(folder(path))
}

fn write_synced(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
}

/// Appends an ending to the file name of a path.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = OsString::from(path);
    path.push(ending);
    path.into()
}

/// Returns the folder that contains a file.
pub(super) fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_is_in_the_current_folder() {
        assert_eq!(folder(Path::new("file")), Path::new("."));
        assert_eq!(folder(Path::new("a/file")), Path::new("a"));
        assert_eq!(beside(Path::new("a/file"), ".new"), Path::new("a/file.new"));
    }
}
