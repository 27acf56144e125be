use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Sleep, timeout};

use super::runner::Opened;
use crate::{Error, ErrorCode, FlowInfo, JoinError, Meter, StreamFlow, UpstreamStream};

/// A stream through a module.
///
/// Reads and writes as a TCP stream does. Shutting down the writing half tells the module
/// that no more will come, and what it still has to say can be read. The end of what is read
/// is an error that names the cause if the module failed.
///
/// Dropping it closes it: what was written is passed on, within
/// [`Limits::close_grace`](crate::Limits::close_grace), by a task of the runtime that it was
/// made in.
pub struct Connection {
    flow: StreamFlow,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    finished: oneshot::Receiver<()>,
    read_deadline: Option<Pin<Box<Sleep>>>,
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub(super) fn of(opened: Opened) -> Result<Connection, Error> {
        let Some(flow) = opened.flow else {
            return Err(Error::System(
                "the connection has no application".to_owned(),
            ));
        };
        Ok(Connection {
            flow,
            local: opened.local,
            peer: opened.peer,
            finished: opened.finished,
            read_deadline: None,
            write_deadline: None,
        })
    }

    /// This end's address on the network's side of the module. An error if the stream was
    /// made by a [`Connect`](crate::Connect) that told no addresses.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local.ok_or_else(no_address)
    }

    /// The other end's address on the network's side of the module, as
    /// [`local_addr`](Connection::local_addr).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.peer.ok_or_else(no_address)
    }

    /// Where it comes from and where it goes, as far as the application knows.
    pub fn info(&self) -> &FlowInfo {
        self.flow.info()
    }

    /// From then on, reads that would wait fail with [`io::ErrorKind::TimedOut`]. `None`:
    /// never. Within a tokio runtime.
    pub fn set_read_deadline(&mut self, deadline: Option<Instant>) {
        self.read_deadline = deadline.map(sleep_until);
    }

    /// As [`set_read_deadline`](Connection::set_read_deadline), for writes.
    pub fn set_write_deadline(&mut self, deadline: Option<Instant>) {
        self.write_deadline = deadline.map(sleep_until);
    }

    /// Close, and wait until it is done: until the module has passed on what was written, has
    /// ended, and the network's side is closed. Bounded by three times
    /// [`Limits::close_grace`](crate::Limits::close_grace).
    pub async fn close(self) {
        let grace = self.flow.grace();
        self.flow.close();
        if let Some(grace) = grace {
            // What has not left by then may be lost with the connection.
            let flushed = poll_fn(|cx| self.flow.poll_flushed(cx));
            let _ = timeout(grace, flushed).await;
        }
        // Never said; gone with the last of the connection.
        let _ = self.finished.await;
    }

    /// End at once: reads and writes fail with `reason`, what is queued is dropped.
    pub fn abort(&self, reason: ErrorCode) {
        self.flow.abort(reason);
    }

    /// As [`StreamFlow::join`].
    pub async fn join(
        &self,
        upstream: Box<dyn UpstreamStream>,
        meter: Arc<dyn Meter>,
    ) -> Result<(), JoinError> {
        self.flow.join(upstream, meter).await
    }

    /// The same stream as one of a [`Server`](crate::Server)'s flows, for what handles both.
    pub fn into_flow(self) -> StreamFlow {
        self.flow
    }
}

fn sleep_until(deadline: Instant) -> Pin<Box<Sleep>> {
    Box::pin(tokio::time::sleep_until(deadline.into()))
}

/// An error once the deadline has passed.
fn poll_deadline(deadline: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<io::Error> {
    match deadline {
        Some(deadline) => deadline
            .as_mut()
            .poll(cx)
            .map(|()| io::Error::new(io::ErrorKind::TimedOut, ErrorCode::Timeout)),
        None => Poll::Pending,
    }
}

fn no_address() -> io::Error {
    io::Error::new(
        io::ErrorKind::AddrNotAvailable,
        "the stream was made without addresses; `Wire::with_addresses` gives them",
    )
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.flow).poll_read(cx, buffer) {
            Poll::Pending => poll_deadline(&mut this.read_deadline, cx).map(Err),
            ready => ready,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.flow).poll_write(cx, data) {
            Poll::Pending => poll_deadline(&mut this.write_deadline, cx).map(Err),
            ready => ready,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().flow).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().flow).poll_shutdown(cx)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("local", &self.local)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
