//! The few things that are done to files here.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::private;

/// Most symbolic links of a path that are followed, as in Linux.
const MOST_LINKS: usize = 40;

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
    replace_by(files, path, |new| files.create(new, bytes))
}

/// Replaces a file that others read too, as [`replace`] does. The new file has the mode of the old
/// one, and its owner and group as far as this user may give files away. A symbolic link stays, and the file that
/// it leads to is replaced.
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

/// The file that a path leads to through symbolic links, which need not be there.
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
    // Left by a power cut; nobody else is writing it.
    files.remove(&new)?;
    let replaced = create(&new).and_then(|()| files.rename(&new, path));
    if let Err(error) = replaced {
        // A full disk has better uses for it. The first error says why nothing was replaced.
        let _ = files.remove(&new);
        return Err(error);
    }
    files.sync_folder(folder(path))
}

fn write_synced(mut file: File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)?;
    file.sync_all()
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
