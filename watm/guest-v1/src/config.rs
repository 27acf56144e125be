//! The configuration file, which WATER hosts put where a module can open it. Used by `carrier`,
//! `relayed` and `shell`.

use wasip1::{Errno, Fd, Iovec};

use crate::descriptor::retry;

/// The path of the file, also in messages.
pub const PATH: &str = "/conf/watm.cfg";

/// The first descriptor that a host assigns to a folder.
const FIRST_FOLDER: Fd = 3;

/// The most folders that are searched.
const MAX_FOLDERS: u32 = 64;

/// The longest path of a folder that is considered.
const MAX_NAME: usize = 64;

/// The largest configuration in bytes. One with thousands of keys is smaller.
const MAX_SIZE: usize = 1 << 20;

/// The bytes requested by one read.
const PART: usize = 4 << 10;

/// Reads the configuration; empty if the host has none.
pub fn read() -> Result<Vec<u8>, String> {
    let Some((folder, path)) = find() else {
        return Ok(Vec::new());
    };
    // SAFETY: the path is passed as a slice.
    let opened = unsafe { wasip1::path_open(folder, 0, path, 0, wasip1::RIGHTS_FD_READ, 0, 0) };
    let file = match opened {
        Ok(file) => file,
        Err(wasip1::ERRNO_NOENT | wasip1::ERRNO_ACCES) => return Ok(Vec::new()),
        Err(errno) => return Err(cannot("open", errno)),
    };
    let mut config = Vec::new();
    let result = read_all(file, &mut config);
    // SAFETY: only this function uses the file. An error needs no handling.
    let _ = unsafe { wasip1::fd_close(file) };
    result.map(|()| config)
}

fn read_all(file: Fd, config: &mut Vec<u8>) -> Result<(), String> {
    loop {
        let start = config.len();
        if start > MAX_SIZE {
            return Err(format!("the file is larger than {MAX_SIZE} bytes"));
        }
        config.resize(start + PART, 0);
        let slice = Iovec {
            buf: config[start..].as_mut_ptr(),
            buf_len: PART,
        };
        // SAFETY: the slice is the end of `config`.
        let count = retry(|| unsafe { wasip1::fd_read(file, &[slice]) })
            .map_err(|errno| cannot("read", errno))?;
        config.truncate(start + count);
        if count == 0 {
            return Ok(());
        }
    }
}

/// The folder that has the file, and the file's path in it.
fn find() -> Option<(Fd, &'static str)> {
    (FIRST_FOLDER..FIRST_FOLDER + MAX_FOLDERS)
        .map_while(|folder| Some((folder, name(folder).ok()?)))
        .find_map(|(folder, name)| match name.as_slice() {
            b"/conf" | b"/conf/" => Some((folder, "watm.cfg")),
            b"/" => Some((folder, "conf/watm.cfg")),
            _ => None,
        })
}

/// The path of a folder as the module sees it; empty if that is very long.
fn name(folder: Fd) -> Result<Vec<u8>, Errno> {
    // SAFETY: the call takes no memory.
    let prestat = unsafe { wasip1::fd_prestat_get(folder) }?;
    // SAFETY: the value is always that of a folder, and all values of its length are valid.
    let length = unsafe { prestat.u.dir.pr_name_len };
    if length > MAX_NAME {
        return Ok(Vec::new());
    }
    let mut name = vec![0; length];
    // SAFETY: the length is that of `name`.
    unsafe { wasip1::fd_prestat_dir_name(folder, name.as_mut_ptr(), name.len()) }?;
    // Some hosts count the terminator of a C string.
    if name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

fn cannot(what: &str, errno: Errno) -> String {
    format!("cannot {what} the file: {}", errno.name())
}
