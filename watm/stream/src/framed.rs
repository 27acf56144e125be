//! Datagrams over streams, for transports of datagrams such as WireGuard.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use watm_core::{
    ByteStream, Datagram, DatagramBatch, DatagramSocket, Direction, Ecn, ErrorCode, Host, Instant,
    Listener, Token,
};

use crate::{Buffer, CHUNK, End, Read};

/// Tokens of [`FramedSocket`] have this bit, and none above it.
const STREAMS: Token = 1 << 62;

/// Connections held at once. For one more, the connection that was silent longest is closed.
const MAX_CONNECTIONS: usize = 1024;

/// Connections accepted in one call.
const ACCEPTS: usize = 64;

/// The most bytes queued for one connection that accepts none: a quarter of the queue of a whole
/// datagram socket. Datagrams beyond it are lost, which tells their senders to slow down.
const BACKLOG: usize = 256 << 10;

/// Bytes of the header of a datagram: its length, in network byte order.
const HEAD: usize = 2;

/// The least time between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The address of ends for which the host tells none.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A datagram socket over connections. On each connection datagrams follow one another, each behind
/// its length in 16 bits, big-endian. This is the framing of Mullvad's udp-over-tcp.
///
/// The connections are those accepted from a listener, and those that [`FramedTokens::connect`]
/// makes. A datagram's remote address is that of its connection. A datagram to an address without a
/// connection is lost.
pub struct FramedSocket {
    shared: Rc<RefCell<Shared>>,
}

/// The handle of a [`FramedSocket`] that handles its tokens and makes connections.
pub struct FramedTokens {
    shared: Rc<RefCell<Shared>>,
}

struct Shared {
    listener: Option<Box<dyn Listener>>,
    local: SocketAddr,
    /// True if the listener may have a connection waiting.
    waiting: bool,
    /// True if waiting connections are accepted.
    accepting: bool,
    connections: BTreeMap<u64, Connection>,
    by_remote: BTreeMap<SocketAddr, u64>,
    /// The addresses to stay connected to.
    dialled: BTreeMap<SocketAddr, Dialled>,
    /// The numbers of connections to read.
    readable: BTreeSet<u64>,
    /// The number of the last connection.
    last: u64,
    /// A counter that advances with each receipt.
    clock: u64,
}

struct Dialled {
    /// The earliest time of the next attempt.
    next_try: Instant,
    /// A datagram found no connection.
    wanted: bool,
    /// A connection ended before anything came from it.
    failed: bool,
}

struct Connection {
    stream: Box<dyn ByteStream>,
    remote: SocketAddr,
    incoming: Buffer,
    outgoing: Buffer,
    /// The time of its start or last receipt, on the clock of [`Shared`].
    heard: u64,
    /// True if bytes have arrived on it.
    answered: bool,
    ended: bool,
}

impl FramedSocket {
    /// Makes a socket on the listener granted under `label`, if there is one. Fails as
    /// [`Host::listener`] does, except for a label that is not granted.
    pub fn open(
        host: &mut dyn Host,
        label: &str,
    ) -> Result<(FramedSocket, FramedTokens), ErrorCode> {
        let listener = match host.listener(label, STREAMS) {
            Ok(listener) => Some(listener),
            Err(ErrorCode::AccessDenied) => None,
            Err(error) => return Err(error),
        };
        let local = listener.as_ref().map(|listener| listener.local_address());
        let shared = Rc::new(RefCell::new(Shared {
            local: local.unwrap_or(UNKNOWN),
            waiting: listener.is_some(),
            accepting: true,
            listener,
            connections: BTreeMap::new(),
            by_remote: BTreeMap::new(),
            dialled: BTreeMap::new(),
            readable: BTreeSet::new(),
            last: 0,
            clock: 0,
        }));
        let tokens = FramedTokens {
            shared: Rc::clone(&shared),
        };
        Ok((FramedSocket { shared }, tokens))
    }
}

impl FramedTokens {
    /// Connect to `remote`, unless that was done, and again whenever a datagram finds the
    /// connection gone. `None`: connect to the address that the host's caller chooses; the returned
    /// address stands for it. Fails as [`Host::connect`] does.
    pub fn connect(
        &self,
        remote: Option<SocketAddr>,
        host: &mut dyn Host,
    ) -> Result<SocketAddr, ErrorCode> {
        let shared = &mut *self.shared.borrow_mut();
        let remote = remote.unwrap_or(UNKNOWN);
        if !shared.by_remote.contains_key(&remote) {
            shared.connect(remote, host)?;
        }
        Ok(remote)
    }

    /// Returns true if there is a connection with this address.
    pub fn is_connected(&self, remote: SocketAddr) -> bool {
        self.shared.borrow().by_remote.contains_key(&remote)
    }

    /// Accept connections from the listener, or stop accepting. On at first.
    pub fn set_accepting(&self, accepting: bool) {
        self.shared.borrow_mut().accepting = accepting;
    }

    /// Connect again to addresses for which datagrams found no connection.
    pub fn reconnect(&self, host: &mut dyn Host) {
        let shared = &mut *self.shared.borrow_mut();
        let now = host.now();
        let wanted: Vec<_> = shared
            .dialled
            .iter()
            .filter(|(_, dialled)| dialled.wanted && dialled.next_try <= now)
            .map(|(remote, _)| *remote)
            .collect();
        for remote in wanted {
            // The next attempt follows after the pause, while there are datagrams.
            let _ = shared.connect(remote, host);
        }
    }

    /// Returns the addresses whose connection ended, since the last call, before anything arrived
    /// on it.
    pub fn take_failed(&self) -> Vec<SocketAddr> {
        let shared = &mut *self.shared.borrow_mut();
        let failed = |dialled: &mut Dialled| std::mem::take(&mut dialled.failed);
        shared
            .dialled
            .iter_mut()
            .filter_map(|(remote, dialled)| failed(dialled).then_some(*remote))
            .collect()
    }

    /// Handle a ready token. Returns true if the token belongs to the socket, which then must be
    /// received from.
    pub fn ready(&self, token: Token) -> bool {
        if token & !(STREAMS - 1) != STREAMS {
            return false;
        }
        let shared = &mut *self.shared.borrow_mut();
        let number = token - STREAMS;
        if number == 0 {
            shared.waiting = true;
        } else if let Some(connection) = shared.connections.get_mut(&number) {
            if connection.flush().is_err() {
                shared.remove(number);
            } else {
                shared.readable.insert(number);
            }
        }
        true
    }
}

impl DatagramSocket for FramedSocket {
    fn receive(&mut self, max_datagrams: u32, max_bytes: u32) -> Result<DatagramBatch, ErrorCode> {
        let shared = &mut *self.shared.borrow_mut();
        shared.accept();
        let mut batch = DatagramBatch::default();
        while let Some(&number) = shared.readable.first() {
            shared.clock += 1;
            let now = shared.clock;
            let Some(connection) = shared.connections.get_mut(&number) else {
                shared.readable.remove(&number);
                continue;
            };
            match connection.receive(&mut batch, max_datagrams as usize, max_bytes as usize, now) {
                Ok(Received::Full) => break,
                Ok(Received::Empty) => drop(shared.readable.remove(&number)),
                Ok(Received::End) | Err(_) => shared.remove(number),
            }
        }
        Ok(batch)
    }

    fn send(&mut self, batch: &DatagramBatch) -> Result<u32, ErrorCode> {
        let shared = &mut *self.shared.borrow_mut();
        let mut touched = BTreeSet::new();
        for (entry, datagram) in batch.iter() {
            let number = shared.by_remote.get(&entry.remote);
            if let Some((number, connection)) =
                number.and_then(|number| Some((*number, shared.connections.get_mut(number)?)))
            {
                connection.queue(datagram);
                touched.insert(number);
            } else if let Some(dialled) = shared.dialled.get_mut(&entry.remote) {
                dialled.wanted = true;
            }
        }
        for number in touched {
            if let Some(connection) = shared.connections.get_mut(&number)
                && connection.flush().is_err()
            {
                shared.remove(number);
            }
        }
        Ok(u32::try_from(batch.datagrams.len()).unwrap_or(u32::MAX))
    }

    fn local_address(&self) -> SocketAddr {
        self.shared.borrow().local
    }
}

impl Shared {
    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            if !self.waiting || !self.accepting {
                return;
            }
            let Some(listener) = &mut self.listener else {
                return;
            };
            let stream = match listener.accept(STREAMS + self.last + 1) {
                Ok(Some(stream)) => stream,
                Ok(None) => {
                    self.waiting = false;
                    return;
                }
                // The host is out of descriptors or memory: try again in the next call.
                Err(_) => return,
            };
            let remote = stream.remote_address().unwrap_or(UNKNOWN);
            self.insert(remote, stream);
        }
    }

    fn connect(&mut self, remote: SocketAddr, host: &mut dyn Host) -> Result<(), ErrorCode> {
        let next_try = host.now() + CONNECT_PAUSE;
        if let Some(dialled) = self.dialled.get_mut(&remote) {
            dialled.next_try = next_try;
        }
        let stream = host.connect(&remote.into(), STREAMS + self.last + 1)?;
        let dialled = Dialled {
            next_try,
            wanted: false,
            failed: false,
        };
        self.dialled.insert(remote, dialled);
        self.insert(remote, stream);
        Ok(())
    }

    fn insert(&mut self, remote: SocketAddr, stream: Box<dyn ByteStream>) {
        if self.connections.len() >= MAX_CONNECTIONS {
            let silent = self.connections.iter().min_by_key(|(_, c)| c.heard);
            if let Some(number) = silent.map(|(number, _)| *number) {
                self.remove(number);
            }
        }
        self.last += 1;
        self.clock += 1;
        let connection = Connection {
            stream,
            remote,
            incoming: Buffer::default(),
            outgoing: Buffer::default(),
            heard: self.clock,
            answered: false,
            ended: false,
        };
        self.connections.insert(self.last, connection);
        self.by_remote.insert(remote, self.last);
        self.readable.insert(self.last);
    }

    fn remove(&mut self, number: u64) {
        self.readable.remove(&number);
        let Some(mut connection) = self.connections.remove(&number) else {
            return;
        };
        if self.by_remote.get(&connection.remote) == Some(&number) {
            self.by_remote.remove(&connection.remote);
            if let Some(dialled) = self.dialled.get_mut(&connection.remote) {
                dialled.failed = !connection.answered;
            }
        }
        if connection.ended {
            // A regular end in both directions. An error needs no handling.
            let _ = connection.stream.shutdown(Direction::Both);
        }
    }
}

enum Received {
    /// The batch is full.
    Full,
    /// Nothing more is available for now.
    Empty,
    End,
}

impl Connection {
    /// Move datagrams to the batch.
    fn receive(
        &mut self,
        batch: &mut DatagramBatch,
        max_datagrams: usize,
        max_bytes: usize,
        now: u64,
    ) -> Result<Received, ErrorCode> {
        let mut drained = false;
        loop {
            while let Some(datagram) = first(self.incoming.bytes()) {
                if batch.datagrams.len() >= max_datagrams
                    || batch.payload.len() + datagram.len() > max_bytes
                {
                    return Ok(Received::Full);
                }
                let len = datagram.len();
                // Senders send no empty datagrams, and an empty one carries nothing.
                if len > 0 {
                    batch.payload.extend_from_slice(datagram);
                    batch.datagrams.push(Datagram {
                        len: len as u32,
                        segment_size: None,
                        remote: self.remote,
                        local: None,
                        ecn: Ecn::NotEct,
                    });
                }
                self.incoming.consume(HEAD + len);
            }
            if drained {
                return Ok(Received::Empty);
            }
            // The rest is less than one datagram, which is at most as long as one read.
            let before = self.incoming.len();
            match End::read(&mut *self.stream, self.incoming.tail(), CHUNK)? {
                Read::End => {
                    self.ended = true;
                    return Ok(Received::End);
                }
                Read::Short => drained = true,
                Read::More => {}
            }
            if self.incoming.len() > before {
                self.heard = now;
                self.answered = true;
            }
        }
    }

    /// Queue a datagram, unless too many bytes are queued.
    fn queue(&mut self, datagram: &[u8]) {
        let Ok(len) = u16::try_from(datagram.len()) else {
            return;
        };
        if self.outgoing.len() + HEAD + datagram.len() <= BACKLOG {
            self.outgoing.extend(&len.to_be_bytes());
            self.outgoing.extend(datagram);
        }
    }

    fn flush(&mut self) -> Result<(), ErrorCode> {
        if !self.outgoing.is_empty() {
            let written = End::write(&mut *self.stream, self.outgoing.bytes())?;
            self.outgoing.consume(written);
        }
        Ok(())
    }
}

/// The datagram at the front, if it is complete.
fn first(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    rest.get(..usize::from(u16::from_be_bytes(*head)))
}
