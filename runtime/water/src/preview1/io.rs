//! Reading and writing. A call on a blocking descriptor suspends the guest; on a nonblocking one it
//! returns EAGAIN. Used by `preview1` and `sockets`.

use std::future::poll_fn;
use std::io::IoSlice;
use std::task::{Context, Poll, ready};

use wasmtime::{Caller, Linker};

use crate::errno::Errno;
use crate::fds::Resource;
use crate::guest::{Parts, bytes, bytes_mut, write_u32};
use crate::state::{Idle, State, answer, split};
use watm_engine::output::Stream;
use watm_policy::water_abi::PREVIEW1;

/// The most parts of one write to the system; the rest is left to the guest's next call.
const WRITE_PARTS: usize = 16;
/// The most bytes that a guest prints in one call; the rest is left to the next.
const MAX_PRINT: usize = 64 << 10;

pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        PREVIEW1,
        "fd_read",
        |caller: Caller<'_, State>, (fd, parts, count, out): (i32, u32, u32, u32)| {
            Box::new(transfer(caller, fd, parts, count, out, poll_read))
        },
    )?;
    linker.func_wrap_async(
        PREVIEW1,
        "fd_write",
        |caller: Caller<'_, State>, (fd, parts, count, out): (i32, u32, u32, u32)| {
            Box::new(transfer(caller, fd, parts, count, out, poll_write))
        },
    )?;
    linker.func_wrap(PREVIEW1, "fd_pread", fd_pread)?;
    Ok(())
}

/// One direction of [`transfer`]. Returns the number of bytes moved.
pub(super) type PollTransfer =
    fn(&mut [u8], &mut State, i32, Parts, &mut Context<'_>) -> Poll<Result<usize, Errno>>;

/// Moves bytes between a descriptor and the parts, and writes their number to `out`.
pub(super) async fn transfer(
    mut caller: Caller<'_, State>,
    fd: i32,
    parts: u32,
    count: u32,
    out: u32,
    poll: PollTransfer,
) -> wasmtime::Result<i32> {
    let (memory, _) = split(&mut caller)?;
    let checked =
        Parts::new(memory, parts, count).and_then(|parts| bytes(memory, out, 4).map(|_| parts));
    let parts = match checked {
        Ok(parts) => parts,
        Err(errno) => return Ok(answer(Err(errno))),
    };
    let mut idle = Idle::default();
    poll_fn(|cx| {
        let (memory, state) = split(&mut caller)?;
        let moved = match poll(memory, state, fd, parts, cx) {
            Poll::Ready(moved) => moved,
            Poll::Pending => {
                if state.fds.get(fd).is_ok_and(|fd| fd.nonblocking) {
                    ready!(idle.poll(state, cx));
                    return Poll::Ready(Ok(answer(Err(Errno::AGAIN))));
                }
                state.wait(cx);
                return Poll::Pending;
            }
        };
        Poll::Ready(Ok(answer(moved.and_then(|moved| {
            if moved > 0 && state.fds.get(fd).is_ok_and(|fd| fd.is_connection()) {
                state.moved();
            }
            // A call moves less than 4 GiB.
            write_u32(memory, out, moved as u32)
        }))))
    })
    .await
}

pub(super) fn poll_read(
    memory: &mut [u8],
    state: &mut State,
    fd: i32,
    parts: Parts,
    cx: &mut Context<'_>,
) -> Poll<Result<usize, Errno>> {
    let descriptor = match state.fds.get(fd) {
        Ok(descriptor) => descriptor,
        Err(errno) => return Poll::Ready(Err(errno)),
    };
    let end = match &mut descriptor.resource {
        Resource::Input => return Poll::Ready(Ok(0)),
        Resource::Output(_) => return Poll::Ready(Err(Errno::BADF)),
        Resource::Directory => return Poll::Ready(Err(Errno::ISDIR)),
        Resource::File { content, offset } => {
            let result = read_file(content, *offset, memory, parts);
            *offset += *result.as_ref().unwrap_or(&0) as u64;
            return Poll::Ready(result);
        }
        Resource::End(end) => end,
    };
    let mut total = 0;
    for index in 0..parts.count() {
        let part = parts
            .get(memory, index)
            .and_then(|(pointer, len)| bytes_mut(memory, pointer, len));
        let part = match part {
            Ok([]) => continue,
            Ok(part) => part,
            Err(errno) => return Poll::Ready(Err(errno)),
        };
        let whole = part.len();
        match end.poll_read(cx, part) {
            Poll::Ready(Ok(0)) => {
                state.saw_end = true;
                break;
            }
            Poll::Ready(Ok(count)) => {
                total += count;
                if count < whole {
                    break;
                }
            }
            // Bytes that were read count; the guest gets the error with its next call.
            Poll::Ready(Err(_)) | Poll::Pending if total > 0 => break,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(broken(state, error))),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Ok(total))
}

pub(super) fn poll_write(
    memory: &mut [u8],
    state: &mut State,
    fd: i32,
    parts: Parts,
    cx: &mut Context<'_>,
) -> Poll<Result<usize, Errno>> {
    let descriptor = match state.fds.get(fd) {
        Ok(descriptor) => descriptor,
        Err(errno) => return Poll::Ready(Err(errno)),
    };
    let end = match &mut descriptor.resource {
        Resource::Output(stream) => {
            let stream = *stream;
            return Poll::Ready(print(memory, state, stream, parts));
        }
        Resource::Input => return Poll::Ready(Err(Errno::BADF)),
        Resource::Directory => return Poll::Ready(Err(Errno::ISDIR)),
        Resource::File { .. } => return Poll::Ready(Err(Errno::BADF)),
        Resource::End(end) => end,
    };
    let mut slices = [IoSlice::new(&[]); WRITE_PARTS];
    let mut used = 0;
    for index in 0..parts.count() {
        let part = parts
            .get(memory, index)
            .and_then(|(pointer, len)| bytes(memory, pointer, len));
        match part {
            Ok([]) => {}
            Ok(part) if used < WRITE_PARTS => {
                slices[used] = IoSlice::new(part);
                used += 1;
            }
            Ok(_) => break,
            Err(errno) => return Poll::Ready(Err(errno)),
        }
    }
    if used == 0 {
        return Poll::Ready(Ok(0));
    }
    match ready!(end.poll_write(cx, &slices[..used])) {
        Ok(count) => Poll::Ready(Ok(count)),
        Err(error) => Poll::Ready(Err(broken(state, error))),
    }
}

/// Keeps an error for the application, and returns its number for the guest.
fn broken(state: &mut State, error: std::io::Error) -> Errno {
    let errno = match crate::ErrorCode::from(&error) {
        // The application's end is gone: the same as a pipe without a reader.
        crate::ErrorCode::ConnectionAborted => Errno::PIPE,
        _ => Errno::from(&error),
    };
    state.broken = Some(error);
    errno
}

fn print(memory: &[u8], state: &mut State, stream: Stream, parts: Parts) -> Result<usize, Errno> {
    let mut total = 0;
    for index in 0..parts.count() {
        let (pointer, len) = parts.get(memory, index)?;
        let len = (len as usize).min(MAX_PRINT - total);
        state
            .output
            .write(stream, bytes(memory, pointer, len as u32)?);
        total += len;
    }
    Ok(total)
}

fn read_file(content: &[u8], offset: u64, memory: &mut [u8], parts: Parts) -> Result<usize, Errno> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut rest = content.get(start..).unwrap_or_default();
    let mut total = 0;
    for index in 0..parts.count() {
        let (pointer, len) = parts.get(memory, index)?;
        let part = bytes_mut(memory, pointer, len)?;
        let count = part.len().min(rest.len());
        part[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
        total += count;
    }
    Ok(total)
}

fn fd_pread(
    mut caller: Caller<'_, State>,
    fd: i32,
    parts: u32,
    count: u32,
    offset: u64,
    out: u32,
) -> wasmtime::Result<i32> {
    let (memory, state) = split(&mut caller)?;
    let result = match state.fds.get(fd).map(|descriptor| &descriptor.resource) {
        Ok(Resource::File { content, .. }) => Parts::new(memory, parts, count)
            .and_then(|parts| read_file(content, offset, memory, parts))
            .and_then(|total| write_u32(memory, out, total as u32)),
        Ok(Resource::Directory) => Err(Errno::ISDIR),
        Ok(_) => Err(Errno::SPIPE),
        Err(errno) => Err(errno),
    };
    Ok(answer(result))
}
