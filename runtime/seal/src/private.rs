//! Files and folders that only their owner may read or write.
//!
//! Who may is said in modes on Unix and in access lists on Windows, so this is the one
//! place besides sockets that knows the operating system: everything that has
//! secrets to keep, or code to trust, comes here. On Windows nothing is said at all: a file
//! has the access list of its folder, and the folders that are used by default are
//! in the user's profile, which is closed to other users.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Make a file that its owner alone can read and write, and open it for writing. Fails if
/// there is one.
pub fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    system::close_file(&mut options);
    options.open(path)
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

/// Have what was made, removed and renamed in a folder reach the disk. On Windows a folder cannot
/// be flushed: renaming is written through by the file system's journal.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    system::sync_folder(path)
}

#[cfg(unix)]
mod system {
    use std::fs::{self, DirBuilder, File, OpenOptions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    pub(super) fn close_file(options: &mut OpenOptions) {
        options.mode(0o600);
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

    pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::{self, DirBuilder, OpenOptions};
    use std::io;
    use std::path::Path;

    pub(super) fn close_file(_: &mut OpenOptions) {}

    pub(super) fn close_directory(_: &mut DirBuilder) {}

    pub(super) fn check_own(path: &Path) -> io::Result<()> {
        fs::metadata(path).map(drop)
    }

    pub(super) fn is_open_to_others(path: &Path) -> io::Result<bool> {
        fs::metadata(path).map(|_| false)
    }

    pub(super) fn sync_folder(_: &Path) -> io::Result<()> {
        Ok(())
    }
}
