use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::ErrorCode;

/// The most that one read takes: what a module asks for, or this much. Bounds what is set
/// aside before it is known how much is there.
const MAX_READ: usize = 256 << 10;

/// What one system call of a read asks for.
const PIECE: usize = 64 << 10;

thread_local! {
    /// What is read on this thread, before it is known how much it is: no connection needs memory
    /// while it is silent.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// Memory for what is read before anybody has it: more than any datagram needs. Not for use within
/// itself.
pub(crate) fn with_scratch<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| read(scratch))
}

/// The reading side of a socket, as `byte-stream.read` has it.
#[derive(Default)]
pub(crate) struct Inlet {
    saw_end: bool,
    /// What the next read fails with.
    failed: Option<ErrorCode>,
}

impl Inlet {
    /// Whether all has been read.
    pub(crate) fn saw_end(&self) -> bool {
        self.saw_end
    }

    /// What is there, up to `max` bytes; `None`: the end. After a short read `cx` is woken when
    /// there is more.
    pub(crate) fn read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin + ?Sized),
        max: usize,
        cx: &mut Context<'_>,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        if self.saw_end {
            return Ok(None);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        with_scratch(|scratch| self.read_by(scratch, stream, max, cx))
    }

    fn read_by(
        &mut self,
        scratch: &mut [u8],
        stream: &mut (impl AsyncRead + Unpin + ?Sized),
        max: usize,
        cx: &mut Context<'_>,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        let mut data = Vec::new();
        while data.len() < max {
            let ask = (max - data.len()).min(scratch.len());
            let mut piece = ReadBuf::new(&mut scratch[..ask]);
            // Less than was asked for says that there is no more, which then costs no system call.
            match Pin::new(&mut *stream).poll_read(cx, &mut piece) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if !piece.filled().is_empty() => {
                    data.extend_from_slice(piece.filled());
                }
                Poll::Ready(Ok(())) if data.is_empty() => {
                    self.saw_end = true;
                    return Ok(None);
                }
                Poll::Ready(Err(error)) if data.is_empty() => return Err((&error).into()),
                Poll::Ready(result) => {
                    // The end, or the error, comes with the next call, which can be made at once.
                    self.failed = result.err().map(|error| (&error).into());
                    cx.waker().wake_by_ref();
                    break;
                }
            }
            if data.len() >= MAX_READ {
                if data.len() < max {
                    cx.waker().wake_by_ref();
                }
                break;
            }
        }
        Ok(Some(data))
    }
}
