//! A stream through a module, as dialers and listeners return it. Used by `dialer`, `fixed_dialer`
//! and `listener`.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::{Error, ErrorCode, FlowInfo, JoinError, Meter, StreamFlow, UpstreamStream};
use watm_engine::job::Opened;

/// A stream through a module.
///
/// Reads and writes behave as those of a TCP stream. Shutting down the writing half tells the
/// module that no more data follows. Its remaining data can still be read. If the module failed,
/// reads end with an error that names the cause. It has no deadlines: use tokio's timeouts.
///
/// Dropping it closes it: a task of the runtime that it was made in passes on what was written, in
/// the time that [`close`](Connection::close) takes.
pub struct Connection {
    flow: StreamFlow,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    finished: oneshot::Receiver<()>,
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
        })
    }

    /// Returns this end's address on the network's side of the module. Fails if the stream was made
    /// by a [`Connect`](crate::Connect) that set no addresses.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local.ok_or_else(no_address)
    }

    /// Returns the other end's address on the network's side of the module, as
    /// [`local_addr`](Connection::local_addr).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.peer.ok_or_else(no_address)
    }

    /// Returns the source and the destination, as far as the application knows them.
    pub fn info(&self) -> &FlowInfo {
        self.flow.info()
    }

    /// Closes the connection, and waits until the module has passed on what was written and has
    /// ended, and the network's side is closed. Takes at most three times
    /// [`Limits::close_grace`](crate::Limits::close_grace); eleven times while a WATER module still
    /// moves bytes.
    pub async fn close(self) {
        let grace = self.flow.grace();
        self.flow.close();
        if let Some(grace) = grace {
            // Bytes that have not left by then may be lost with the connection.
            let flushed = poll_fn(|cx| self.flow.poll_flushed(cx));
            let _ = timeout(grace, flushed).await;
        }
        // Nothing is ever sent; the sender is dropped with the last of the connection.
        let _ = self.finished.await;
    }

    /// Ends the connection at once: reads and writes fail with `reason`, and queued bytes are
    /// dropped.
    pub fn abort(&self, reason: ErrorCode) {
        self.flow.abort(reason);
    }

    /// Joins the stream to an upstream, as [`StreamFlow::join`].
    pub async fn join(
        &self,
        upstream: Box<dyn UpstreamStream>,
        meter: Arc<dyn Meter>,
    ) -> Result<(), JoinError> {
        self.flow.join(upstream, meter).await
    }

    /// Returns the same stream as a flow of a [`Server`](crate::Server), for code that handles
    /// both.
    pub fn into_flow(self) -> StreamFlow {
        self.flow
    }
}

fn no_address() -> io::Error {
    io::Error::new(
        io::ErrorKind::AddrNotAvailable,
        "the stream has no addresses; set them with `Wire::with_addresses`",
    )
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().flow).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().flow).poll_write(cx, data)
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
