//! Connections that a module asks for.

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
use super::dialling::{Addresses, News};
use crate::flow::{FlowPermit, GuestStream, charge_stream_anyway, stream_pair};
use crate::net::Connection;
use crate::ready::{Token, WakeBatch};
use crate::roles::{Access, Wire, WireKind, datagrams};
use crate::{Destination, Error, ErrorCode, FlowInfo, Limits, Target};

/// A connection that a module asks for.
pub(super) struct Request {
    pub(super) access: Arc<Access>,
    pub(super) target: Target,
    /// It is where the application wants to go.
    pub(super) own: bool,
    /// Where connectors run, and the streams that they make.
    pub(super) runtime: Handle,
    pub(super) token: Arc<Token>,
    pub(super) limits: Limits,
}

/// What a connection is made of.
enum Link {
    Tcp(TcpStream),
    /// Carried by a task of the connector's runtime.
    Carried(GuestStream),
}

type Made = Result<(Link, Addresses), Error>;

/// Polled within the context of the server's runtime.
type Connecting = Pin<Box<dyn Future<Output = Made> + Send>>;

impl Request {
    fn begin(self) -> Connecting {
        if self.access.connector.is_none() {
            return Box::pin(self.make());
        }
        let (access, target) = (self.access.clone(), self.target.clone());
        // In a task: code of the application's neither stalls the server's thread nor ends it
        // by a panic.
        let mut task = Task(self.runtime.clone().spawn(self.make()));
        Box::pin(async move {
            let failed = |source| access.failed(&target, source);
            match (&mut task.0).await {
                Ok(Ok((Link::Tcp(stream), addresses))) => {
                    // The server's thread serves it from now on.
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

/// An address that nobody knows.
pub(super) const UNKNOWN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Ends when it is dropped.
struct Task(JoinHandle<Made>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A stream that was asked for.
pub struct Dialled {
    state: State,
    /// Where it goes, once it is known.
    peer: Option<SocketAddr>,
    /// Directions that were shut before it was connected.
    shut: (bool, bool),
    _permit: FlowPermit,
}

enum State {
    Connecting(Connecting, News),
    Tcp(Connection),
    Carried(GuestStream),
    Failed(ErrorCode),
}

impl Dialled {
    /// `news` is told what becomes of it. The permit is of a descriptor.
    pub(super) fn new(request: Request, news: News, permit: FlowPermit) -> Dialled {
        Dialled {
            state: State::Connecting(request.begin(), news),
            peer: None,
            shut: (false, false),
            _permit: permit,
        }
    }

    /// Go on with connecting; `cx` is woken when it is done.
    fn poll_connected(&mut self, cx: &mut Context<'_>, wakers: &mut WakeBatch) {
        let State::Connecting(connecting, news) = &mut self.state else {
            return;
        };
        let Poll::Ready(made) = connecting.as_mut().poll(cx) else {
            return;
        };
        let mut news = std::mem::take(news);
        let (read, write) = self.shut;
        self.state = match made {
            Ok((link, addresses)) => {
                self.peer = addresses.1;
                news.tell(Ok(addresses));
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
                news.tell(Err(error));
                State::Failed(code)
            }
        };
    }

    /// As `byte-stream.read`.
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

    /// As `byte-stream.write`.
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

    /// As `byte-stream.shutdown`.
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

    /// As `byte-stream.reset`.
    pub(super) fn reset(&mut self, reason: ErrorCode, wakers: &mut WakeBatch) {
        match &mut self.state {
            State::Tcp(connection) => connection.reset(),
            State::Carried(stream) => stream.reset(&reason, wakers),
            // Gives up.
            State::Connecting(..) => self.state = State::Failed(reason),
            State::Failed(_) => {}
        }
    }

    /// As `byte-stream.remote-address`: unknown before it is connected.
    pub(super) fn remote_addr(&self) -> Option<SocketAddr> {
        self.peer
    }
}

/// What the module is told of a connection that cannot be had.
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
