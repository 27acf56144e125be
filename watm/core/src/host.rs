use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use std::{error, fmt};

use crate::{Destination, Instant, Lookup};

/// A name that the transport gives to a resource. The host repeats it in
/// [`Transport::process`](crate::Transport::process) when that resource can make progress.
pub type Token = u64;

/// Why an operation failed. Names follow `wasi:sockets`.
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
    /// Anything else, in words for people.
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

/// How much a log record matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Once a datagram.
    Trace,
    /// What a stranger can trigger.
    Debug,
    /// Once a start, a peer's first handshake.
    Info,
    /// Something the user should look at.
    Warn,
    /// Something the user asked for does not work.
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
    /// If present, the entry is a train of datagrams of this size, the last of which
    /// may be shorter.
    pub segment_size: Option<u16>,
    /// The other end.
    pub remote: SocketAddr,
    /// The local address the datagram was sent to, or should be sent from.
    pub local: Option<IpAddr>,
    /// ECN bits of the outer header.
    pub ecn: Ecn,
}

/// Datagrams laid end to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DatagramBatch {
    /// The datagrams' bytes, without gaps.
    pub payload: Vec<u8>,
    /// Their descriptions, in order; the lengths add up to the payload's.
    pub datagrams: Vec<Datagram>,
}

impl DatagramBatch {
    /// Whether there is no datagram in it.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// The single datagrams, trains taken apart.
    pub fn iter(&self) -> impl Iterator<Item = (&Datagram, &[u8])> {
        let mut rest = self.payload.as_slice();
        self.datagrams.iter().flat_map(move |datagram| {
            let (bytes, tail) = rest.split_at((datagram.len as usize).min(rest.len()));
            rest = tail;
            let size = datagram
                .segment_size
                .map_or(bytes.len(), usize::from)
                .max(1);
            // A datagram may be empty; nothing is left of a train then.
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
    /// Their lengths, in order, which add up to the payload's.
    pub lengths: Vec<u32>,
}

impl Datagrams {
    /// The single datagrams.
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

/// Which direction of a stream an operation concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the other end to here.
    Read,
    /// From here to the other end.
    Write,
    /// Both.
    Both,
}

/// What the application is told of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowInfo {
    /// The inner source.
    pub source: SocketAddr,
    /// The inner destination.
    pub destination: Destination,
    /// Who the transport authenticated: a public key, a user name.
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

    /// Send a batch, in order. Returns how many entries were accepted; the caller keeps
    /// the rest. What the network refuses is lost, and counts as accepted.
    ///
    /// Fails with [`ErrorCode::DatagramTooLarge`] if all were accepted, but after
    /// [`set_dont_fragment`](Self::set_dont_fragment) datagrams were lost because they are longer
    /// than [`longest`](Self::longest) says by now.
    fn send(&mut self, batch: &DatagramBatch) -> Result<u32, ErrorCode>;

    /// How many bytes a datagram to this address may have to get there whole, as far as the host
    /// knows.
    fn longest(&self, _remote: SocketAddr) -> Option<u32> {
        None
    }

    /// Whether what is longer than that is lost, in place of being sent in fragments. Not so until
    /// it is asked for.
    fn set_dont_fragment(&mut self, _on: bool) {}

    /// Machines that have said since this was asked last that nobody takes what was sent to them.
    /// Only a hint: strangers may say so in their name.
    fn refused(&mut self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// The address the socket is bound to.
    fn local_address(&self) -> SocketAddr;
}

/// A stream of bytes: an accepted connection, or a flow of the application's. Dropping
/// it without [`shutdown`](ByteStream::shutdown) of both directions resets it.
pub trait ByteStream {
    /// Read at most `max_bytes`. `None` is the end of the stream; an empty vector means
    /// that nothing is waiting.
    fn read(&mut self, max_bytes: u32) -> Result<Option<Vec<u8>>, ErrorCode>;

    /// Write. Returns how many bytes were accepted; the caller keeps the rest.
    fn write(&mut self, data: &[u8]) -> Result<u32, ErrorCode>;

    /// Close a direction after what was accepted has been delivered.
    fn shutdown(&mut self, direction: Direction) -> Result<(), ErrorCode>;

    /// Abort both directions, for this reason.
    fn reset(&mut self, reason: ErrorCode);

    /// The address of the other end, where it has one.
    fn remote_address(&self) -> Option<SocketAddr>;

    /// Of a stream that was dialled, before [`Transport::dial`](crate::Transport::dial) returns:
    /// the application waits until [`connected`](Self::connected), or for the reset that says why
    /// not. Does nothing where nobody waits.
    fn connecting(&mut self) {}

    /// After [`connecting`](Self::connecting): somebody has answered.
    fn connected(&mut self) {}
}

/// What a flow carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowKind {
    /// A stream of bytes.
    Bytes,
    /// Datagrams.
    Datagrams,
}

/// A flow of datagrams to the application. Dropping it ends the flow.
pub trait DatagramFlow {
    /// Receive what the application has sent, at most `max_datagrams` and `max_bytes`.
    /// `None`: the application closed the flow. Empty: nothing is waiting.
    fn receive(
        &mut self,
        max_datagrams: u32,
        max_bytes: u32,
    ) -> Result<Option<Datagrams>, ErrorCode>;

    /// Hand datagrams to the application, in order. Returns how many were accepted.
    fn send(&mut self, datagrams: &Datagrams) -> Result<u32, ErrorCode>;

    /// How many bytes a datagram of the application's may have to be carried whole, from now on.
    fn set_longest(&mut self, _bytes: u32) {}
}

/// A listening stream socket, granted by the host.
pub trait Listener {
    /// Accept a connection, which gets `token`; `None` if nobody is waiting.
    fn accept(&mut self, token: Token) -> Result<Option<Box<dyn ByteStream>>, ErrorCode>;

    /// The address the socket is bound to.
    fn local_address(&self) -> SocketAddr;
}

/// One message to or from another generation of the same server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageInfo {
    /// Who it is for, or from.
    pub generation: u32,
    /// Bytes of the payload that it covers.
    pub len: u32,
}

/// Messages laid end to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Messages {
    /// The messages' bytes, without gaps.
    pub payload: Vec<u8>,
    /// Their descriptions, in order; the lengths add up to the payload's.
    pub messages: Vec<MessageInfo>,
}

impl Messages {
    /// The single messages, each with the generation that it is for or from.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut rest = self.payload.as_slice();
        self.messages.iter().map(move |info| {
            let (message, tail) = rest.split_at((info.len as usize).min(rest.len()));
            rest = tail;
            (info.generation, message)
        })
    }
}

/// What a mailbox received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mail {
    /// What the others have sent.
    pub messages: Messages,
    /// Generations that have ended since the last call, after the messages.
    pub ended: Vec<u32>,
}

/// A generation's end of the connections to the others.
pub trait Mailbox {
    /// Receive what has arrived, at most `max_messages` and `max_bytes`. Nothing: nothing is
    /// waiting.
    fn receive(&mut self, max_messages: u32, max_bytes: u32) -> Mail;

    /// Send, in order. Returns how many messages were accepted; the caller drops the rest, or
    /// keeps them until the mailbox is ready. What nobody is there for is lost, and counts
    /// as accepted.
    fn send(&mut self, messages: &Messages) -> Result<u32, ErrorCode>;
}

/// What a transport reaches the world through: the imports of `wit/world.wit`.
///
/// Readiness is edge-triggered and armed by a shortfall: after a call moved less than it
/// was asked to, the resource's token is listed once, as soon as more can be done. A new
/// resource starts armed for reading.
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

    /// Start connecting. The stream is listed as ready once it is connected or has failed;
    /// a failure is what its first operation fails with, and until then nothing can be read
    /// or written. Fails with [`ErrorCode::AccessDenied`] if the destination is outside of
    /// what the host allows, and with [`ErrorCode::NotSupported`] if it connects to nothing.
    fn connect(
        &mut self,
        _destination: &Destination,
        _token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// While calls follow each other so closely that each finds little to do, have them at least
    /// this far apart, so that each finds more. Everything waits, timers and streams too. Where
    /// calls cost nothing it does nothing.
    fn coalesce(&mut self, _interval: Duration) {}

    /// Begin to look up a host that datagrams are to be sent to, at this port. The token is listed
    /// once there is an answer. Fails with [`ErrorCode::AccessDenied`] if the host does not allow
    /// that, with [`ErrorCode::LimitReached`] if too many are under way, and with
    /// [`ErrorCode::NotSupported`] where no names are looked up.
    fn lookup(
        &mut self,
        _name: &str,
        _port: u16,
        _token: Token,
    ) -> Result<Box<dyn Lookup>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// Whether the application takes flows to this destination at all: what it does not take is
    /// refused before anything is exchanged. By default it takes all.
    fn accepts(&mut self, _kind: FlowKind, _destination: &Destination) -> bool {
        true
    }

    /// Offer a stream flow to the application: what is written is what it reads. Fails
    /// with [`ErrorCode::LimitReached`] if it takes no more flows for now, and with
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

    /// Take the mailbox; in [`Transport::start`](crate::Transport::start), if at all. Fails with
    /// [`ErrorCode::NotSupported`] where no generation ever follows another.
    fn mailbox(&mut self, _token: Token) -> Result<Box<dyn Mailbox>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }

    /// Write a log record. `target` is the part of the transport it comes from.
    fn log(&mut self, level: Level, target: &str, message: &str);

    /// Whether a record of this level would be kept; asked before building a message.
    fn log_enabled(&self, level: Level) -> bool;

    /// The time that the current call was made at.
    fn now(&self) -> Instant;
}
