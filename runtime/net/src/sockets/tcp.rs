//! TCP listeners and connections of a module. The driver keeps the listeners, and
//! `component::sockets` gives both to the module.

use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener as StdListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};

use super::admission::{Accepted, Admission};
use super::inlet::Inlet;
use super::lingering::linger;
use crate::ErrorCode;
use crate::counters::Counters;
use crate::quota::Permit;

/// The most accept errors in a row (a connection that is gone again) before giving up for now.
const MAX_ACCEPT_ERRORS: usize = 16;

/// The pause after the system was short of descriptors or memory: long enough for connections to
/// end, and short enough to go unnoticed.
const SHORTAGE: Duration = Duration::from_millis(200);

/// A listening TCP socket. It outlives the instances of the module that use it.
pub struct TcpPort {
    local: SocketAddr,
    counters: Arc<Counters>,
    admission: Option<Arc<dyn Admission>>,
    state: Mutex<State>,
}

struct State {
    /// The listener; `None` once it accepts no more connections.
    listener: Option<TcpListener>,
    /// True if it stops once the backlog is empty.
    ending: bool,
    /// The end of the pause after a shortage.
    pause: Option<Pin<Box<Sleep>>>,
    /// The waker of the module's last call.
    waiting: Option<Waker>,
}

impl TcpPort {
    /// Registers a listener. Needs the context of a tokio runtime.
    pub fn new(
        listener: StdListener,
        local: SocketAddr,
        counters: Arc<Counters>,
        admission: Option<Arc<dyn Admission>>,
    ) -> io::Result<TcpPort> {
        Ok(TcpPort {
            local: SocketAddr::new(local.ip().to_canonical(), local.port()),
            counters,
            admission,
            state: Mutex::new(State {
                listener: Some(TcpListener::from_std(listener)?),
                ending: false,
                pause: None,
                waiting: None,
            }),
        })
    }

    /// Returns the address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Accepts the connections in the backlog, and no more after that: the port is free then.
    pub fn stop(&self) {
        let mut state = self.state.lock().expect("no panic under this lock");
        state.ending = true;
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Pauses accepting for lack of descriptors. `cx` is woken after the pause.
    pub fn pause(&self, cx: &mut Context<'_>) {
        let mut state = self.state.lock().expect("no panic under this lock");
        if state.pause.is_none() {
            self.begin_pause(&mut state);
        }
        if let Some(pause) = &mut state.pause
            && pause.as_mut().poll(cx).is_ready()
        {
            state.pause = None;
            cx.waker().wake_by_ref();
        }
    }

    fn begin_pause(&self, state: &mut State) {
        self.counters.accept_shortages.add(1);
        state.pause = Some(Box::pin(sleep(SHORTAGE)));
    }

    /// Accepts a connection. Returns `None` if the backlog is empty; `cx` is woken when it is not.
    pub fn accept(&self, cx: &mut Context<'_>) -> Result<Option<Connection>, ErrorCode> {
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
                    let mut connection = Connection::with(stream, remote);
                    // A connection that is not taken is reset when it is dropped.
                    if self.admit(&mut connection) {
                        return Ok(Some(connection));
                    }
                }
                // The error is one of the connection, not of the listener (accept(2)).
                Poll::Ready(Err(error)) if is_of_connection(&error) => {}
                // The system is short of descriptors or memory.
                Poll::Ready(Err(error)) => {
                    tracing::debug!(target: "watm::server", "tcp {}: accept: {error}", self.local);
                    drop(state);
                    self.pause(cx);
                    return Ok(None);
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(None)
    }

    fn admit(&self, connection: &mut Connection) -> bool {
        if let Some(admission) = &self.admission {
            let accepted = Arc::new(Accepted::new(connection.remote, self.local));
            if !admission.admit(&accepted) {
                return false;
            }
            connection.admitted = Some((accepted, admission.clone()));
        }
        self.counters.connections_open.add(1);
        connection.counters = Some(self.counters.clone());
        true
    }
}

/// A connection that was accepted or made.
pub struct Connection {
    stream: TcpStream,
    remote: SocketAddr,
    read_shut: bool,
    write_shut: bool,
    /// True if the other end must see a reset.
    aborted: bool,
    inlet: Inlet,
    /// The permit of a descriptor, if the module has a limit of them.
    permit: Option<Permit>,
    /// The counters that count it, if it was accepted.
    counters: Option<Arc<Counters>>,
    /// The admission that took it, and may close it.
    admitted: Option<(Arc<Accepted>, Arc<dyn Admission>)>,
}

impl Connection {
    /// Takes a stream that was connected.
    pub fn new(stream: TcpStream) -> io::Result<Connection> {
        let remote = stream.peer_addr()?;
        Ok(Connection::with(stream, remote))
    }

    fn with(stream: TcpStream, remote: SocketAddr) -> Connection {
        // Latency matters more than the number of packets; a module writes in batches.
        let _ = stream.set_nodelay(true);
        Connection {
            stream,
            remote: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
            read_shut: false,
            write_shut: false,
            aborted: false,
            inlet: Inlet::default(),
            permit: None,
            counters: None,
            admitted: None,
        }
    }

    /// Holds the permit for as long as the connection is open.
    pub fn holding(mut self, permit: Permit) -> Connection {
        self.permit = Some(permit);
        self
    }

    /// Reads, as `byte-stream.read`. After a short read `cx` is woken when there is more.
    pub fn read(&mut self, max: usize, cx: &mut Context<'_>) -> Result<Option<Vec<u8>>, ErrorCode> {
        self.check_admitted(cx)?;
        match self.read_shut {
            true => Ok(None),
            false => self.inlet.read(&mut self.stream, max, cx),
        }
    }

    /// Writes, as `byte-stream.write`. After a short write `cx` is woken when there is room.
    pub fn write(&mut self, data: &[u8], cx: &mut Context<'_>) -> Result<usize, ErrorCode> {
        self.check_admitted(cx)?;
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
                // Bytes that were accepted before are lost with the connection.
                Err(error) => return Err((&error).into()),
            }
        }
        Ok(written)
    }

    /// Fails once the admission has closed the connection.
    fn check_admitted(&mut self, cx: &Context<'_>) -> Result<(), ErrorCode> {
        let admitted = self.admitted.as_ref();
        if !admitted.is_some_and(|(accepted, _)| accepted.is_closing(cx)) {
            return Ok(());
        }
        self.shutdown(true, true)?;
        Err(ErrorCode::ConnectionAborted)
    }

    /// Shuts directions, as `byte-stream.shutdown`.
    pub fn shutdown(&mut self, read: bool, write: bool) -> Result<(), ErrorCode> {
        // The read side is only noted: the kernel would not tell the other end.
        self.read_shut |= read;
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

    /// Resets, as `byte-stream.reset`: dropping the socket then sends RST in place of FIN.
    pub fn reset(&mut self) {
        let admitted = self.admitted.as_ref();
        if admitted.is_some_and(|(accepted, _)| accepted.was_closed()) {
            return;
        }
        // If this fails, the other end gets a FIN, and a reset when it sends.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        self.read_shut = true;
        self.write_shut = true;
        self.aborted = true;
    }

    /// Returns the address of the other end.
    pub fn remote_addr(&self) -> SocketAddr {
        self.remote
    }
}

/// A connection that is not finished is reset. One that is finished only on this side lingers.
impl Drop for Connection {
    fn drop(&mut self) {
        match (self.write_shut, self.read_shut, self.inlet.saw_end()) {
            (true, _, true) => {}
            (true, true, false) if !self.aborted => linger(&self.stream),
            _ => self.reset(),
        }
        if let Some(counters) = &self.counters {
            counters.connections_open.sub(1);
        }
        if let Some((accepted, admission)) = &self.admitted {
            admission.closed(accepted);
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
