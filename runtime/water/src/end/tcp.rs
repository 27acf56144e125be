//! A guest's end of a TCP connection. `end::end_of` picks it.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::{End, Readiness, USUAL_WRITE};
use watm_net::sockets::{linger, readable_bytes};

/// A TCP connection. Bytes go between the kernel and the guest's memory without a copy here.
pub(super) struct Tcp {
    stream: TcpStream,
    /// True for a client's connection: the client may still be sending after the guest's last
    /// write.
    accepted: bool,
    write_shut: bool,
    saw_end: bool,
}

impl Tcp {
    pub(super) fn new(stream: TcpStream, accepted: bool) -> Tcp {
        Tcp {
            stream,
            accepted,
            write_shut: false,
            saw_end: false,
        }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        if self.accepted && self.write_shut && !self.saw_end {
            linger(&self.stream);
        }
    }
}

impl End for Tcp {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let count = buffer.filled().len();
        self.saw_end |= count == 0;
        Poll::Ready(Ok(count))
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match data {
            [data] => Pin::new(&mut self.stream).poll_write(cx, data),
            data => Pin::new(&mut self.stream).poll_write_vectored(cx, data),
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        if ready!(self.stream.poll_read_ready(cx)).is_err() {
            return Poll::Ready(Readiness::HANGUP);
        }
        // Tokio's readiness may be out of date, and a guest that reads then would wait.
        let bytes = readable_bytes(&self.stream);
        if bytes > 0 {
            return Poll::Ready(Readiness::of(bytes));
        }
        let mut byte = [0];
        match ready!(self.stream.poll_peek(cx, &mut ReadBuf::new(&mut byte))) {
            Ok(0) | Err(_) => Poll::Ready(Readiness::HANGUP),
            Ok(count) => Poll::Ready(Readiness::of(count)),
        }
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        Poll::Ready(match ready!(self.stream.poll_write_ready(cx)) {
            Ok(()) => Readiness::of(USUAL_WRITE),
            Err(_) => Readiness::HANGUP,
        })
    }

    fn shutdown(&mut self, _: bool, write: bool) -> io::Result<()> {
        if write {
            self.write_shut = true;
            // This is never pending: the kernel sends what it has, then the end.
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_shutdown(&mut cx)
                && error.kind() != io::ErrorKind::NotConnected
            {
                return Err(error);
            }
        }
        Ok(())
    }

    fn abort(&mut self) {
        // A server's connection gets no reset, since that could lose what the guest has written.
        if self.accepted {
            // If this fails, the other end sees an end, and a reset when it sends.
            let _ = self.stream.set_zero_linger();
        }
    }

    /// Returns true if the socket has an error, and leaves the error for the guest to find.
    fn is_reset(&self) -> bool {
        let events = Interest::READABLE | Interest::WRITABLE | Interest::ERROR;
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(self.stream.ready(events)).poll(&mut cx) {
            Poll::Ready(Ok(ready)) => ready.is_error(),
            _ => false,
        }
    }
}
