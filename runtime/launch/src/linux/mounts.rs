//! Gives the program other contents of some files, in its own mount namespace. `helper` calls it.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::namespaces::explain;
use super::sys::{Errno, check, mount};
use crate::Plan;

/// The file with the name servers.
const RESOLVERS: &str = "/etc/resolv.conf";

/// Sockets of services that answer for the network outside. Names go through the device without
/// them, because libraries then read the file above.
const ANSWER_FOR_OUTSIDE: [&str; 3] = [
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/nscd/socket",
    "/var/run/nscd/socket",
];

/// Folders of which one is covered for a moment.
const FOLDERS: [&str; 4] = ["/tmp", "/run", "/var/tmp", "/mnt"];

/// Covers the files of the plan, and those that concern names.
pub fn replace(plan: &Plan) -> Result<(), String> {
    let failed = |error| explain("the mounts", error);
    // The parent's mounts stay as they are.
    let private = libc::MS_REC | libc::MS_PRIVATE;
    mount("none", Path::new("/"), "", private, "").map_err(failed)?;
    let mut files: Vec<(&Path, Vec<u8>)> = Vec::new();
    if !plan.resolvers.is_empty() {
        let lines = plan.resolvers.iter();
        let lines: String = lines
            .map(|server| format!("nameserver {server}\n"))
            .collect();
        files.push((Path::new(RESOLVERS), lines.into_bytes()));
        for socket in ANSWER_FOR_OUTSIDE {
            if let Some(socket) = find(Path::new(socket)) {
                cover("/dev/null", &socket).map_err(failed)?;
            }
        }
    }
    for (path, content) in &plan.files {
        files.push((Path::new(path), content.clone()));
    }
    // They are found before the folder is covered, in which they may be.
    let files = files.into_iter();
    let files: Vec<_> = files
        .filter_map(|(path, content)| Some((path, find(path)?, content)))
        .collect();
    if files.is_empty() {
        return Ok(());
    }
    let folder = FOLDERS.iter().find(|folder| Path::new(folder).is_dir());
    let folder =
        *folder.ok_or_else(|| format!("missing folders: needs one of {}", FOLDERS.join(", ")))?;
    mount("watm", Path::new(folder), "tmpfs", 0, "mode=0755").map_err(failed)?;
    for (number, (path, found, content)) in files.into_iter().enumerate() {
        let own = format!("{folder}/{number}");
        let written = fs::write(&own, content);
        written.map_err(|error| format!("cannot write a file for the program: {error}"))?;
        cover(&own, &found).map_err(|error| {
            let shown = String::from_utf8_lossy(path.as_os_str().as_bytes());
            format!("cannot cover {shown}: {error}")
        })?;
    }
    let folder = CString::new(folder).expect("a name without a zero byte");
    // SAFETY: the name lives until the call returns.
    let done = unsafe { libc::umount2(folder.as_ptr(), libc::MNT_DETACH) };
    check(done).map(drop).map_err(failed)
}

/// Finds a file to cover, through symbolic links, if it exists.
fn find(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    // The file itself is not read.
    options
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)
        .ok()
}

fn cover(by: &str, found: &File) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    mount(by, Path::new(&path), "", libc::MS_BIND, "")
}
