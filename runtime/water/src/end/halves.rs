//! Half-close for every kind of end. `end::end_of` wraps the ends in it.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use super::{End, Readiness};

/// An end, with the directions that the guest has shut. Calls in a shut direction are answered
/// here, whatever the end is.
pub(super) struct Halves<E> {
    end: E,
    read_shut: bool,
    write_shut: bool,
}

impl<E: End> Halves<E> {
    pub(super) fn new(end: E) -> Halves<E> {
        Halves {
            end,
            read_shut: false,
            write_shut: false,
        }
    }
}

impl<E: End> End for Halves<E> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.read_shut {
            return Poll::Ready(Ok(0));
        }
        self.end.poll_read(cx, buffer)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.write_shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.end.poll_write(cx, data)
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        if self.read_shut {
            return Poll::Ready(Readiness::HANGUP);
        }
        self.end.poll_readable(cx)
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        if self.write_shut {
            return Poll::Ready(Readiness::HANGUP);
        }
        self.end.poll_writable(cx)
    }

    /// Shuts the directions of the end that are not shut yet.
    fn shutdown(&mut self, read: bool, write: bool) -> io::Result<()> {
        let (read, write) = (read && !self.read_shut, write && !self.write_shut);
        self.read_shut |= read;
        self.write_shut |= write;
        self.end.shutdown(read, write)
    }

    fn abort(&mut self) {
        if !self.write_shut {
            self.end.abort();
        }
    }

    fn is_reset(&self) -> bool {
        self.end.is_reset()
    }

    fn poll_background(&mut self, cx: &mut Context<'_>) {
        self.end.poll_background(cx);
    }

    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.end.poll_flushed(cx)
    }
}
