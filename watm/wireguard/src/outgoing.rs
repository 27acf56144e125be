//! The send path: datagrams gathered into one batch, equal sizes to one address as a train. Used
//! throughout the crate.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ring::batch::Left;
use watm_core::crypto::{AeadKey, Text};
use watm_core::{Datagram, DatagramBatch, DatagramSocket, Ecn, ErrorCode};
use watm_netstack::PeerId;

use crate::ahead::{HEADER, TAG};
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
    /// The texts of the payload that are sealed before it is sent, in their order.
    left: Vec<(Text, Arc<dyn AeadKey>)>,
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
            left: Vec::new(),
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

    /// Seals the data packet of `len` bytes in the last [`room`](Self::room) before it is sent. It must
    /// be committed.
    pub fn seal_later(&mut self, len: usize, left: Left) {
        let text = Text {
            nonce: left.nonce,
            begin: self.committed + HEADER,
            len: len - HEADER,
        };
        self.left.push((text, left.key));
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
        self.seal();
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

    /// Seals what was left: the texts of one session that follow each other in one call of the host.
    fn seal(&mut self) {
        let left = std::mem::take(&mut self.left);
        let payload = &mut self.batch.payload;
        for run in left.chunk_by(|(_, one), (_, next)| Arc::ptr_eq(one, next)) {
            let [(first, key), ..] = run else { continue };
            if let [(text, key)] = run {
                let place = &mut payload[text.begin..][..text.len];
                let (plain, tag) = place.split_at_mut(text.len - TAG);
                tag.copy_from_slice(&key.seal(&text.nonce, &[], plain));
                continue;
            }
            let end = run.last().map_or(0, |(text, _)| text.begin + text.len);
            let inside = |(text, _): &(Text, _)| Text {
                begin: text.begin - first.begin,
                ..*text
            };
            let texts: Vec<_> = run.iter().map(inside).collect();
            let sealed = key.seal_all(&texts, &payload[first.begin..end]);
            payload[first.begin..end].copy_from_slice(&sealed);
        }
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
