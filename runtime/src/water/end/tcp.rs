use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::{End, Readiness, USUAL_WRITE};
use crate::net::readable_bytes;

/// A TCP connection: between the kernel and the guest's memory, without a copy here.
pub(super) struct Tcp {
    stream: TcpStream,
}

impl Tcp {
    pub(super) fn new(stream: TcpStream) -> Tcp {
        Tcp { stream }
    }
}

impl End for Tcp {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
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
        // What tokio knows may be out of date, and a guest that reads then would wait.
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
            // Never pending: the kernel sends what it has, then the end.
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_shutdown(&mut cx)
                && error.kind() != io::ErrorKind::NotConnected
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The error stays with the socket, for the guest to find.
    fn is_reset(&self) -> bool {
        let events = Interest::READABLE | Interest::WRITABLE | Interest::ERROR;
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(self.stream.ready(events)).poll(&mut cx) {
            Poll::Ready(Ok(ready)) => ready.is_error(),
            _ => false,
        }
    }
}
