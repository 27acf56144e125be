//! Files and folders that only their owner may read or write. Everything that keeps secrets or
//! trusted code uses it: states, keys, and the cache of compiled modules.
//!
//! Access is controlled by modes on Unix and by access lists on Windows, so this module knows the
//! operating system. On Windows it sets nothing: a file inherits the access list of its folder, and
//! the default folders lie in the user's profile, which is closed to other users.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Creates a file that only its owner can read and write, and opens it for writing. Fails if it
/// exists.
pub fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    system::close_file(&mut options);
    options.open(path)
}

/// Creates a file for everybody who may read `old`, and opens it for writing. It has the mode of
/// `old`, and its owner and group as far as this user may give files away. Without `old`, others
/// may read it unless the umask forbids that. Fails if the file exists.
pub(crate) fn create_like(path: &Path, old: Option<&Metadata>) -> io::Result<File> {
    system::create_like(path, old)
}

/// Creates a file as [`create_file`] does, or opens an existing one and keeps its content.
pub fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    system::close_file(&mut options);
    options.open(path)
}

/// Creates a folder and its missing parents that only their owner can enter. An existing folder
/// keeps its mode.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    system::close_directory(&mut builder);
    builder.create(path)
}

/// Fails if this file or folder belongs to another user, or if another user may write to it. The
/// error says what would be right. Not checked on Windows.
pub fn check_own(path: &Path) -> io::Result<()> {
    system::check_own(path)
}

/// Returns true if other users may read or write this file, by its mode. Always false on Windows,
/// where it is not checked.
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    system::is_open_to_others(path)
}

/// Returns this file or its folder if every user may write to it, so that its owner does not
/// control the file. Returns `None` if neither is writable. A folder with the sticky bit, in which
/// users remove only their own files, does not count. Not checked on Windows.
pub fn writable_by_everybody(path: &Path) -> Option<PathBuf> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => path,
    };
    let mut both = [path, folder].into_iter();
    both.find(|path| system::is_writable_by_everybody(path))
        .map(Path::to_owned)
}

/// Flushes the entries of a folder to disk: files made, removed and renamed. On Windows a folder
/// cannot be flushed; the file system's journal writes renames through.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    system::sync_folder(path)
}

#[cfg(unix)]
mod system {
    use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
    use std::path::Path;

    pub(super) fn close_file(options: &mut OpenOptions) {
        options.mode(0o600);
    }

    pub(super) fn create_like(path: &Path, old: Option<&Metadata>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let Some(old) = old else {
            return options.mode(0o644).open(path);
        };
        let file = options.mode(0o600).open(path)?;
        let (user, group) = (Some(old.uid()), Some(old.gid()));
        let keeps_group = fchown(&file, user, group)
            .or_else(|_| fchown(&file, None, group))
            .is_ok();
        let mode = old.mode() & 0o777;
        // A new group gets the permissions that everybody has.
        let mode = match keeps_group {
            true => mode,
            false => (mode & 0o707) | (mode & (mode << 3) & 0o070),
        };
        file.set_permissions(Permissions::from_mode(mode))?;
        Ok(file)
    }

    pub(super) fn close_directory(builder: &mut DirBuilder) {
        builder.mode(0o700);
    }

    pub(super) fn check_own(path: &Path) -> io::Result<()> {
        let metadata = fs::metadata(path)?;
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return refuse(
                "belongs to another user; must belong to the user of this process".into(),
            );
        }
        if metadata.mode() & 0o022 != 0 {
            return refuse(format!(
                "mode {:o} lets other users write; must be private (chmod 700)",
                metadata.mode() & 0o777
            ));
        }
        Ok(())
    }

    pub(super) fn is_open_to_others(path: &Path) -> io::Result<bool> {
        Ok(fs::metadata(path)?.mode() & 0o077 != 0)
    }

    pub(super) fn is_writable_by_everybody(path: &Path) -> bool {
        const EVERYBODY: u32 = 0o002;
        const STICKY: u32 = 0o1000;
        fs::metadata(path).is_ok_and(|found| {
            let mode = found.mode();
            mode & EVERYBODY != 0 && !(found.is_dir() && mode & STICKY != 0)
        })
    }

    pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
    use std::io;
    use std::path::Path;

    pub(super) fn close_file(_: &mut OpenOptions) {}

    pub(super) fn create_like(path: &Path, _: Option<&Metadata>) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(path)
    }

    pub(super) fn close_directory(_: &mut DirBuilder) {}

    pub(super) fn check_own(path: &Path) -> io::Result<()> {
        fs::metadata(path).map(drop)
    }

    pub(super) fn is_open_to_others(path: &Path) -> io::Result<bool> {
        fs::metadata(path).map(|_| false)
    }

    pub(super) fn is_writable_by_everybody(_: &Path) -> bool {
        false
    }

    pub(super) fn sync_folder(_: &Path) -> io::Result<()> {
        Ok(())
    }
}
