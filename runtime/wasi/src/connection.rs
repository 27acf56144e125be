//! A connection of a program, and its two streams. `tcp` makes them.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::sleep;
use wasmtime_wasi::p2::bindings::sockets::network::ErrorCode;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};
use watm_engine::cpu_meter::CpuMeter;
use watm_net::account::{Charge, LEAST};
use watm_net::connect::Stream;
use watm_net::flow::GuestIo;
use watm_net::quota::Permit;
use watm_net::sockets::Admitted;

use crate::clients::Place;
use crate::tasks::Tasks;

/// The most bytes that one call moves.
const MOST: usize = 64 << 10;

/// The bytes that are read ahead from a stream that cannot tell if it has any.
const AHEAD: usize = 16 << 10;

/// The system's side of a connection.
pub(crate) enum Kind {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A stream of the application's connector.
    Other(Box<dyn Stream>),
    /// A flow of the application.
    Flow(GuestIo),
}

/// The parts of the host that hear of the end of a client's connection.
pub(crate) type Held = Option<(Option<Admitted>, Place)>;

/// The parts of a program that its connections use.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) cpu: CpuMeter,
    pub(crate) tasks: Arc<Tasks>,
    /// The time for the rest of the data, once the program has closed the connection.
    pub(crate) grace: Duration,
}

/// A connection. Its socket, its two streams and the task that passes on its data share it.
pub(crate) struct Connection {
    ends: Mutex<Ends>,
    around: Surroundings,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// Notified when the program has closed the socket.
    released: Notify,
    /// The parts of the host that hear of the connection's end.
    held: Held,
    _permit: Permit,
}

struct Ends {
    kind: Kind,
    /// The bytes that were read ahead, and not yet by the program.
    ahead: Bytes,
    reading: Reading,
    /// The bytes that the program has written and the system has not yet taken.
    rest: Bytes,
    writing: Writing,
    /// The number of bytes that the program may write now.
    permitted: usize,
    /// Woken when the rest has been taken.
    waiting: Option<Waker>,
    charge: Charge,
    tasks: Arc<Tasks>,
}

#[derive(Clone, Copy, PartialEq)]
enum Reading {
    Open,
    Ended,
    Failed(ErrorCode),
}

#[derive(Clone, Copy, PartialEq)]
enum Writing {
    Open,
    /// The end follows the rest.
    Ending,
    Ended,
    Failed(ErrorCode),
}

/// The stream that a program reads.
pub(crate) struct Input(Arc<Connection>);

/// The stream that a program writes.
pub(crate) struct Output(Arc<Connection>);

impl Connection {
    pub(crate) fn new(
        kind: Kind,
        (local, peer): (Option<SocketAddr>, Option<SocketAddr>),
        permit: Permit,
        charge: Charge,
        held: Held,
        around: &Surroundings,
    ) -> Arc<Connection> {
        around.cpu.moves();
        Arc::new(Connection {
            ends: Mutex::new(Ends {
                kind,
                ahead: Bytes::new(),
                reading: Reading::Open,
                rest: Bytes::new(),
                writing: Writing::Open,
                permitted: 0,
                waiting: None,
                charge,
                tasks: around.tasks.clone(),
            }),
            around: around.clone(),
            local,
            peer,
            released: Notify::new(),
            held,
            _permit: permit,
        })
    }

    pub(crate) fn streams(self: &Arc<Self>) -> (Input, Output) {
        (Input(self.clone()), Output(self.clone()))
    }

    /// Shuts one direction or both, after the data that the program has written.
    pub(crate) fn shut(self: &Arc<Self>, read: bool, write: bool) {
        let mut ends = self.ends();
        if read {
            ends.reading = Reading::Ended;
            ends.ahead = Bytes::new();
            ends.account();
        }
        if write && ends.writing == Writing::Open {
            ends.writing = Writing::Ending;
            self.pass_on(ends);
        }
    }

    /// Has the system find out that the other end is gone while nothing is sent.
    pub(crate) fn set_keep_alive(&self, enabled: bool) {
        if let Kind::Tcp(stream) = &self.ends().kind {
            // It is an option: the connection works without it.
            let _ = SockRef::from(stream).set_keepalive(enabled);
        }
    }

    /// Notes that the program has closed the socket: the rest of its data has a limited time.
    pub(crate) fn release(&self) {
        self.released.notify_one();
    }

    /// Passes on what can be now, and has a task do the rest.
    fn pass_on(self: &Arc<Self>, mut ends: MutexGuard<'_, Ends>) {
        let passed = ends.poll_rest(&mut Context::from_waker(Waker::noop()));
        drop(ends);
        if passed.is_pending() {
            self.around.tasks.spawn(self.clone().pass_on_later());
        }
    }

    async fn pass_on_later(self: Arc<Self>) {
        let mut late = pin!(async {
            self.released.notified().await;
            sleep(self.around.grace).await;
        });
        poll_fn(|cx| {
            let passed = self.ends().poll_rest(cx);
            match passed.is_ready() {
                true => passed,
                false => late.as_mut().poll(cx),
            }
        })
        .await;
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().expect("no panic under this lock")
    }
}

impl Ends {
    /// Reads up to `most` bytes; none if there are none yet.
    fn read(&mut self, most: usize) -> StreamResult<Bytes> {
        if most == 0 && self.reading == Reading::Open {
            return Ok(Bytes::new());
        }
        if self.ahead.is_empty() && self.reading == Reading::Open {
            self.read_ahead(&mut Context::from_waker(Waker::noop()), most.min(MOST));
        }
        if !self.ahead.is_empty() {
            let read = self.ahead.split_to(most.min(self.ahead.len()));
            self.account();
            return Ok(read);
        }
        match self.reading {
            Reading::Open => Ok(Bytes::new()),
            Reading::Ended => Err(StreamError::Closed),
            Reading::Failed(code) => {
                self.reading = Reading::Ended;
                Err(StreamError::LastOperationFailed(code.into()))
            }
        }
    }

    /// Reads up to `most` bytes ahead, unless there are none yet.
    fn read_ahead(&mut self, cx: &mut Context<'_>, most: usize) {
        let mut buffer = BytesMut::with_capacity(most);
        let polled = match &mut self.kind {
            Kind::Tcp(stream) => poll_into(stream, &mut buffer, cx),
            Kind::Other(stream) => poll_into(stream, &mut buffer, cx),
            Kind::Flow(stream) => poll_into(stream, &mut buffer, cx),
        };
        match polled {
            Poll::Pending => return,
            Poll::Ready(Ok(0)) => self.reading = Reading::Ended,
            Poll::Ready(Ok(_)) => self.ahead = buffer.freeze(),
            Poll::Ready(Err(error)) => self.reading = Reading::Failed(code_of(&error)),
        }
        self.account();
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.ahead.is_empty() || self.reading != Reading::Open {
            return Poll::Ready(());
        }
        if let Kind::Tcp(stream) = &self.kind {
            return stream.poll_read_ready(cx).map(drop);
        }
        self.read_ahead(cx, AHEAD);
        match self.ahead.is_empty() && self.reading == Reading::Open {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    /// Returns the number of bytes that may be written now.
    fn permit(&mut self) -> StreamResult<usize> {
        self.permitted = match self.writing {
            Writing::Open if self.rest.is_empty() => {
                let mut cx = Context::from_waker(Waker::noop());
                match self.poll_writable(&mut cx) {
                    Poll::Ready(()) => self.charge.share(MOST).max(LEAST),
                    Poll::Pending => 0,
                }
            }
            Writing::Open => 0,
            Writing::Ending | Writing::Ended => return Err(StreamError::Closed),
            Writing::Failed(code) => {
                self.writing = Writing::Ended;
                return Err(StreamError::LastOperationFailed(code.into()));
            }
        };
        Ok(self.permitted)
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.writing {
            Writing::Open if self.rest.is_empty() => match &self.kind {
                Kind::Tcp(stream) => stream.poll_write_ready(cx).map(drop),
                Kind::Other(_) | Kind::Flow(_) => Poll::Ready(()),
            },
            Writing::Open | Writing::Ending => {
                self.waiting = Some(cx.waker().clone());
                Poll::Pending
            }
            Writing::Ended | Writing::Failed(_) => Poll::Ready(()),
        }
    }

    /// Returns ready when the system has taken all that was written, and the end if it follows.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let passed = ready!(self.poll_pass(cx));
        self.writing = match (passed, self.writing) {
            (Ok(()), Writing::Ending) => Writing::Ended,
            (Ok(()), writing) => writing,
            (Err(error), _) => {
                self.rest = Bytes::new();
                Writing::Failed(code_of(&error))
            }
        };
        self.account();
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
        Poll::Ready(())
    }

    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream: Pin<&mut (dyn AsyncWrite + Unpin)> = match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream),
            Kind::Other(stream) => Pin::new(stream),
            Kind::Flow(stream) => Pin::new(stream),
        };
        while !self.rest.is_empty() {
            let count = ready!(stream.as_mut().poll_write(cx, &self.rest))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            drop(self.rest.split_to(count));
        }
        match self.writing {
            Writing::Ending => stream.poll_shutdown(cx),
            _ => stream.poll_flush(cx),
        }
    }

    /// Charges what is kept.
    fn account(&mut self) {
        let kept = self.ahead.len() + self.rest.len();
        self.charge.set_flow(kept, kept > 0);
    }
}

/// Resets the connection if its program has failed, unless the program has ended its data.
impl Drop for Ends {
    fn drop(&mut self) {
        if !self.tasks.has_failed() || self.writing == Writing::Ended {
            return;
        }
        match &mut self.kind {
            // The system closes the connection in either way.
            Kind::Tcp(stream) => drop(stream.set_zero_linger()),
            Kind::Flow(stream) => stream.fail(),
            Kind::Other(_) => {}
        }
    }
}

impl InputStream for Input {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let read = self.0.ends().read(size)?;
        if !read.is_empty() {
            self.0.around.cpu.moves();
        }
        Ok(read)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Input {
    async fn ready(&mut self) {
        poll_fn(|cx| {
            let mut ends = self.0.ends();
            // The application closes a client's connection: the program sees its end.
            if let Some((Some(admitted), _)) = &self.0.held
                && admitted.poll_closing(cx).is_ready()
            {
                ends.reading = Reading::Ended;
            }
            ends.poll_readable(cx)
        })
        .await;
    }
}

impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut ends = self.0.ends();
        if bytes.len() > ends.permitted {
            return Err(StreamError::trap("wrote more than check-write permits"));
        }
        ends.permitted = 0;
        if bytes.is_empty() {
            return Ok(());
        }
        if ends.writing != Writing::Open {
            return Err(StreamError::Closed);
        }
        self.0.around.cpu.moves();
        ends.rest = bytes;
        ends.account();
        self.0.pass_on(ends);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.0.ends().permit()
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {
        poll_fn(|cx| self.0.ends().poll_writable(cx)).await;
    }
}

/// Reads into the spare room of a buffer. Reads nothing if it returns pending.
fn poll_into(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    pin!(stream.read_buf(buffer)).poll(cx)
}

/// Returns the code that a program gets for an error of the system.
pub(crate) fn code_of(error: &io::Error) -> ErrorCode {
    use io::ErrorKind;

    match error.kind() {
        ErrorKind::PermissionDenied => ErrorCode::AccessDenied,
        ErrorKind::ConnectionRefused => ErrorCode::ConnectionRefused,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ErrorCode::ConnectionReset,
        ErrorKind::ConnectionAborted => ErrorCode::ConnectionAborted,
        ErrorKind::TimedOut => ErrorCode::Timeout,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NotFound => {
            ErrorCode::RemoteUnreachable
        }
        ErrorKind::OutOfMemory => ErrorCode::OutOfMemory,
        _ => ErrorCode::Unknown,
    }
}
