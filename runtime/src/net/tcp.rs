use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use crate::ErrorCode;
use crate::counters::Counters;

/// The most that one read takes: what a module asks for, or this much. Bounds what is set
/// aside before it is known how much is there.
const MAX_READ: usize = 256 << 10;

/// What the first system call of a read asks for; later ones ask for as much as came.
const FIRST_READ: usize = 16 << 10;

/// Accept errors in a row (a connection that is gone again) before giving up for now.
const MAX_ACCEPT_ERRORS: usize = 16;

/// A listening TCP socket. It outlives the instances of the module that use it.
pub(crate) struct TcpPort {
    listener: TcpListener,
    local: SocketAddr,
    counters: Arc<Counters>,
}

impl TcpPort {
    /// Within the context of a tokio runtime.
    pub(crate) fn new(
        listener: StdListener,
        local: SocketAddr,
        counters: Arc<Counters>,
    ) -> io::Result<TcpPort> {
        Ok(TcpPort {
            listener: TcpListener::from_std(listener)?,
            local: SocketAddr::new(local.ip().to_canonical(), local.port()),
            counters,
        })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// A connection, or `None` if nobody waits; then `cx` is woken when somebody does.
    pub(crate) fn accept(&self, cx: &mut Context<'_>) -> Result<Option<Connection>, ErrorCode> {
        for _ in 0..MAX_ACCEPT_ERRORS {
            match self.listener.poll_accept(cx) {
                Poll::Pending => return Ok(None),
                Poll::Ready(Ok((stream, remote))) => {
                    self.counters.connections_accepted.add(1);
                    return Ok(Some(Connection::with(stream, remote)));
                }
                // Of the connection, not of the listener (accept(2)).
                Poll::Ready(Err(error)) if is_of_connection(&error) => {}
                // Out of descriptors or memory: the module is told, and may try again.
                Poll::Ready(Err(error)) => {
                    tracing::debug!("tcp {}: accept: {error}", self.local);
                    return Err(ErrorCode::LimitReached);
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(None)
    }
}

/// A connection that was accepted or made.
pub struct Connection {
    stream: TcpStream,
    remote: SocketAddr,
    read_shut: bool,
    write_shut: bool,
    saw_end: bool,
}

impl Connection {
    /// One that was made.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Connection> {
        let remote = stream.peer_addr()?;
        Ok(Connection::with(stream, remote))
    }

    fn with(stream: TcpStream, remote: SocketAddr) -> Connection {
        // Latency matters more than packets; a module writes in batches.
        let _ = stream.set_nodelay(true);
        Connection {
            stream,
            remote: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
            read_shut: false,
            write_shut: false,
            saw_end: false,
        }
    }

    /// As `byte-stream.read`. After a short read `cx` is woken when there is more.
    pub(crate) fn read(
        &mut self,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        if self.read_shut || self.saw_end {
            return Ok(None);
        }
        let mut data = Vec::new();
        while data.len() < max {
            match self.stream.poll_read_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err((&error).into()),
                Poll::Ready(Ok(())) => {}
            }
            let start = data.len();
            let ask = (max - start).min(start.clamp(FIRST_READ, MAX_READ / 4));
            data.resize(start + ask, 0);
            let result = self.stream.try_read(&mut data[start..]);
            data.truncate(start + *result.as_ref().unwrap_or(&0));
            match result {
                Ok(0) if data.is_empty() => {
                    self.saw_end = true;
                    return Ok(None);
                }
                Ok(0) => {
                    // The end comes with the next call, which can be made at once.
                    cx.waker().wake_by_ref();
                    break;
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if data.is_empty() => return Err((&error).into()),
                Err(_) => {
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

    /// As `byte-stream.write`. After a short write `cx` is woken when there is room.
    pub(crate) fn write(&mut self, data: &[u8], cx: &mut Context<'_>) -> Result<usize, ErrorCode> {
        if self.write_shut {
            return Err(ErrorCode::InvalidState);
        }
        let mut written = 0;
        while written < data.len() {
            match self.stream.poll_write_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err((&error).into()),
                Poll::Ready(Ok(())) => {}
            }
            match self.stream.try_write(&data[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // What was accepted before is lost with the connection.
                Err(error) => return Err((&error).into()),
            }
        }
        Ok(written)
    }

    /// As `byte-stream.shutdown`.
    pub(crate) fn shutdown(&mut self, read: bool, write: bool) -> Result<(), ErrorCode> {
        if read && !self.read_shut {
            self.read_shut = true;
            // A connection that the other end has reset already has nothing to shut.
            let _ = SockRef::from(&self.stream).shutdown(Shutdown::Read);
        }
        if write && !self.write_shut {
            self.write_shut = true;
            match SockRef::from(&self.stream).shutdown(Shutdown::Write) {
                Err(error) if error.kind() != io::ErrorKind::NotConnected => {
                    return Err((&error).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// As `byte-stream.reset`: dropping the socket now sends RST in place of FIN.
    pub(crate) fn reset(&mut self) {
        // If it fails the other end gets a FIN, and a reset when it sends.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        self.read_shut = true;
        self.write_shut = true;
    }

    pub(crate) fn remote_addr(&self) -> SocketAddr {
        self.remote
    }
}

/// What is not finished is reset.
impl Drop for Connection {
    fn drop(&mut self) {
        let finished = self.write_shut && (self.read_shut || self.saw_end);
        if !finished {
            self.reset();
        }
    }
}

fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}
