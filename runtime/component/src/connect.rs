//! Connections that a module asks for. `sockets` makes them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::carry::{CARRY_BYTES, carry};
use super::dialling::{Addresses, AttemptReporter};
use crate::{Destination, Error, ErrorCode, FlowInfo, Limits, Target};
use watm_net::connect::{Wire, WireKind, datagrams};
use watm_net::flow::{GuestStream, charge_stream_anyway, stream_pair};
use watm_net::quota::Permit;
use watm_net::ready::{Token, WakeBatch};
use watm_net::sockets::Connection;
use watm_policy::access::Access;

/// A request of a module for a connection.
pub(super) struct Request {
    pub(super) access: Arc<Access>,
    pub(super) target: Target,
    /// True if it goes to the application's destination.
    pub(super) own: bool,
    /// The runtime of the connectors, and of the streams that they make.
    pub(super) runtime: Handle,
    pub(super) token: Arc<Token>,
    pub(super) limits: Limits,
}

/// The transport of a connection.
enum Link {
    Tcp(TcpStream),
    /// A stream that a task of the connector's runtime carries.
    Carried(GuestStream),
}

type Made = Result<(Link, Addresses), Error>;

/// A connection attempt. Polled within the context of the server's runtime.
type Connecting = Pin<Box<dyn Future<Output = Made> + Send>>;

impl Request {
    fn begin(self) -> Connecting {
        if self.access.connector.is_none() {
            return Box::pin(self.make());
        }
        let (access, target) = (self.access.clone(), self.target.clone());
        // A task keeps the application's code from blocking the server's thread, and from ending it
        // by a panic.
        let mut task = Task(self.runtime.clone().spawn(self.make()));
        Box::pin(async move {
            let failed = |source| access.failed(&target, source);
            match (&mut task.0).await {
                Ok(Ok((Link::Tcp(stream), addresses))) => {
                    // The server's thread polls it from now on.
                    let stream = stream.into_std().and_then(TcpStream::from_std);
                    Ok((Link::Tcp(stream.map_err(failed)?), addresses))
                }
                Ok(made) => made,
                Err(error) if error.is_panic() => {
                    Err(failed(io::Error::other("the connector panicked")))
                }
                Err(_) => Err(failed(io::Error::other(
                    "the connector's runtime is shut down",
                ))),
            }
        })
    }

    async fn make(self) -> Made {
        let Wire { kind, local, peer } = self.access.connect(&self.target, self.own).await?;
        let link = match kind {
            WireKind::Tcp(stream) => Link::Tcp(stream),
            WireKind::Udp(_) | WireKind::Datagrams(_) => {
                return Err(self.access.failed(&self.target, datagrams()));
            }
            WireKind::Other(stream) => {
                let info = FlowInfo {
                    source: peer.unwrap_or(UNKNOWN),
                    destination: Destination::Address(local.unwrap_or(UNKNOWN)),
                    peer: None,
                    underlay: None,
                    attributes: Vec::new(),
                };
                let mut charge = charge_stream_anyway(&info, &self.access.counters.account);
                let full = |code: ErrorCode| self.access.failed(&self.target, code.into());
                charge.add(CARRY_BYTES).map_err(full)?;
                let (near, far) = stream_pair(info, self.token, &self.limits, None, charge);
                tokio::spawn(carry(stream, far));
                Link::Carried(near)
            }
        };
        Ok((link, (local, peer)))
    }
}

/// The unspecified address, for ends whose address is unknown.
pub(super) const UNKNOWN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// A task that is aborted when this is dropped.
struct Task(JoinHandle<Made>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A stream that a module asked for.
pub struct Dialled {
    state: State,
    /// The address of the other end, once it is known.
    peer: Option<SocketAddr>,
    /// The directions (read, write) that were shut before it was connected.
    shut: (bool, bool),
    _permit: Permit,
}

enum State {
    Connecting(Connecting, AttemptReporter),
    Tcp(Connection),
    Carried(GuestStream),
    Failed(ErrorCode),
}

impl Dialled {
    /// Begins to connect. `outcome` gets the outcome. `permit` is that of a descriptor.
    pub(super) fn new(request: Request, outcome: AttemptReporter, permit: Permit) -> Dialled {
        Dialled {
            state: State::Connecting(request.begin(), outcome),
            peer: None,
            shut: (false, false),
            _permit: permit,
        }
    }

    /// Continues to connect; `cx` is woken when that is done.
    fn poll_connected(&mut self, cx: &mut Context<'_>, wakers: &mut WakeBatch) {
        let State::Connecting(connecting, outcome) = &mut self.state else {
            return;
        };
        let Poll::Ready(made) = connecting.as_mut().poll(cx) else {
            return;
        };
        let mut outcome = std::mem::take(outcome);
        let (read, write) = self.shut;
        self.state = match made {
            Ok((link, addresses)) => {
                self.peer = addresses.1;
                outcome.tell(Ok(addresses));
                let connected = match link {
                    Link::Tcp(stream) => Connection::new(stream)
                        .map_err(|error| ErrorCode::from(&error))
                        .and_then(|mut connection| {
                            connection.shutdown(read, write)?;
                            Ok(State::Tcp(connection))
                        }),
                    Link::Carried(stream) => {
                        stream.shutdown(read, write, wakers);
                        Ok(State::Carried(stream))
                    }
                };
                connected.unwrap_or_else(State::Failed)
            }
            Err(error) => {
                let code = code(&error);
                outcome.tell(Err(error));
                State::Failed(code)
            }
        };
    }

    /// Reads, as `byte-stream.read`.
    pub(super) fn read(
        &mut self,
        max: usize,
        cx: &mut Context<'_>,
        wakers: &mut WakeBatch,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        self.poll_connected(cx, wakers);
        match &mut self.state {
            State::Tcp(connection) => connection.read(max, cx),
            State::Carried(stream) => stream.read(max, wakers),
            State::Failed(error) => Err(error.clone()),
            State::Connecting(..) => Ok(Some(Vec::new())),
        }
    }

    /// Writes, as `byte-stream.write`.
    pub(super) fn write(
        &mut self,
        data: Vec<u8>,
        cx: &mut Context<'_>,
        wakers: &mut WakeBatch,
    ) -> Result<usize, ErrorCode> {
        self.poll_connected(cx, wakers);
        match &mut self.state {
            State::Tcp(connection) => connection.write(&data, cx),
            State::Carried(stream) => stream.write(data, wakers),
            State::Failed(error) => Err(error.clone()),
            State::Connecting(..) => Ok(0),
        }
    }

    /// Shuts directions, as `byte-stream.shutdown`.
    pub(super) fn shutdown(
        &mut self,
        read: bool,
        write: bool,
        wakers: &mut WakeBatch,
    ) -> Result<(), ErrorCode> {
        match &mut self.state {
            State::Tcp(connection) => connection.shutdown(read, write),
            State::Carried(stream) => {
                stream.shutdown(read, write, wakers);
                Ok(())
            }
            State::Failed(error) => Err(error.clone()),
            State::Connecting(..) => {
                self.shut.0 |= read;
                self.shut.1 |= write;
                Ok(())
            }
        }
    }

    /// Resets, as `byte-stream.reset`.
    pub(super) fn reset(&mut self, reason: ErrorCode, wakers: &mut WakeBatch) {
        match &mut self.state {
            State::Tcp(connection) => connection.reset(),
            State::Carried(stream) => stream.reset(&reason, wakers),
            // Dropping the attempt abandons it.
            State::Connecting(..) => self.state = State::Failed(reason),
            State::Failed(_) => {}
        }
    }

    /// Returns the address of the other end, as `byte-stream.remote-address`: `None` before it is
    /// connected.
    pub(super) fn remote_addr(&self) -> Option<SocketAddr> {
        self.peer
    }
}

/// Returns the code that the module gets for a connection that failed.
pub(super) fn code(error: &Error) -> ErrorCode {
    match error {
        Error::Denied { .. } => ErrorCode::AccessDenied,
        Error::Connect { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            ErrorCode::NameUnresolvable
        }
        Error::Connect { source, .. } => source.into(),
        other => ErrorCode::Other(other.to_string().into()),
    }
}
