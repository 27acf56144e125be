//! The way out: datagrams gathered into one batch, equal sizes to one address as a train.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use watm_core::{Datagram, DatagramBatch, DatagramSocket, Ecn, ErrorCode};
use watm_netstack::PeerId;

use crate::counters::{Counter, Counters};

/// What a train may hold: Linux takes 64 segments, and an IPv4 datagram 65,507 bytes.
const TRAIN_SEGMENTS: usize = 64;
const TRAIN_BYTES: usize = 65_000;

/// A batch this large is sent before more is added: two trains of full packets.
const BATCH_BYTES: usize = 128 << 10;

/// The most that waits for a network that takes nothing: as much as one TCP flow has in
/// flight at most. Beyond it, packets are lost, which tells the senders to slow down.
const BACKLOG_BYTES: usize = 1 << 20;

/// Where a peer is: its address, and ours that it talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
}

/// The socket, and what is to be sent through it.
pub struct Outgoing {
    socket: Box<dyn DatagramSocket>,
    batch: DatagramBatch,
    /// Bytes of the payload that belong to a datagram; a tail beyond is being written.
    committed: usize,
    /// The host took less than it was given, and will say when it takes more.
    blocked: bool,
    /// Peers of which it is to be asked how much the way to them takes.
    unsure: BTreeSet<PeerId>,
    /// Where datagrams went of which some were too long for it.
    too_long: BTreeSet<SocketAddr>,
}

impl Outgoing {
    pub fn new(socket: Box<dyn DatagramSocket>) -> Self {
        Outgoing {
            socket,
            batch: DatagramBatch::default(),
            committed: 0,
            blocked: false,
            unsure: BTreeSet::new(),
            too_long: BTreeSet::new(),
        }
    }

    pub fn socket(&mut self) -> &mut dyn DatagramSocket {
        &mut *self.socket
    }

    pub fn local_address(&self) -> SocketAddr {
        self.socket.local_address()
    }

    /// A place to write a datagram of at most `size` bytes, to be followed by
    /// [`commit`](Self::commit) if there is one. `None`, counted: the backlog is full.
    pub fn room(&mut self, size: usize, counters: &mut Counters) -> Option<&mut [u8]> {
        if self.committed >= BATCH_BYTES && !self.blocked {
            self.flush(counters);
        }
        if self.committed + size > BACKLOG_BYTES {
            counters.count(Counter::SendBacklog);
            return None;
        }
        self.batch.payload.resize(self.committed + size, 0);
        Some(&mut self.batch.payload[self.committed..])
    }

    /// The first `len` bytes of the last [`room`](Self::room) are a datagram for `to`.
    pub fn commit(&mut self, len: usize, to: Endpoint) {
        self.committed += len;
        self.batch.payload.truncate(self.committed);
        if let Some(last) = self.batch.datagrams.last_mut()
            && joins(last, len, to)
        {
            last.segment_size.get_or_insert(last.len as u16);
            last.len += len as u32;
            return;
        }
        self.batch.datagrams.push(Datagram {
            len: len as u32,
            segment_size: None,
            remote: to.remote,
            local: to.local,
            ecn: Ecn::NotEct,
        });
    }

    /// Add a datagram that is already written elsewhere.
    pub fn push(&mut self, datagram: &[u8], to: Endpoint, counters: &mut Counters) {
        if let Some(room) = self.room(datagram.len(), counters) {
            room.copy_from_slice(datagram);
            self.commit(datagram.len(), to);
        }
    }

    /// Whether nothing waits for the network.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// The way to this peer may be another one by now.
    pub fn doubt(&mut self, peer: PeerId) {
        self.unsure.insert(peer);
    }

    /// The peers whose ways are in doubt, and the addresses to which something was too long.
    pub fn take_doubts(&mut self) -> (BTreeSet<PeerId>, BTreeSet<SocketAddr>) {
        (
            std::mem::take(&mut self.unsure),
            std::mem::take(&mut self.too_long),
        )
    }

    /// Whether there are any.
    pub fn has_doubts(&self) -> bool {
        !self.unsure.is_empty() || !self.too_long.is_empty()
    }

    /// The socket may take more than it did.
    pub fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Send what has been gathered. What the host does not take stays.
    pub fn flush(&mut self, counters: &mut Counters) {
        self.batch.payload.truncate(self.committed);
        if self.blocked || self.batch.is_empty() {
            return;
        }
        let given = self.batch.datagrams.len();
        let taken = match self.socket.send(&self.batch) {
            Ok(taken) => (taken as usize).min(given),
            Err(ErrorCode::DatagramTooLarge) => {
                let remotes = self.batch.datagrams.iter().map(|datagram| datagram.remote);
                self.too_long.extend(remotes);
                given
            }
            // Some may not go where a peer is. The host says which, and the others are gone.
            Err(ErrorCode::AccessDenied) => given,
            Err(_) => {
                counters.add(Counter::SocketError, given as u64);
                self.remove(given);
                return;
            }
        };
        for datagram in &self.batch.datagrams[..taken] {
            counters.add(Counter::DatagramsSent, segments(datagram) as u64);
            counters.add(Counter::BytesSent, u64::from(datagram.len));
        }
        self.remove(taken);
        self.blocked = taken < given;
    }

    fn remove(&mut self, entries: usize) {
        let bytes: usize = self
            .batch
            .datagrams
            .drain(..entries)
            .map(|datagram| datagram.len as usize)
            .sum();
        self.batch.payload.drain(..bytes);
        self.committed -= bytes;
    }
}

/// Whether a datagram of `len` bytes can ride at the end of this train.
fn joins(train: &Datagram, len: usize, to: Endpoint) -> bool {
    let bytes = train.len as usize;
    let segment = train.segment_size.map_or(bytes, usize::from);
    train.remote == to.remote
        && train.local == to.local
        // Only the last one of a train is shorter, and none is longer.
        && bytes.is_multiple_of(segment)
        && len <= segment
        && bytes / segment < TRAIN_SEGMENTS
        && bytes + len <= TRAIN_BYTES
}

fn segments(datagram: &Datagram) -> usize {
    let bytes = datagram.len as usize;
    bytes.div_ceil(datagram.segment_size.map_or(bytes, usize::from).max(1))
}
