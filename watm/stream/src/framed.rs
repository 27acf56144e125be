use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;

use watm_core::{
    ByteStream, Datagram, DatagramBatch, DatagramSocket, Direction, Ecn, ErrorCode, Host, Listener,
    Token,
};

use crate::{Buffer, CHUNK, End, Read};

/// Tokens of [`FramedSocket`] have this bit, and none above it.
const STREAMS: Token = 1 << 62;

/// Connections held at once. When one more comes, that makes way which was silent longest.
const MAX_CONNECTIONS: usize = 1024;

/// Connections accepted in one call.
const ACCEPTS: usize = 64;

/// What waits for one connection that takes nothing: a quarter of what waits for a whole
/// datagram socket. Beyond it, datagrams are lost, which tells their senders to slow down.
const BACKLOG: usize = 256 << 10;

/// What stands before a datagram: its length, in network byte order.
const HEAD: usize = 2;

/// A datagram socket over the connections of a listener: on each of them, datagrams follow
/// one another, with their length in 16 bits, big-endian, before each. This is the framing
/// of Mullvad's udp-over-tcp.
///
/// A datagram's remote address is its connection's, and one that is sent to an address from
/// which nobody is connected is lost.
pub struct FramedSocket {
    shared: Rc<RefCell<Shared>>,
}

/// The part of a [`FramedSocket`] that is told of tokens.
pub struct FramedTokens {
    shared: Rc<RefCell<Shared>>,
}

struct Shared {
    listener: Box<dyn Listener>,
    local: SocketAddr,
    /// Whether somebody may be waiting at the listener.
    waiting: bool,
    connections: BTreeMap<u64, Connection>,
    by_remote: BTreeMap<SocketAddr, u64>,
    /// Those to be read.
    readable: BTreeSet<u64>,
    /// The number of the last connection.
    last: u64,
    /// Counts what is heard.
    clock: u64,
}

struct Connection {
    stream: Box<dyn ByteStream>,
    remote: SocketAddr,
    incoming: Buffer,
    outgoing: Buffer,
    /// When it was last heard, on the clock of [`Shared`].
    heard: u64,
    ended: bool,
}

impl FramedSocket {
    /// On the listener granted under `label`. Fails as [`Host::listener`] does.
    pub fn listen(
        host: &mut dyn Host,
        label: &str,
    ) -> Result<(FramedSocket, FramedTokens), ErrorCode> {
        let listener = host.listener(label, STREAMS)?;
        let shared = Rc::new(RefCell::new(Shared {
            local: listener.local_address(),
            listener,
            waiting: true,
            connections: BTreeMap::new(),
            by_remote: BTreeMap::new(),
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
    /// A token is ready. True if it was one of the socket's, which then is to be received
    /// from.
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
            if !self.waiting {
                return;
            }
            let stream = match self.listener.accept(STREAMS + self.last + 1) {
                Ok(Some(stream)) => stream,
                Ok(None) => {
                    self.waiting = false;
                    return;
                }
                // The host is out of descriptors or memory: the next time.
                Err(_) => return,
            };
            self.last += 1;
            let Some(remote) = stream.remote_address() else {
                continue;
            };
            if self.connections.len() >= MAX_CONNECTIONS {
                let silent = self.connections.iter().min_by_key(|(_, c)| c.heard);
                if let Some(number) = silent.map(|(number, _)| *number) {
                    self.remove(number);
                }
            }
            self.clock += 1;
            let connection = Connection {
                stream,
                remote,
                incoming: Buffer::default(),
                outgoing: Buffer::default(),
                heard: self.clock,
                ended: false,
            };
            self.connections.insert(self.last, connection);
            self.by_remote.insert(remote, self.last);
            self.readable.insert(self.last);
        }
    }

    fn remove(&mut self, number: u64) {
        self.readable.remove(&number);
        let Some(mut connection) = self.connections.remove(&number) else {
            return;
        };
        if self.by_remote.get(&connection.remote) == Some(&number) {
            self.by_remote.remove(&connection.remote);
        }
        if connection.ended {
            // Regular on both sides. An error leaves nothing to be done.
            let _ = connection.stream.shutdown(Direction::Both);
        }
    }
}

enum Received {
    /// The batch takes no more.
    Full,
    /// There is no more for now.
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
                // Nobody sends an empty one, and there is nothing to be made of it.
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
            // Less than a datagram is left, which is at most as long as what is read.
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
            }
        }
    }

    /// Add a datagram, unless too much is waiting.
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

/// The datagram at the front, if all of it is there.
fn first(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
    rest.get(..usize::from(u16::from_be_bytes(*head)))
}
