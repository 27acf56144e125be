//! The calls of the system that the other files share, with their errors.

use std::ffi::{CString, c_int};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

/// An error number of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl Errno {
    /// Returns that of an error, or 0.
    pub fn of(error: &io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or_default())
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = io::Error::from(*self).to_string();
        // The number adds nothing for people.
        f.write_str(text.split(" (os error").next().unwrap_or_default())
    }
}

/// Returns the result of a call, or the error that it left.
pub fn check(done: c_int) -> Result<c_int, Errno> {
    match done {
        ..0 => Err(Errno::of(&io::Error::last_os_error())),
        _ => Ok(done),
    }
}

/// Enters new namespaces.
pub fn unshare(flags: c_int) -> Result<(), Errno> {
    // SAFETY: the process has one thread.
    check(unsafe { libc::unshare(flags) }).map(drop)
}

/// Enters the namespace of this kind that a file stands for.
pub fn set_namespace(file: &File, kind: c_int) -> Result<(), Errno> {
    // SAFETY: the process has one thread, and the call takes no pointers.
    check(unsafe { libc::setns(file.as_raw_fd(), kind) }).map(drop)
}

/// Mounts `source`, or a file system of this kind.
pub fn mount(
    source: &str,
    target: &Path,
    kind: &str,
    flags: libc::c_ulong,
    options: &str,
) -> Result<(), Errno> {
    let text = |text: &[u8]| CString::new(text).map_err(|_| Errno(libc::EINVAL));
    let (source, kind) = (text(source.as_bytes())?, text(kind.as_bytes())?);
    let (target, options) = (
        text(target.as_os_str().as_bytes())?,
        text(options.as_bytes())?,
    );
    let options = match options.is_empty() {
        true => null(),
        false => options.as_ptr().cast(),
    };
    // SAFETY: the texts live until the call returns.
    let done = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            options,
        )
    };
    check(done).map(drop)
}

/// Sends a signal.
pub fn kill(process: libc::pid_t, signal: c_int) -> Result<(), Errno> {
    // SAFETY: the call takes no pointers.
    check(unsafe { libc::kill(process, signal) }).map(drop)
}

/// Makes a copy of this process, which must have one thread. Returns the child, or `None` in it.
pub fn fork() -> Result<Option<libc::pid_t>, Errno> {
    // SAFETY: the process has one thread, so that no lock is held in the copy.
    let child = check(unsafe { libc::fork() })?;
    Ok((child != 0).then_some(child))
}
