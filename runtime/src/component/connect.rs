//! Connections that a module asks for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::net::Connection;
use crate::net::outgoing::resolve;
use crate::roles::Verdict;
use crate::{Destination, ErrorCode, Reach, Target};

/// A connection that is being made.
pub(crate) type Connecting =
    Pin<Box<dyn Future<Output = Result<TcpStream, ErrorCode>> + Send + Sync>>;

/// Connects for modules, and decides where they may go.
pub(crate) trait Connector: Send + Sync {
    /// Begin to connect; `None` if the module may not go there. `named`: it is where the
    /// caller of the `endpoint.dial` under way wants to go. Within the context of a tokio
    /// runtime.
    fn connect(&self, destination: &Destination, named: bool) -> Option<Connecting>;
}

/// Lets a module go where its caller wants to, and where its user has said beforehand.
pub(crate) struct Reachable {
    pub(crate) reach: Arc<Reach>,
    /// How long to try.
    pub(crate) timeout: Duration,
}

impl Connector for Reachable {
    fn connect(&self, destination: &Destination, named: bool) -> Option<Connecting> {
        let target = Target::tcp(destination.clone());
        let verdict = self.reach.judge(&target);
        if verdict == Verdict::Denied && !named {
            return None;
        }
        let any = named || verdict == Verdict::Allowed;
        let reach = self.reach.clone();
        let connecting = async move {
            let mut addresses = resolve(&target)
                .await
                .map_err(|_| ErrorCode::NameUnresolvable)?;
            addresses.retain(|address| any || reach.admits(target.network, address));
            if addresses.is_empty() {
                return Err(ErrorCode::AccessDenied);
            }
            TcpStream::connect(addresses.as_slice())
                .await
                .map_err(|error| (&error).into())
        };
        let patience = self.timeout;
        Some(Box::pin(async move {
            timeout(patience, connecting)
                .await
                .unwrap_or(Err(ErrorCode::Timeout))
        }))
    }
}

/// A stream that was asked for.
pub struct Dialled {
    state: State,
    /// Directions that were shut before it was connected.
    shut: (bool, bool),
}

enum State {
    Connecting(Connecting),
    Connected(Connection),
    Failed(ErrorCode),
}

impl Dialled {
    pub(super) fn new(connecting: Connecting) -> Dialled {
        Dialled {
            state: State::Connecting(connecting),
            shut: (false, false),
        }
    }

    /// The connection, once it is there; `cx` is woken then.
    pub(super) fn connection(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Option<&mut Connection>, ErrorCode> {
        if let State::Connecting(connecting) = &mut self.state {
            let connected = match connecting.as_mut().poll(cx) {
                Poll::Pending => return Ok(None),
                Poll::Ready(connected) => connected.and_then(|stream| {
                    let mut connection =
                        Connection::new(stream).map_err(|error| ErrorCode::from(&error))?;
                    let (read, write) = self.shut;
                    connection.shutdown(read, write)?;
                    Ok(connection)
                }),
            };
            self.state = connected.map_or_else(State::Failed, State::Connected);
        }
        match &mut self.state {
            State::Connected(connection) => Ok(Some(connection)),
            State::Failed(error) => Err(error.clone()),
            State::Connecting(_) => Ok(None),
        }
    }

    /// As `byte-stream.read`.
    pub(super) fn read(
        &mut self,
        max: usize,
        cx: &mut Context<'_>,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        match self.connection(cx)? {
            Some(connection) => connection.read(max, cx),
            None => Ok(Some(Vec::new())),
        }
    }

    /// As `byte-stream.write`.
    pub(super) fn write(&mut self, data: &[u8], cx: &mut Context<'_>) -> Result<usize, ErrorCode> {
        match self.connection(cx)? {
            Some(connection) => connection.write(data, cx),
            None => Ok(0),
        }
    }

    /// As `byte-stream.shutdown`.
    pub(super) fn shutdown(&mut self, read: bool, write: bool) -> Result<(), ErrorCode> {
        match &mut self.state {
            State::Connected(connection) => connection.shutdown(read, write),
            State::Failed(error) => Err(error.clone()),
            State::Connecting(_) => {
                self.shut.0 |= read;
                self.shut.1 |= write;
                Ok(())
            }
        }
    }

    /// As `byte-stream.reset`.
    pub(super) fn reset(&mut self, reason: ErrorCode) {
        match &mut self.state {
            State::Connected(connection) => connection.reset(),
            // Gives up.
            State::Connecting(_) => self.state = State::Failed(reason),
            State::Failed(_) => {}
        }
    }

    /// As `byte-stream.remote-address`: unknown before it is connected.
    pub(super) fn remote_addr(&self) -> Option<std::net::SocketAddr> {
        match &self.state {
            State::Connected(connection) => Some(connection.remote_addr()),
            State::Connecting(_) | State::Failed(_) => None,
        }
    }
}
