//! The traits that a transport calls its host through, and their types: the imports of
//! `wit/world.wit`. The shells and the hosts of tests implement them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use std::{error, fmt};

use crate::{Destination, Instant, Lookup};

/// The number by which a transport names a resource. The host passes it to
/// [`Transport::process`](crate::Transport::process) when that resource can make progress.
pub type Token = u64;

/// The reason why an operation failed. Names follow `wasi:sockets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorCode {
    /// The host did not grant this label, destination or service, or the configuration does not
    /// allow it.
    AccessDenied,
    /// The host or the transport cannot do this.
    NotSupported,
    /// An argument is out of range.
    InvalidArgument,
    /// The resource is not in a state for this.
    InvalidState,
    /// A limit set by the host is reached; nothing was created.
    LimitReached,
    /// The other end did not answer in time.
    Timeout,
    /// No route to the other end.
    RemoteUnreachable,
    /// The other end refused.
    ConnectionRefused,
    /// The other end aborted.
    ConnectionReset,
    /// This end aborted.
    ConnectionAborted,
    /// A datagram is larger than the path carries.
    DatagramTooLarge,
    /// A host name has no address.
    NameUnresolvable,
    /// Any other error, as text for people.
    Other(String),
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

/// The severity of a log record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// At most once per datagram.
    Trace,
    /// Events that strangers can trigger.
    Debug,
    /// Rare events: a start, the first handshake of a peer.
    Info,
    /// Conditions that the user should look at.
    Warn,
    /// A failure of something that the user asked for.
    Error,
}

/// The ECN bits of an IP header (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECT(1).
    Ect1,
    /// ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

/// One entry of a [`DatagramBatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// Bytes of the payload that this entry covers.
    pub len: u32,
    /// The size of each datagram, if the entry is a train of datagrams of equal size. The last one
    /// may be shorter.
    pub segment_size: Option<u16>,
    /// The address of the other end.
    pub remote: SocketAddr,
    /// The local address that the datagram arrived at, or should be sent from.
    pub local: Option<IpAddr>,
    /// ECN bits of the outer header.
    pub ecn: Ecn,
}

/// A batch of datagrams, laid end to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatagramBatch {
    /// The datagrams' bytes, without gaps.
    pub payload: Vec<u8>,
    /// The entries, in order. Their lengths add up to the payload's.
    pub datagrams: Vec<Datagram>,
}

impl DatagramBatch {
    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Iterates over the single datagrams, with trains split.
    pub fn iter(&self) -> impl Iterator<Item = (&Datagram, &[u8])> {
        let mut rest = self.payload.as_slice();
        self.datagrams.iter().flat_map(move |datagram| {
            let (bytes, tail) = rest.split_at((datagram.len as usize).min(rest.len()));
            rest = tail;
            let size = datagram
                .segment_size
                .map_or(bytes.len(), usize::from)
                .max(1);
            // A datagram may be empty. `chunks` yields nothing for it.
            let empty = bytes.is_empty().then_some(bytes);
            let chunks = empty.into_iter().chain(bytes.chunks(size));
            chunks.map(move |chunk| (datagram, chunk))
        })
    }
}

/// Datagrams of one flow, laid end to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Datagrams {
    /// The datagrams' bytes, without gaps.
    pub payload: Vec<u8>,
    /// The lengths, in order. They add up to the payload's.
    pub lengths: Vec<u32>,
}

impl Datagrams {
    /// Iterates over the single datagrams.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.payload.as_slice();
        self.lengths.iter().map(move |length| {
            let (datagram, tail) = rest.split_at((*length as usize).min(rest.len()));
            rest = tail;
            datagram
        })
    }

    /// Append one datagram.
    pub fn push(&mut self, datagram: &[u8]) {
        self.payload.extend_from_slice(datagram);
        self.lengths
            .push(u32::try_from(datagram.len()).expect("a datagram is shorter than 4 GiB"));
    }
}

/// The direction of a stream that an operation affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the other end to here.
    Read,
    /// From here to the other end.
    Write,
    /// Both.
    Both,
}

/// The description of a flow for the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowInfo {
    /// The inner source.
    pub source: SocketAddr,
    /// The inner destination.
    pub destination: Destination,
    /// The identity that the transport authenticated: a public key or a user name.
    pub peer: Option<String>,
    /// The outer addresses the flow arrived on: remote, then local.
    pub underlay: Option<(SocketAddr, SocketAddr)>,
    /// Other facts by name.
    pub attributes: Vec<(String, String)>,
}

/// A datagram socket on the network, granted by the host. Closed when dropped.
pub trait DatagramSocket {
    /// Receive what has arrived, at most `max_datagrams` entries and `max_bytes` bytes.
    /// An empty batch means that nothing is waiting.
    fn receive(&mut self, max_datagrams: u32, max_bytes: u32) -> Result<DatagramBatch, ErrorCode>;

    /// Send a batch, in order. Returns the number of entries accepted; the caller keeps the rest.
    /// Datagrams that the network refuses are lost, and count as accepted.
    ///
    /// Fails with [`ErrorCode::DatagramTooLarge`] if all entries were accepted, but after
    /// [`set_dont_fragment`](Self::set_dont_fragment) some datagrams were lost because they are
    /// longer than [`longest`](Self::longest) now says.
    fn send(&mut self, batch: &DatagramBatch) -> Result<u32, ErrorCode>;

    /// The longest datagram, in bytes, that reaches this address in one piece, as far as the host
    /// knows.
    fn longest(&self, _remote: SocketAddr) -> Option<u32> {
        None
    }

    /// Lose datagrams longer than [`longest`](Self::longest) instead of fragmenting them. Off at
    /// first.
    fn set_dont_fragment(&mut self, _on: bool) {}

    /// Take the hosts that reported port unreachable since the last call. The first call makes the
    /// host collect these reports. They are only a hint: strangers can forge them.
    fn take_unreachable(&mut self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// The address the socket is bound to.
    fn local_address(&self) -> SocketAddr;

    /// The number of the socket among those that share its address, and how many there are.
    fn place(&self) -> (u32, u32) {
        (0, 1)
    }

    /// Pass datagrams to the socket with this number, as if they had arrived there. They may be lost.
    fn pass(&mut self, _number: u32, _batch: &DatagramBatch) -> Result<(), ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// Receive datagrams that were passed to this socket, like [`receive`](Self::receive).
    fn passed(&mut self, _max_datagrams: u32, _max_bytes: u32) -> DatagramBatch {
        DatagramBatch::default()
    }
}

/// A stream of bytes: an accepted connection, or a flow of the application. Dropping
/// it without [`shutdown`](ByteStream::shutdown) of both directions resets it.
pub trait ByteStream {
    /// Read at most `max_bytes`. `None` is the end of the stream; an empty vector means
    /// that nothing is waiting.
    fn read(&mut self, max_bytes: u32) -> Result<Option<Vec<u8>>, ErrorCode>;

    /// Write. Returns the number of bytes accepted; the caller keeps the rest.
    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode>;

    /// Close a direction after delivering the data that was accepted.
    fn shutdown(&mut self, direction: Direction) -> Result<(), ErrorCode>;

    /// Abort both directions, for the given reason.
    fn reset(&mut self, reason: ErrorCode);

    /// The address of the other end, if it has one.
    fn remote_address(&self) -> Option<SocketAddr>;

    /// Marks a dialled stream as still connecting. Call it before
    /// [`Transport::dial`](crate::Transport::dial) returns: the application then waits for
    /// [`connected`](Self::connected), or for a reset with the reason. Does nothing where the
    /// application does not wait.
    fn connecting(&mut self) {}

    /// Reports, after [`connecting`](Self::connecting), that the other end has answered.
    fn connected(&mut self) {}
}

/// The kind of data that a flow carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowKind {
    /// A stream of bytes.
    Bytes,
    /// Datagrams.
    Datagrams,
}

/// A flow of datagrams to the application. Dropping it ends the flow.
pub trait DatagramFlow {
    /// Receive datagrams from the application, at most `max_datagrams` and `max_bytes`. `None`: the
    /// application closed the flow. Empty: nothing is waiting.
    fn receive(
        &mut self,
        max_datagrams: u32,
        max_bytes: u32,
    ) -> Result<Option<Datagrams>, ErrorCode>;

    /// Hand datagrams to the application, in order. Returns the number accepted.
    fn send(&mut self, datagrams: &Datagrams) -> Result<u32, ErrorCode>;

    /// Set the longest datagram, in bytes, that the application may send from now on. Longer ones
    /// are not carried in one piece.
    fn set_longest(&mut self, _bytes: u32) {}
}

/// A listening stream socket, granted by the host.
pub trait Listener {
    /// Accept a connection under `token`. `None` if no connection is waiting.
    fn accept(&mut self, token: Token) -> Result<Option<Box<dyn ByteStream>>, ErrorCode>;

    /// The address the socket is bound to.
    fn local_address(&self) -> SocketAddr;
}

/// One message to or from another generation of the same server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageInfo {
    /// The generation that the message is for, or from.
    pub generation: u32,
    /// Bytes of the payload that this message covers.
    pub len: u32,
}

/// A batch of messages, laid end to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Messages {
    /// The messages' bytes, without gaps.
    pub payload: Vec<u8>,
    /// The descriptions, in order. The lengths add up to the payload's.
    pub messages: Vec<MessageInfo>,
}

impl Messages {
    /// Iterates over the single messages, each with the generation that it is for or from.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut rest = self.payload.as_slice();
        self.messages.iter().map(move |info| {
            let (message, tail) = rest.split_at((info.len as usize).min(rest.len()));
            rest = tail;
            (info.generation, message)
        })
    }
}

/// The messages and notices that a mailbox received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mail {
    /// Messages from the other generations.
    pub messages: Messages,
    /// Generations that have ended since the last call, after the messages.
    pub ended: Vec<u32>,
}

/// A generation's end of the connections to the others.
pub trait Mailbox {
    /// Receive messages, at most `max_messages` and `max_bytes`. The result is empty if nothing is
    /// waiting.
    fn receive(&mut self, max_messages: u32, max_bytes: u32) -> Mail;

    /// Send, in order. Returns the number of messages accepted; the caller drops the rest, or keeps
    /// them until the mailbox is ready. Messages to generations that do not exist are lost, and
    /// count as accepted.
    fn send(&mut self, messages: &Messages) -> Result<u32, ErrorCode>;
}

/// The host, as a transport sees it: the imports of `wit/world.wit`.
///
/// Readiness is edge-triggered and armed by a shortfall: after a call moves less than it asked for,
/// the host lists the resource's token once, as soon as more can be done. A new resource starts
/// armed for reading.
pub trait Host {
    /// Take the datagram socket granted under `label`. Fails with
    /// [`ErrorCode::AccessDenied`] if there is none, [`ErrorCode::InvalidState`] if it
    /// was already taken.
    fn datagram_socket(
        &mut self,
        label: &str,
        token: Token,
    ) -> Result<Box<dyn DatagramSocket>, ErrorCode>;

    /// Take the listener granted under `label`. Errors as for
    /// [`datagram_socket`](Host::datagram_socket).
    fn listener(&mut self, label: &str, token: Token) -> Result<Box<dyn Listener>, ErrorCode>;

    /// Start connecting. The stream is listed as ready once it is connected or has failed; its
    /// first operation then returns the failure. Until then nothing can be read or written. Fails
    /// with [`ErrorCode::AccessDenied`] if the host does not allow the destination, and with
    /// [`ErrorCode::NotSupported`] if it makes no connections.
    fn connect(
        &mut self,
        _destination: &Destination,
        _token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// Ask the host to space dense calls at least `interval` apart, so that each finds more to do.
    /// The pause delays everything, timers and streams too. Hosts whose calls cost nothing ignore
    /// it.
    fn coalesce(&mut self, _interval: Duration) {}

    /// Begin to look up the name of a host that datagrams go to, at this port. The token is listed
    /// once there is an answer. Fails with [`ErrorCode::AccessDenied`] if the host does not allow
    /// the name, with [`ErrorCode::LimitReached`] if too many lookups are under way, and with
    /// [`ErrorCode::NotSupported`] if the host looks up no names.
    fn lookup(
        &mut self,
        _name: &str,
        _port: u16,
        _token: Token,
    ) -> Result<Box<dyn Lookup>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// Returns true if the application takes flows to this destination. A transport refuses other
    /// flows before it exchanges any data. By default the application takes all.
    fn accepts(&mut self, _kind: FlowKind, _destination: &Destination) -> bool {
        true
    }

    /// Offer a stream flow to the application, which reads the bytes written here. Fails with
    /// [`ErrorCode::LimitReached`] if it accepts no further flows for now, and with
    /// [`ErrorCode::AccessDenied`] if it refuses this one.
    fn open_stream(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode>;

    /// Offer a datagram flow to the application. Errors as for
    /// [`open_stream`](Host::open_stream).
    fn open_datagrams(
        &mut self,
        info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode>;

    /// Take the mailbox. Call it in [`Transport::start`](crate::Transport::start) or never. Fails
    /// with [`ErrorCode::NotSupported`] where no generation ever follows another.
    fn mailbox(&mut self, _token: Token) -> Result<Box<dyn Mailbox>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// Write a log record. `target` is the part of the transport that it comes from.
    fn log(&mut self, level: Level, target: &str, message: &str);

    /// Returns true if the host keeps records of this level. Check it before you build a message.
    fn log_enabled(&self, level: Level) -> bool;

    /// The time of the current call.
    fn now(&self) -> Instant;
}
