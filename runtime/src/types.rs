use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use std::{error, fmt, io};

use crate::{Error, Module, Target, Used};

/// Why an operation on a flow or a socket failed. Names follow `wasi:sockets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorCode {
    /// The host did not grant this label, destination or service.
    AccessDenied,
    /// Not implemented by the other side.
    NotSupported,
    /// An argument is out of range.
    InvalidArgument,
    /// Not possible in the present state, such as a write after `shutdown_write`.
    InvalidState,
    /// A limit is reached; nothing was created.
    LimitReached,
    /// The other end did not answer in time.
    Timeout,
    /// No route to the other end.
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
    /// Anything else, in words for people. Clones share them.
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

/// Where a flow is going.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// An address and a port.
    Address(SocketAddr),
    /// A host name, not yet resolved, and a port.
    Name(String, u16),
}

impl Destination {
    /// The port.
    pub fn port(&self) -> u16 {
        match self {
            Destination::Address(address) => address.port(),
            Destination::Name(_, port) => *port,
        }
    }
}

/// `host:port`, with an IPv6 address in brackets. A name is not resolved.
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

/// What is known of a flow when it is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowInfo {
    /// The inner source.
    pub source: SocketAddr,
    /// The inner destination.
    pub destination: Destination,
    /// Who the transport authenticated: a public key, a user name.
    pub peer: Option<String>,
    /// The outer addresses that the flow arrived on: remote, then local.
    pub underlay: Option<(SocketAddr, SocketAddr)>,
    /// Other facts by name, such as `sni`.
    pub attributes: Vec<(String, String)>,
}

impl FlowInfo {
    /// Bytes of its names, as they lie in memory.
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

/// What an attribute takes beside its text.
const ATTRIBUTE: usize = size_of::<(String, String)>();

/// What a server is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The module runs.
    Running,
    /// The module failed; a new instance is on its way. The sockets stay bound.
    Restarting,
    /// The last attempt to restart failed, for this reason; the host goes on trying.
    Failed(String),
    /// The server is closed.
    Closed,
}

/// How a server is doing.
#[derive(Debug, Clone)]
pub struct Status {
    /// What it is doing.
    pub phase: Phase,
    /// The number of the generation that serves: how many instances there were before it, by
    /// swaps and restarts.
    pub generation: u32,
    /// The generations that run, by number. Empty: a WATER module, which has an instance for
    /// each connection, or none runs.
    pub generations: Vec<GenerationStatus>,
    /// The module that serves, or is to serve again; `None`: the server is closed.
    pub module: Option<Module>,
    /// What it has used.
    pub used: Used,
    /// What of it is written to files, in a sentence for each, while a
    /// [`Capture`](crate::Capture) does that.
    pub captures: Vec<String>,
    /// The peers, in the order of the module's configuration.
    pub peers: Vec<PeerStatus>,
    /// Flows open now.
    pub flows: u32,
    /// Counters by name. Those of the host begin with `host.`; see the
    /// [crate page](crate#counters).
    pub counters: BTreeMap<String, u64>,
}

/// One instance of a server's module: the one that serves, or one before it that finishes its
/// flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationStatus {
    /// Counted from 0.
    pub number: u32,
    /// The name that its module was loaded under.
    pub module: String,
    /// Of the module's bytes, in hexadecimal.
    pub sha256: String,
    /// Flows open now.
    pub flows: u32,
    /// Since it was started.
    pub age: Duration,
    /// Since another one serves; `None`: it does.
    pub draining: Option<Duration>,
}

/// One remote party that the transport knows by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// The name that [`FlowInfo::peer`] carries.
    pub name: String,
    /// Where the peer was last heard, as `address:port`.
    pub endpoint: Option<String>,
    /// Age of the last completed handshake.
    pub last_handshake: Option<Duration>,
    /// Inner bytes from the peer.
    pub received_bytes: u64,
    /// Inner bytes to the peer.
    pub sent_bytes: u64,
    /// How long the way to the peer and back takes, as estimated by what the module saw of it
    /// lately.
    pub round_trip: Option<Duration>,
    /// How many of a thousand packets of the peer's were lost lately.
    pub loss_permille: Option<u16>,
}

/// What one client needs in order to connect. Contains secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The peer this is for, if the transport tells peers apart.
    pub peer: Option<String>,
    /// A file name to suggest, such as `wg0.conf`.
    pub name: String,
    /// The content's media type.
    pub media_type: String,
    /// The file.
    pub content: String,
}

/// Without the content, which holds secrets.
impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("peer", &self.peer)
            .field("name", &self.name)
            .field("media_type", &self.media_type)
            .finish_non_exhaustive()
    }
}
