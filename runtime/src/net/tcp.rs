use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};

use crate::ErrorCode;
use crate::counters::Counters;

/// The most that one read takes: what a module asks for, or this much. Bounds what is set
/// aside before it is known how much is there.
const MAX_READ: usize = 256 << 10;

/// What one system call of a read asks for.
const PIECE: usize = 64 << 10;

/// Accept errors in a row (a connection that is gone again) before giving up for now.
const MAX_ACCEPT_ERRORS: usize = 16;

/// How long nothing is accepted after the system was short of descriptors or memory: long enough
/// for connections to end, and short enough that nobody notices.
const SHORTAGE: Duration = Duration::from_millis(200);

thread_local! {
    /// What is read on this thread, before it is known how much it is.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// A listening TCP socket. It outlives the instances of the module that use it.
pub(crate) struct TcpPort {
    local: SocketAddr,
    counters: Arc<Counters>,
    state: Mutex<State>,
}

struct State {
    /// `None`: it takes no more connections.
    listener: Option<TcpListener>,
    /// It ends with those who wait already.
    ending: bool,
    /// After a shortage: until when to wait.
    pause: Option<Pin<Box<Sleep>>>,
    /// Of the module's last look.
    waiting: Option<Waker>,
}

impl TcpPort {
    /// Within the context of a tokio runtime.
    pub(crate) fn new(
        listener: StdListener,
        local: SocketAddr,
        counters: Arc<Counters>,
    ) -> io::Result<TcpPort> {
        Ok(TcpPort {
            local: SocketAddr::new(local.ip().to_canonical(), local.port()),
            counters,
            state: Mutex::new(State {
                listener: Some(TcpListener::from_std(listener)?),
                ending: false,
                pause: None,
                waiting: None,
            }),
        })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Take those who wait already, and then nobody any more: the port is free then.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock().expect("no panic under this lock");
        state.ending = true;
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// A connection, or `None` if nobody waits; then `cx` is woken when somebody does.
    pub(crate) fn accept(&self, cx: &mut Context<'_>) -> Result<Option<Connection>, ErrorCode> {
        let mut state = self.state.lock().expect("no panic under this lock");
        if let Some(pause) = &mut state.pause {
            if pause.as_mut().poll(cx).is_pending() {
                return Ok(None);
            }
            state.pause = None;
        }
        state.waiting = Some(cx.waker().clone());
        for _ in 0..MAX_ACCEPT_ERRORS {
            let Some(listener) = &state.listener else {
                return Ok(None);
            };
            match listener.poll_accept(cx) {
                Poll::Pending => {
                    if state.ending {
                        state.listener = None;
                    }
                    return Ok(None);
                }
                Poll::Ready(Ok((stream, remote))) => {
                    self.counters.connections_accepted.add(1);
                    self.counters.connections_open.add(1);
                    let counters = Some(self.counters.clone());
                    return Ok(Some(Connection::with(stream, remote, counters)));
                }
                // Of the connection, not of the listener (accept(2)).
                Poll::Ready(Err(error)) if is_of_connection(&error) => {}
                // Out of descriptors or memory.
                Poll::Ready(Err(error)) => {
                    tracing::debug!(target: "watm::server", "tcp {}: accept: {error}", self.local);
                    self.counters.accept_shortages.add(1);
                    let pause = state.pause.insert(Box::pin(sleep(SHORTAGE)));
                    // Has the waker called when it is over.
                    let _ = pause.as_mut().poll(cx);
                    return Ok(None);
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
    /// What the next read fails with.
    failed: Option<ErrorCode>,
    /// Who counts it, if it was accepted.
    counters: Option<Arc<Counters>>,
}

impl Connection {
    /// One that was made.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Connection> {
        let remote = stream.peer_addr()?;
        Ok(Connection::with(stream, remote, None))
    }

    fn with(stream: TcpStream, remote: SocketAddr, counters: Option<Arc<Counters>>) -> Connection {
        // Latency matters more than packets; a module writes in batches.
        let _ = stream.set_nodelay(true);
        Connection {
            stream,
            remote: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
            read_shut: false,
            write_shut: false,
            saw_end: false,
            failed: None,
            counters,
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
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        SCRATCH.with_borrow_mut(|scratch| self.read_by(scratch, max, cx))
    }

    fn read_by(
        &mut self,
        scratch: &mut [u8],
        max: usize,
        cx: &mut Context<'_>,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        let mut data = Vec::new();
        while data.len() < max {
            let ask = (max - data.len()).min(scratch.len());
            let mut piece = ReadBuf::new(&mut scratch[..ask]);
            // Less than was asked for says that there is no more, which then costs no system call.
            match Pin::new(&mut self.stream).poll_read(cx, &mut piece) {
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
        if let Some(counters) = &self.counters {
            counters.connections_open.sub(1);
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
