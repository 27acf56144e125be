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
    use std::process;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Returns a new folder for a test.
    fn made(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("watm-files-{}-{test}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let folder = made("read");
        let file = folder.join("file");
        assert_eq!(System.read(&file, 10).unwrap(), None);
        fs::write(&file, [7; 10]).unwrap();
        assert_eq!(System.read(&file, 10).unwrap(), Some(vec![7; 10]));
        let larger = System.read(&file, 9).unwrap_err();
        assert_eq!(larger.to_string(), "is larger than 9 bytes");
        // Any error but that of a missing file is one.
        assert!(System.read(&folder, 10).is_err());
        #[cfg(unix)]
        assert!(System.read(&file.join("below"), 10).is_err());
    }

    #[test]
    fn a_file_is_removed_if_it_is_there() {
        let folder = made("remove");
        let file = folder.join("file");
        fs::write(&file, b"x").unwrap();
        System.remove(&file).unwrap();
        assert!(!file.exists());
        System.remove(&file).unwrap();
        assert!(System.remove(&folder).is_err());
    }

    #[test]
    fn a_lock_waits_for_the_one_before() {
        let path = made("lock").join("lock");
        let first = System.lock(&path).unwrap();
        let (has, locked) = mpsc::channel();
        let other = thread::spawn(move || {
            let _second = System.lock(&path).unwrap();
            has.send(()).unwrap();
        });
        assert!(locked.recv_timeout(Duration::from_millis(100)).is_err());
        drop(first);
        locked.recv_timeout(Duration::from_secs(60)).unwrap();
        other.join().unwrap();
    }

    #[test]
    fn a_new_file_takes_no_others_place() {
        let file = made("new").join("key");
        write_new(&file, b"first").unwrap();
        assert!(write_new(&file, b"second").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"first");
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing_beside_it() {
        let folder = made("replace");
        let file = folder.join("file");
        replace(&System, &file, b"one").unwrap();
        replace(&System, &file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        // A folder with content is not replaced by a file.
        fs::create_dir_all(folder.join("taken/full")).unwrap();
        assert!(replace(&System, &folder.join("taken"), b"x").is_err());
        let mut left: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["file", "taken"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_its_file_is_replaced() {
        let folder = made("links");
        let (file, link) = (folder.join("file"), folder.join("link"));
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert_eq!(follow_links(&link).unwrap(), file);
        replace_shared(&link, b"one").unwrap();
        replace_shared(&link, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        // A ring of links, and a path below a file.
        std::os::unix::fs::symlink("ring", folder.join("ring")).unwrap();
        assert!(follow_links(&folder.join("ring")).is_err());
        assert!(follow_links(&file.join("below")).is_err());
        assert!(replace_shared(&file.join("below"), b"x").is_err());
    }

    #[test]
    fn a_name_alone_is_in_the_current_folder() {
        assert_eq!(folder(Path::new("file")), Path::new("."));
        assert_eq!(folder(Path::new("a/file")), Path::new("a"));
        assert_eq!(beside(Path::new("a/file"), ".new"), Path::new("a/file.new"));
    }
}
