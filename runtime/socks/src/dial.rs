use std::future::Future;
use std::io;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::join::pump_both;
use crate::{Destination, Error};

/// Makes connections for clients: a module, the host itself, a test.
pub trait Dial: Send + Sync + 'static {
    /// A connection.
    type Stream: Carried;
    /// A flow of datagrams.
    type Datagrams: Datagrams;

    /// Connect, within a time of the dialer's own. Dropping the future gives up.
    fn stream(
        &self,
        to: &Destination,
    ) -> impl Future<Output = Result<Self::Stream, Refusal>> + Send;

    /// Have datagrams carried to one destination, and the answers back.
    fn datagrams(
        &self,
        to: &Destination,
    ) -> impl Future<Output = Result<Self::Datagrams, Refusal>> + Send;
}

/// A stream that can be cut.
pub trait Carried: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Have the other end see a failure. Nothing is read or written after it.
    fn reset(&mut self);

    /// Move bytes between this and a client until both directions have ended, each of which is passed
    /// on, or until one fails, which the other sees. Dropping the future ends both. By default the
    /// task that waits for it moves them.
    fn carry(self, client: TcpStream) -> impl Future<Output = Result<(), Error>> + Send
    where
        Self: Sized,
    {
        pump_both(client, self)
    }
}

/// Datagrams to one destination and back. Dropping them ends the flow.
pub trait Datagrams: Send + Sync + 'static {
    /// Send one, whole. `false`: it was dropped because a queue is full. An error: the flow has
    /// ended.
    fn send(&self, datagram: &[u8]) -> io::Result<bool>;

    /// Receive one, whole. `None`: the flow has ended. Dropping the future loses nothing.
    fn receive(&self) -> impl Future<Output = io::Result<Option<Vec<u8>>>> + Send;
}

/// Why a destination was not connected to. Each is an answer of its own to the client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Nobody may go there.
    #[error("not allowed")]
    NotAllowed,
    /// There is no way to its network.
    #[error("network unreachable")]
    NetworkUnreachable,
    /// It does not answer, or its name has no address.
    #[error("host unreachable")]
    HostUnreachable,
    /// It refused.
    #[error("connection refused")]
    Refused,
    /// It did not answer in time.
    #[error("timed out")]
    TimedOut,
    /// The dialer cannot do this at all.
    #[error("not supported")]
    NotSupported,
    /// Anything else, in words for a log.
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
