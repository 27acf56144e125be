//! The traits of dialers and their connections, which modules, the host and tests implement.

use std::future::Future;
use std::io;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::join::pump_both;
use crate::{Destination, Error};

/// A dialer, which makes connections for clients: a module, the host itself, a test.
pub trait Dial: Send + Sync + 'static {
    /// A stream connection.
    type Stream: Carried;
    /// A flow of datagrams.
    type Datagrams: Datagrams;

    /// Connects, within the dialer's own time limit. Dropping the future gives up.
    fn stream(
        &self,
        to: &Destination,
    ) -> impl Future<Output = Result<Self::Stream, Refusal>> + Send;

    /// Opens a flow of datagrams to one destination.
    fn datagrams(
        &self,
        to: &Destination,
    ) -> impl Future<Output = Result<Self::Datagrams, Refusal>> + Send;
}

/// A stream that can be reset.
pub trait Carried: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Resets the stream, so that the other end sees a failure. Nothing is read or written
    /// afterwards.
    fn reset(&mut self);

    /// Moves bytes between this stream and a client until both directions have ended. Passes on the
    /// end of each direction, and a failure of either side to the other. Dropping the future ends
    /// both. By default the awaiting task moves the bytes.
    fn carry(self, client: TcpStream) -> impl Future<Output = Result<(), Error>> + Send
    where
        Self: Sized,
    {
        pump_both(client, self)
    }
}

/// A flow of datagrams with one destination. Dropping it ends the flow.
pub trait Datagrams: Send + Sync + 'static {
    /// Sends a whole datagram. Returns false if it was dropped because a queue is full. An error
    /// means that the flow has ended.
    fn send(&self, datagram: &[u8]) -> io::Result<bool>;

    /// Receives a whole datagram. Returns `None` if the flow has ended. Dropping the future loses
    /// nothing.
    fn receive(&self) -> impl Future<Output = io::Result<Option<Vec<u8>>>> + Send;
}

/// The reason why a destination was not connected to. Each has its own answer to the client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The destination is not allowed.
    #[error("not allowed")]
    NotAllowed,
    /// No route leads to its network.
    #[error("network unreachable")]
    NetworkUnreachable,
    /// The host does not answer, or its name has no address.
    #[error("host unreachable")]
    HostUnreachable,
    /// The host refused the connection.
    #[error("connection refused")]
    Refused,
    /// The host did not answer in time.
    #[error("timed out")]
    TimedOut,
    /// The dialer does not support such connections.
    #[error("not supported")]
    NotSupported,
    /// Another reason, in words for a log.
    #[error("{0}")]
    Failed(String),
}

impl From<&io::Error> for Refusal {
    fn from(error: &io::Error) -> Refusal {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::PermissionDenied => Refusal::NotAllowed,
            Kind::NetworkUnreachable => Refusal::NetworkUnreachable,
            Kind::HostUnreachable | Kind::NotFound => Refusal::HostUnreachable,
            Kind::ConnectionRefused => Refusal::Refused,
            Kind::TimedOut => Refusal::TimedOut,
            Kind::Unsupported => Refusal::NotSupported,
            _ => Refusal::Failed(error.to_string()),
        }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        use io::ErrorKind as Kind;
        let kind = match refusal {
            Refusal::NotAllowed => Kind::PermissionDenied,
            Refusal::NetworkUnreachable => Kind::NetworkUnreachable,
            Refusal::HostUnreachable => Kind::HostUnreachable,
            Refusal::Refused => Kind::ConnectionRefused,
            Refusal::TimedOut => Kind::TimedOut,
            Refusal::NotSupported => Kind::Unsupported,
            Refusal::Failed(_) => Kind::Other,
        };
        io::Error::new(kind, refusal)
    }
}
