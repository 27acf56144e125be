//! The send path: datagrams gathered into one batch, equal sizes to one address as a train. Used
//! throughout the crate.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use watm_core::{Datagram, DatagramBatch, DatagramSocket, Ecn, ErrorCode};
use watm_netstack::PeerId;

use crate::counters::{Counter, Counters};

/// The limits of a train: Linux takes 64 segments, and an IPv4 datagram 65,507 bytes.
const TRAIN_SEGMENTS: usize = 64;
const TRAIN_BYTES: usize = 65_000;

/// The size in bytes from which on a batch is sent before more is added: two trains of full
/// packets.
const BATCH_BYTES: usize = 128 << 10;

/// The most bytes queued for a network that accepts none: as much as one TCP flow has in flight at
/// most. Packets beyond it are lost, which tells the senders to slow down.
const BACKLOG_BYTES: usize = 1 << 20;

/// A peer's address, and the local address that it talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
}

/// The socket and its outgoing batch.
pub struct Outgoing {
    socket: Box<dyn DatagramSocket>,
    batch: DatagramBatch,
    /// Bytes of the payload that belong to a datagram. The tail beyond is being written.
    committed: usize,
    /// True if the host took less than it was given. It reports when it takes more.
    blocked: bool,
    /// Peers whose path MTU may have changed.
    unsure: BTreeSet<PeerId>,
    /// Addresses to which a datagram was too long.
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

    /// Reserves space for a datagram of at most `size` bytes; call [`commit`](Self::commit) to keep
    /// it. `None` if the backlog is full, which is counted.
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

    /// Queue the first `len` bytes of the last [`room`](Self::room) as a datagram for `to`.
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

    /// Queue a datagram that is already encoded.
    pub fn push(&mut self, datagram: &[u8], to: Endpoint, counters: &mut Counters) {
        if let Some(room) = self.room(datagram.len(), counters) {
            room.copy_from_slice(datagram);
            self.commit(datagram.len(), to);
        }
    }

    /// Returns true if nothing is queued for the network.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Mark the path to this peer as possibly changed.
    pub fn doubt(&mut self, peer: PeerId) {
        self.unsure.insert(peer);
    }

    /// Takes the peers whose path may have changed, and the addresses to which a datagram was too
    /// long.
    pub fn take_doubts(&mut self) -> (BTreeSet<PeerId>, BTreeSet<SocketAddr>) {
        (
            std::mem::take(&mut self.unsure),
            std::mem::take(&mut self.too_long),
        )
    }

    /// Returns true if [`take_doubts`](Self::take_doubts) has any to return.
    pub fn has_doubts(&self) -> bool {
        !self.unsure.is_empty() || !self.too_long.is_empty()
    }

    /// Record that the socket may take more.
    pub fn unblock(&mut self) {
        self.blocked = false;
    }

    /// Send the batch. Keeps the datagrams that the host does not take.
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
            // The host may forbid the address of a peer. It logs which, and the other datagrams are
            // gone.
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

/// Returns true if a datagram of `len` bytes fits at the end of this train.
fn joins(train: &Datagram, len: usize, to: Endpoint) -> bool {
    let bytes = train.len as usize;
    let segment = train.segment_size.map_or(bytes, usize::from);
    train.remote == to.remote
        && train.local == to.local
        // Only the last datagram of a train is shorter, and none is longer.
        && bytes.is_multiple_of(segment)
        && len <= segment
        && bytes / segment < TRAIN_SEGMENTS
        && bytes + len <= TRAIN_BYTES
}

fn segments(datagram: &Datagram) -> usize {
    let bytes = datagram.len as usize;
    bytes.div_ceil(datagram.segment_size.map_or(bytes, usize::from).max(1))
}
