//! Connectors: the application's own way to connect, and the connections that they make. `access`
//! calls them.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UdpSocket};

use crate::Target;
use crate::flow::DatagramFlow;
use crate::sockets::outgoing;

/// Makes the connections that a module asks for, in place of the host's own TCP and UDP.
///
/// The caller's address and the `Reach` are checked before. A name is not resolved
/// yet, unless only some of its addresses may be reached. Dropping the future abandons the attempt.
///
/// The future runs in the tokio runtime that dials, or that made the listener or relay, and so does
/// the stream for as long as it lives: it may spawn, sleep and connect there, and ends with that
/// runtime. For a component it runs in a task of its own there, since the component has another
/// thread; only a [`Wire::tcp`] moves to that thread. A component does not support [`Wire::udp`],
/// which is an error. A socket that `RoleBuilder::datagrams` grants
/// needs [`Wire::datagrams`].
///
/// A `Dialer` is a connector, so that a module can be reached through another, and
/// so is a function or closure:
///
/// ```
/// use watm_net::Wire;
/// use watm_types::Target;
///
/// async fn through_a_pipe(target: Target) -> std::io::Result<Wire> {
///     let (near, _far) = tokio::io::duplex(4096);
///     println!("{target}");
///     Ok(Wire::stream(near))
/// }
/// # fn takes(_: impl watm_net::Connect) {}
/// # takes(through_a_pipe);
/// ```
pub trait Connect: Send + Sync + 'static {
    /// Returns the addresses of a target whose name a module has looked up, in the order in which to
    /// try them. Only those of its family are used. By default the machine's own resolver is asked.
    fn resolve(
        &self,
        target: Target,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + '_>> {
        Box::pin(async move { outgoing::resolve(&target).await })
    }

    /// Connects to `target`. The application sees the error as it is; the module gets one error
    /// code.
    fn connect(
        &self,
        target: Target,
    ) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>>;
}

impl<F, Connecting> Connect for F
where
    F: Fn(Target) -> Connecting + Send + Sync + 'static,
    Connecting: Future<Output = io::Result<Wire>> + Send + 'static,
{
    fn connect(
        &self,
        target: Target,
    ) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        Box::pin(self(target))
    }
}

/// A connection to the network, below a module.
pub struct Wire {
    #[doc(hidden)]
    pub kind: WireKind,
    #[doc(hidden)]
    pub local: Option<SocketAddr>,
    #[doc(hidden)]
    pub peer: Option<SocketAddr>,
}

/// The kinds of connections below a module.
pub enum WireKind {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A connected UDP socket.
    Udp(UdpSocket),
    /// A flow of datagrams.
    Datagrams(DatagramFlow),
    /// Any other stream.
    Other(Box<dyn Stream>),
}

/// A stream of bytes of any type.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Wire {
    /// Wraps a TCP connection. Faster than [`stream`](Wire::stream) of the same: bytes go straight
    /// between the kernel and the module.
    pub fn tcp(stream: TcpStream) -> Wire {
        Wire {
            local: stream.local_addr().ok().map(canonical),
            peer: stream.peer_addr().ok().map(canonical),
            kind: WireKind::Tcp(stream),
        }
    }

    /// Wraps a connected UDP socket. The module reads and writes one datagram in each call.
    pub fn udp(socket: UdpSocket) -> Wire {
        Wire {
            local: socket.local_addr().ok().map(canonical),
            peer: socket.peer_addr().ok().map(canonical),
            kind: WireKind::Udp(socket),
        }
    }

    /// Wraps a flow of datagrams, such as one of
    /// `Dialer::dial_datagrams`. Its queues take bursts from then on, as a system's socket does.
    pub fn datagrams(flow: DatagramFlow) -> Wire {
        flow.carry_tunnel();
        Wire {
            kind: WireKind::Datagrams(flow),
            local: None,
            peer: None,
        }
    }

    /// Wraps any other stream: TLS, a proxied connection, a pipe. Its addresses are unknown unless
    /// [`with_addresses`](Wire::with_addresses) sets them.
    pub fn stream(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Wire {
        Wire {
            kind: WireKind::Other(Box::new(stream)),
            local: None,
            peer: None,
        }
    }

    /// Sets the addresses that `Connection` reports.
    pub fn with_addresses(mut self, local: SocketAddr, peer: SocketAddr) -> Wire {
        self.local = Some(local);
        self.peer = Some(peer);
        self
    }
}

impl From<TcpStream> for Wire {
    fn from(stream: TcpStream) -> Wire {
        Wire::tcp(stream)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("local", &self.local)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// Returns the error for datagrams where a stream is needed.
pub fn datagrams() -> io::Error {
    let reason = "the connector returned datagrams; must be a stream";
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
