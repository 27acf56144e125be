//! Addresses, errors and status types of the API, which the other folders share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use std::{error, fmt, io};

use crate::{Error, Module, Target, Used};

/// The reason why an operation on a flow or a socket failed. Names follow `wasi:sockets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorCode {
    /// The host did not grant this label, destination or service.
    AccessDenied,
    /// The other side does not implement it.
    NotSupported,
    /// An argument is out of range.
    InvalidArgument,
    /// The operation is not possible in the present state, such as a write after `shutdown_write`.
    InvalidState,
    /// A limit is reached; nothing was created.
    LimitReached,
    /// The other end did not answer in time.
    Timeout,
    /// There is no route to the other end.
    RemoteUnreachable,
    /// The other end refused.
    ConnectionRefused,
    /// The other end aborted.
    ConnectionReset,
    /// This end aborted, or the other end reads no more.
    ConnectionAborted,
    /// A datagram is larger than the path carries.
    DatagramTooLarge,
    /// A host name has no address.
    NameUnresolvable,
    /// Any other reason, in words for people. Clones share them.
    Other(Arc<str>),
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorCode::AccessDenied => "access denied",
            ErrorCode::NotSupported => "not supported",
            ErrorCode::InvalidArgument => "invalid argument",
            ErrorCode::InvalidState => "invalid state",
            ErrorCode::LimitReached => "limit reached",
            ErrorCode::Timeout => "timeout",
            ErrorCode::RemoteUnreachable => "remote unreachable",
            ErrorCode::ConnectionRefused => "connection refused",
            ErrorCode::ConnectionReset => "connection reset",
            ErrorCode::ConnectionAborted => "connection aborted",
            ErrorCode::DatagramTooLarge => "datagram too large",
            ErrorCode::NameUnresolvable => "name unresolvable",
            ErrorCode::Other(text) => text,
        })
    }
}

impl error::Error for ErrorCode {}

impl From<ErrorCode> for io::Error {
    fn from(code: ErrorCode) -> io::Error {
        let kind = match &code {
            ErrorCode::AccessDenied => io::ErrorKind::PermissionDenied,
            ErrorCode::NotSupported => io::ErrorKind::Unsupported,
            ErrorCode::InvalidArgument => io::ErrorKind::InvalidInput,
            ErrorCode::InvalidState => io::ErrorKind::NotConnected,
            ErrorCode::LimitReached => io::ErrorKind::QuotaExceeded,
            ErrorCode::Timeout => io::ErrorKind::TimedOut,
            ErrorCode::RemoteUnreachable => io::ErrorKind::HostUnreachable,
            ErrorCode::ConnectionRefused => io::ErrorKind::ConnectionRefused,
            ErrorCode::ConnectionReset => io::ErrorKind::ConnectionReset,
            ErrorCode::ConnectionAborted => io::ErrorKind::ConnectionAborted,
            ErrorCode::DatagramTooLarge => io::ErrorKind::FileTooLarge,
            ErrorCode::NameUnresolvable => io::ErrorKind::NotFound,
            ErrorCode::Other(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, code)
    }
}

impl From<&io::Error> for ErrorCode {
    fn from(error: &io::Error) -> ErrorCode {
        match error.kind() {
            io::ErrorKind::PermissionDenied => ErrorCode::AccessDenied,
            io::ErrorKind::TimedOut => ErrorCode::Timeout,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                ErrorCode::RemoteUnreachable
            }
            io::ErrorKind::ConnectionRefused => ErrorCode::ConnectionRefused,
            io::ErrorKind::ConnectionReset => ErrorCode::ConnectionReset,
            io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected => ErrorCode::ConnectionAborted,
            _ => ErrorCode::Other(error.to_string().into()),
        }
    }
}

/// The destination of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// An address and a port.
    Address(SocketAddr),
    /// A host name, not yet resolved, and a port.
    Name(String, u16),
}

impl Destination {
    /// Returns the port.
    pub fn port(&self) -> u16 {
        match self {
            Destination::Address(address) => address.port(),
            Destination::Name(_, port) => *port,
        }
    }
}

/// Parses `host:port`, with an IPv6 address in brackets. A name is not resolved.
impl FromStr for Destination {
    type Err = Error;

    fn from_str(text: &str) -> Result<Destination, Error> {
        Ok(Target::parse("tcp", text)?.destination)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Address(address) => address.fmt(f),
            Destination::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// The facts about a flow when it is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowInfo {
    /// The inner source.
    pub source: SocketAddr,
    /// The inner destination.
    pub destination: Destination,
    /// The peer that the transport authenticated: a public key, a user name.
    pub peer: Option<String>,
    /// The outer addresses that the flow arrived on: remote, then local.
    pub underlay: Option<(SocketAddr, SocketAddr)>,
    /// Other facts by name, such as `sni`.
    pub attributes: Vec<(String, String)>,
}

impl FlowInfo {
    /// Returns the memory of its names, in bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        let attributes = self.attributes.iter();
        let attributes = attributes.map(|(k, v)| k.capacity() + v.capacity() + ATTRIBUTE);
        let peer = self.peer.as_ref().map_or(0, String::capacity);
        let name = match &self.destination {
            Destination::Address(_) => 0,
            Destination::Name(name, _) => name.capacity(),
        };
        attributes.sum::<usize>() + peer + name
    }
}

/// The memory of an attribute beside its text, in bytes.
const ATTRIBUTE: usize = size_of::<(String, String)>();

/// The phase of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The module runs.
    Running,
    /// The module failed; a new instance will start. The sockets stay bound.
    Restarting,
    /// The last attempt to restart failed, for this reason; the host keeps trying.
    Failed(String),
    /// The server is closed.
    Closed,
}

/// The state of a server.
#[derive(Debug, Clone)]
pub struct Status {
    /// The phase.
    pub phase: Phase,
    /// The number of the serving generation: the number of instances before it, by swaps and
    /// restarts.
    pub generation: u32,
    /// The running generations, by number. Empty for a WATER module, which has an instance for each
    /// connection, or if none runs.
    pub generations: Vec<GenerationStatus>,
    /// The module that serves, or is to serve again; `None` if the server is closed.
    pub module: Option<Module>,
    /// The usage of the module.
    pub used: Used,
    /// The files that a [`Capture`](crate::Capture) is writing, in a sentence for each.
    pub captures: Vec<String>,
    /// The peers, in the order of the module's configuration.
    pub peers: Vec<PeerStatus>,
    /// The number of flows that are open now.
    pub flows: u32,
    /// Counters by name. Those of the host begin with `host.`; see the
    /// [crate page](crate#counters).
    pub counters: BTreeMap<String, u64>,
}

/// An instance of a server's module: the one that serves, or a former one that finishes its flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationStatus {
    /// The number, counted from 0.
    pub number: u32,
    /// The name that its module was loaded under.
    pub module: String,
    /// The SHA-256 of the module's bytes, in hexadecimal.
    pub sha256: String,
    /// The number of flows that are open now.
    pub flows: u32,
    /// The time since it was started.
    pub age: Duration,
    /// The time since another one serves; `None` for the serving one.
    pub draining: Option<Duration>,
}

/// A remote party that the transport knows by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// The name that [`FlowInfo::peer`] carries.
    pub name: String,
    /// The address where the peer was last heard, as `address:port`.
    pub endpoint: Option<String>,
    /// The age of the last completed handshake.
    pub last_handshake: Option<Duration>,
    /// The inner bytes from the peer.
    pub received_bytes: u64,
    /// The inner bytes to the peer.
    pub sent_bytes: u64,
    /// The round-trip time to the peer, as the module estimates it from recent traffic.
    pub round_trip: Option<Duration>,
    /// The thousandths of the peer's packets that were lost lately.
    pub loss_permille: Option<u16>,
}

/// The configuration that one client needs in order to connect. Contains secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The peer that it is for, if the transport distinguishes peers.
    pub peer: Option<String>,
    /// A file name to suggest, such as `wg0.conf`.
    pub name: String,
    /// The content's media type.
    pub media_type: String,
    /// The content of the file.
    pub content: String,
}

/// Formats it without the content, which holds secrets.
impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("peer", &self.peer)
            .field("name", &self.name)
            .field("media_type", &self.media_type)
            .finish_non_exhaustive()
    }
}
