//! Functions on sockets only. Used by `preview1`.

use wasmtime::{Caller, Linker};

use super::io::{poll_read, poll_write, transfer};
use crate::errno::Errno;
use crate::guest::bytes_mut;
use crate::state::{State, answer, split};
use watm_policy::water_abi::PREVIEW1;

/// Flags of `sock_shutdown`.
const SHUT_READ: u32 = 1;
const SHUT_WRITE: u32 = 2;

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        PREVIEW1,
        "sock_recv",
        |caller: Caller<'_, State>,
         (fd, parts, count, flags, out, out_flags): (i32, u32, u32, u32, u32, u32)| {
            Box::new(sock_recv(
                caller,
                fd,
                [parts, count],
                flags,
                [out, out_flags],
            ))
        },
    )?;
    linker.func_wrap_async(
        PREVIEW1,
        "sock_send",
        |caller: Caller<'_, State>, (fd, parts, count, flags, out): (i32, u32, u32, u32, u32)| {
            Box::new(sock_send(caller, fd, [parts, count], flags, out))
        },
    )?;
    linker.func_wrap(PREVIEW1, "sock_shutdown", sock_shutdown)?;
    Ok(())
}

/// Receives, as `fd_read`. Peeking and waiting for all bytes are not supported.
async fn sock_recv(
    mut caller: Caller<'_, State>,
    fd: i32,
    [parts, count]: [u32; 2],
    flags: u32,
    [out, out_flags]: [u32; 2],
) -> wasmtime::Result<i32> {
    let (memory, state) = split(&mut caller)?;
    let checked = is_socket(state, fd).and_then(|()| {
        if flags != 0 {
            return Err(Errno::NOTSUP);
        }
        bytes_mut(memory, out_flags, 2).map(|flags| flags.fill(0))
    });
    if checked.is_err() {
        return Ok(answer(checked));
    }
    transfer(caller, fd, parts, count, out, poll_read).await
}

/// Sends, as `fd_write`.
async fn sock_send(
    mut caller: Caller<'_, State>,
    fd: i32,
    [parts, count]: [u32; 2],
    flags: u32,
    out: u32,
) -> wasmtime::Result<i32> {
    let (_, state) = split(&mut caller)?;
    let checked = is_socket(state, fd).and(match flags {
        0 => Ok(()),
        // The specification defines no flag.
        _ => Err(Errno::INVAL),
    });
    if checked.is_err() {
        return Ok(answer(checked));
    }
    transfer(caller, fd, parts, count, out, poll_write).await
}

fn sock_shutdown(mut caller: Caller<'_, State>, fd: i32, how: u32) -> wasmtime::Result<i32> {
    let (_, state) = split(&mut caller)?;
    let result = state.fds.get(fd).and_then(|descriptor| {
        if how == 0 || how & !(SHUT_READ | SHUT_WRITE) != 0 {
            return Err(Errno::INVAL);
        }
        let end = descriptor.end()?;
        end.shutdown(how & SHUT_READ != 0, how & SHUT_WRITE != 0)
            .map_err(|error| Errno::from(&error))
    });
    Ok(answer(result))
}

fn is_socket(state: &mut State, fd: i32) -> Result<(), Errno> {
    state.fds.get(fd)?.end().map(drop)
}
