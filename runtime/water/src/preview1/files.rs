//! Functions on descriptors, and on the one directory with its one file. Used by `preview1`.

use std::sync::Arc;

use wasmtime::{Caller, Linker};

use crate::errno::Errno;
use crate::fds::{Descriptor, Resource};
use crate::guest::{bytes, bytes_mut, write_u32, write_u64};
use crate::state::{State, answer, split};
use watm_policy::water_abi::PREVIEW1;

/// The directory and the name of a module's configuration.
const DIRECTORY: &str = "/conf";
const FILE: &str = "watm.cfg";

/// The longest path, in bytes: `PATH_MAX` of Linux. The host reads a path to its end, while
/// nobody else has the thread.
const MAX_PATH: usize = 4096;

/// Kinds of files (`filetype`).
const CHARACTER_DEVICE: u8 = 2;
const DIRECTORY_TYPE: u8 = 3;
const REGULAR_FILE: u8 = 4;
const STREAM_SOCKET: u8 = 6;

/// Flags of a descriptor (`fdflags`).
const APPEND: u32 = 1;
const NONBLOCK: u32 = 4;

/// Rights, those that libraries look at.
const RIGHT_READ: u64 = 1 << 1;
const RIGHT_SEEK: u64 = 1 << 2;
const RIGHT_SET_FLAGS: u64 = 1 << 3;
const RIGHT_TELL: u64 = 1 << 5;
const RIGHT_WRITE: u64 = 1 << 6;
const RIGHT_OPEN: u64 = 1 << 13;
const RIGHT_PATH_STAT: u64 = 1 << 18;
const RIGHT_STAT: u64 = 1 << 21;
const RIGHT_POLL: u64 = 1 << 27;
const RIGHT_SHUTDOWN: u64 = 1 << 28;

/// Options of `path_open` that would change something (`oflags`): create, truncate.
const OPEN_CHANGES: u32 = 1 | 8;
/// The option to open a directory.
const OPEN_DIRECTORY: u32 = 2;

type Call<'a> = (&'a mut [u8], &'a mut State);

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    add_descriptors(linker)?;
    add_paths(linker)
}

/// Adds the functions on open descriptors.
fn add_descriptors(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(
        PREVIEW1,
        "fd_close",
        |caller: Caller<'_, State>, fd: i32| with(caller, |(_, state)| state.fds.close(fd)),
    )?;
    linker.func_wrap(
        PREVIEW1,
        "fd_renumber",
        |caller: Caller<'_, State>, from: i32, to: i32| {
            with(caller, |(_, state)| state.fds.renumber(from, to))
        },
    )?;
    linker.func_wrap(
        PREVIEW1,
        "fd_fdstat_get",
        |caller: Caller<'_, State>, fd: i32, out: u32| {
            with(caller, |call| fd_fdstat_get(call, fd, out))
        },
    )?;
    linker.func_wrap(
        PREVIEW1,
        "fd_fdstat_set_flags",
        |caller: Caller<'_, State>, fd: i32, flags: u32| {
            with(caller, |call| fd_fdstat_set_flags(call, fd, flags))
        },
    )?;
    // Giving up rights changes nothing: the host does not look at them.
    linker.func_wrap(
        PREVIEW1,
        "fd_fdstat_set_rights",
        |caller: Caller<'_, State>, fd: i32, _: u64, _: u64| open(caller, fd),
    )?;
    linker.func_wrap(
        PREVIEW1,
        "fd_advise",
        |caller: Caller<'_, State>, fd: i32, _: u64, _: u64, _: u32| open(caller, fd),
    )?;
    for name in ["fd_sync", "fd_datasync"] {
        linker.func_wrap(PREVIEW1, name, |caller: Caller<'_, State>, fd: i32| {
            open(caller, fd)
        })?;
    }
    linker.func_wrap(
        PREVIEW1,
        "fd_filestat_get",
        |caller: Caller<'_, State>, fd: i32, out: u32| {
            with(caller, |(memory, state)| {
                let (kind, size) = stat(&state.fds.get(fd)?.resource);
                write_filestat(memory, out, kind, size)
            })
        },
    )?;
    linker.func_wrap(
        PREVIEW1,
        "fd_seek",
        |caller: Caller<'_, State>, fd: i32, offset: i64, whence: u32, out: u32| {
            with(caller, |call| fd_seek(call, fd, offset, whence, out))
        },
    )?;
    linker.func_wrap(
        PREVIEW1,
        "fd_tell",
        |caller: Caller<'_, State>, fd: i32, out: u32| {
            with(caller, |call| fd_seek(call, fd, 0, 1, out))
        },
    )?;
    Ok(())
}

/// Adds the functions on the directory of the configuration and the paths in it.
fn add_paths(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(
        PREVIEW1,
        "fd_prestat_get",
        |caller: Caller<'_, State>, fd: i32, out: u32| {
            with(caller, |(memory, state)| {
                is_directory(state, fd)?;
                // A prestat is the tag of a directory and the length of its name.
                write_u32(memory, out, 0)?;
                write_u32(memory, out.saturating_add(4), DIRECTORY.len() as u32)
            })
        },
    )?;
    linker.func_wrap(
        PREVIEW1,
        "fd_prestat_dir_name",
        |caller: Caller<'_, State>, fd: i32, out: u32, len: u32| {
            with(caller, |(memory, state)| {
                is_directory(state, fd)?;
                if (len as usize) < DIRECTORY.len() {
                    return Err(Errno::NAMETOOLONG);
                }
                let name = bytes_mut(memory, out, DIRECTORY.len() as u32)?;
                name.copy_from_slice(DIRECTORY.as_bytes());
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        PREVIEW1,
        "path_open",
        |caller: Caller<'_, State>,
         directory: i32,
         _follow: u32,
         path: u32,
         path_len: u32,
         options: u32,
         rights: u64,
         _inheriting: u64,
         flags: u32,
         out: u32| {
            with(caller, |call| {
                let asked = Asked {
                    options,
                    rights,
                    flags,
                };
                path_open(call, directory, (path, path_len), &asked, out)
            })
        },
    )?;
    linker.func_wrap(
        PREVIEW1,
        "path_filestat_get",
        |caller: Caller<'_, State>, directory: i32, _: u32, path: u32, len: u32, out: u32| {
            with(caller, |(memory, state)| {
                let resource = find(state, directory, bytes(memory, path, len)?)?;
                let (kind, size) = stat(&resource);
                write_filestat(memory, out, kind, size)
            })
        },
    )?;
    Ok(())
}

fn with(
    mut caller: Caller<'_, State>,
    call: impl FnOnce(Call<'_>) -> Result<(), Errno>,
) -> wasmtime::Result<i32> {
    Ok(answer(call(split(&mut caller)?)))
}

/// Checks that a descriptor is open, for calls that need no more.
fn open(caller: Caller<'_, State>, fd: i32) -> wasmtime::Result<i32> {
    with(caller, |(_, state)| state.fds.get(fd).map(drop))
}

fn is_directory(state: &mut State, fd: i32) -> Result<(), Errno> {
    match state.fds.get(fd)?.resource {
        Resource::Directory => Ok(()),
        // Libraries count directories up to the first error, and expect this one.
        _ => Err(Errno::BADF),
    }
}

fn fd_fdstat_get((memory, state): Call<'_>, fd: i32, out: u32) -> Result<(), Errno> {
    let descriptor = state.fds.get(fd)?;
    let (kind, _) = stat(&descriptor.resource);
    let flags = if descriptor.nonblocking { NONBLOCK } else { 0 };
    let common = RIGHT_STAT | RIGHT_POLL | RIGHT_SET_FLAGS;
    let (rights, inheriting) = match descriptor.resource {
        Resource::Input => (common | RIGHT_READ, 0),
        Resource::Output(_) => (common | RIGHT_WRITE, 0),
        Resource::File { .. } => (common | RIGHT_READ | RIGHT_SEEK | RIGHT_TELL, 0),
        Resource::Directory => (
            RIGHT_STAT | RIGHT_OPEN | RIGHT_PATH_STAT,
            common | RIGHT_READ | RIGHT_SEEK | RIGHT_TELL,
        ),
        Resource::End(_) => (common | RIGHT_READ | RIGHT_WRITE | RIGHT_SHUTDOWN, 0),
    };
    let stat = bytes_mut(memory, out, 24)?;
    stat.fill(0);
    stat[0] = kind;
    stat[2] = flags as u8;
    stat[8..16].copy_from_slice(&u64::to_le_bytes(rights));
    stat[16..24].copy_from_slice(&u64::to_le_bytes(inheriting));
    Ok(())
}

fn fd_fdstat_set_flags((_, state): Call<'_>, fd: i32, flags: u32) -> Result<(), Errno> {
    let descriptor = state.fds.get(fd)?;
    if flags & !(NONBLOCK | APPEND) != 0 {
        return Err(Errno::INVAL);
    }
    descriptor.nonblocking = flags & NONBLOCK != 0;
    Ok(())
}

fn fd_seek(
    (memory, state): Call<'_>,
    fd: i32,
    by: i64,
    whence: u32,
    out: u32,
) -> Result<(), Errno> {
    let Resource::File { content, offset } = &mut state.fds.get(fd)?.resource else {
        return Err(Errno::SPIPE);
    };
    let from = match whence {
        0 => 0,
        1 => *offset,
        2 => content.len() as u64,
        _ => return Err(Errno::INVAL),
    };
    let to = from.checked_add_signed(by).ok_or(Errno::INVAL)?;
    write_u64(memory, out, to)?;
    *offset = to;
    Ok(())
}

/// The options that a file is opened with.
struct Asked {
    options: u32,
    rights: u64,
    flags: u32,
}

fn path_open(
    (memory, state): Call<'_>,
    directory: i32,
    (path, len): (u32, u32),
    asked: &Asked,
    out: u32,
) -> Result<(), Errno> {
    bytes(memory, out, 4)?;
    let resource = find(state, directory, bytes(memory, path, len)?)?;
    if asked.options & OPEN_CHANGES != 0 {
        return Err(Errno::ROFS);
    }
    match resource {
        Resource::Directory if asked.rights & RIGHT_WRITE != 0 => return Err(Errno::ISDIR),
        Resource::Directory => {}
        _ if asked.options & OPEN_DIRECTORY != 0 => return Err(Errno::NOTDIR),
        _ if asked.flags & APPEND != 0 => return Err(Errno::ROFS),
        _ => {}
    }
    let fd = state.fds.insert(Descriptor::new(resource))?;
    write_u32(memory, out, fd.unsigned_abs())
}

/// Finds the resource at a path below the directory.
fn find(state: &mut State, directory: i32, path: &[u8]) -> Result<Resource, Errno> {
    match state.fds.get(directory)?.resource {
        Resource::Directory => {}
        _ => return Err(Errno::NOTDIR),
    }
    if path.len() > MAX_PATH {
        return Err(Errno::NAMETOOLONG);
    }
    let path = std::str::from_utf8(path).map_err(|_| Errno::ILSEQ)?;
    if path.starts_with('/') {
        return Err(Errno::PERM);
    }
    let mut names = path.split('/').filter(|name| !matches!(*name, "" | "."));
    match (names.next(), names.next()) {
        (None, _) if path.is_empty() => Err(Errno::NOENT),
        (None, _) => Ok(Resource::Directory),
        (Some(".."), _) => Err(Errno::PERM),
        (Some(FILE), None) => {
            let content: &Arc<[u8]> = state.config.as_ref().ok_or(Errno::NOENT)?;
            Ok(Resource::File {
                content: content.clone(),
                offset: 0,
            })
        }
        (Some(FILE), Some(_)) => Err(Errno::NOTDIR),
        _ => Err(Errno::NOENT),
    }
}

/// Returns the type of the file and its size.
fn stat(resource: &Resource) -> (u8, u64) {
    match resource {
        Resource::Input | Resource::Output(_) => (CHARACTER_DEVICE, 0),
        Resource::Directory => (DIRECTORY_TYPE, 0),
        Resource::File { content, .. } => (REGULAR_FILE, content.len() as u64),
        Resource::End(_) => (STREAM_SOCKET, 0),
    }
}

fn write_filestat(memory: &mut [u8], out: u32, kind: u8, size: u64) -> Result<(), Errno> {
    let stat = bytes_mut(memory, out, 64)?;
    stat.fill(0);
    stat[16] = kind;
    // The number of hard links.
    stat[24..32].copy_from_slice(&1_u64.to_le_bytes());
    stat[32..40].copy_from_slice(&size.to_le_bytes());
    Ok(())
}
