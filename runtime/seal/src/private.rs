//! Files and folders that only their owner may read or write.
//!
//! Who may is said in modes on Unix and in access lists on Windows, so this is the one
//! place besides sockets that knows the operating system: everything that has
//! secrets to keep, or code to trust, comes here. On Windows nothing is said at all: a file
//! has the access list of its folder, and the folders that are used by default are
//! in the user's profile, which is closed to other users.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Make a file that its owner alone can read and write, and open it for writing. Fails if
/// there is one.
pub fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    system::close_file(&mut options);
    options.open(path)
}

/// Makes a file for everybody who may read `old`, and opens it for writing: with the mode of `old`,
/// and with its owner and group as far as this user may give files away. Without `old` others may
/// read it, unless the umask says otherwise. Fails if there is one.
pub(crate) fn create_like(path: &Path, old: Option<&Metadata>) -> io::Result<File> {
    system::create_like(path, old)
}

/// As [`create_file`], or open the one that is there, with what is in it.
pub fn open_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    system::close_file(&mut options);
    options.open(path)
}

/// Make a folder, and those above it, that their owner alone can enter. One that is
/// there already stays as it is.
pub fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    system::close_directory(&mut builder);
    builder.create(path)
}

/// Fail if this file or folder belongs to somebody else, or if somebody else may write
/// to it. The error says what would be right. On Windows that is not found out.
pub fn check_own(path: &Path) -> io::Result<()> {
    system::check_own(path)
}

/// Whether other users may read or write this file, by its mode. On Windows that is not
/// found out, and the answer is no.
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    system::is_open_to_others(path)
}

/// This file or its folder, whichever every user may write, so that the file is not its owner's to
/// decide about; `None`: neither is. A folder in which users remove their own files alone (the sticky
/// bit) is not. On Windows that is not found out.
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

/// Have what was made, removed and renamed in a folder reach the disk. On Windows a folder cannot
/// be flushed: renaming is written through by the file system's journal.
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
        // Another group may do what everybody may.
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
            return refuse("belongs to another user; it must be one's own".into());
        }
        if metadata.mode() & 0o022 != 0 {
            return refuse(format!(
                "mode {:o} lets others write; it must be private (chmod 700)",
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
