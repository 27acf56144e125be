//! Reassembly of fragmented packets, within bounds for each peer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use watm_core::Instant;

use super::packet::{Fragment, Packet};
use super::send::write_packet;
use crate::PeerId;
use crate::hash::{Keyed, Map};

/// The time for which fragments wait for the others, as in Linux. RFC 8200 allows 60 s, but a path
/// that delays one fragment by this much has lost it.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most incomplete packets of one peer. Fragments arrive one packet after another. Eight in
/// parallel is a busy resolver over a reordering path, and four times that is plenty.
const PACKETS_PER_PEER: usize = 32;
/// The most incomplete packets of all peers: at 64 KiB each at most 16 MiB.
const PACKETS: usize = 256;
/// The most pieces of one packet: 65535 bytes over a path with an MTU of 576.
const PIECES: usize = 128;
/// The least payload of a fragment that is not the last: the rest of IPv4's smallest MTU, 68.
/// Smaller ones serve to split headers (RFC 1858).
const TINY: usize = 48;
/// The largest payload of a packet.
const MAX_PAYLOAD: usize = 65535;
/// The largest payload of a packet with an IPv4 header.
const MAX_PAYLOAD_V4: usize = 65535 - super::V4_HEADER;

/// Reassembles IPv4 (RFC 791) and IPv6 (RFC 8200 section 4.5) packets. A packet with overlapping
/// fragments is dropped as a whole (RFC 5722), including its later fragments.
#[derive(Debug)]
pub(crate) struct Reassembly {
    partial: Map<Key, Partial>,
    /// The incomplete packets by age.
    order: BTreeSet<(Instant, Key)>,
    by_peer: Map<PeerId, BTreeSet<(Instant, Key)>>,
}

/// The outcome of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Kept until the others arrive.
    Kept,
    /// Unusable.
    Dropped,
    /// The last one. Contains the packet, with one IP header.
    Whole(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    peer: PeerId,
    source: IpAddr,
    destination: IpAddr,
    /// Part of the identity in IPv4 only (RFC 791 section 3.2; RFC 8200 section 4.5).
    protocol: Option<u8>,
    id: u32,
}

#[derive(Debug)]
struct Partial {
    since: Instant,
    /// The protocol in the piece at offset 0.
    protocol: Option<u8>,
    /// The end of the last piece.
    total: Option<usize>,
    data: Vec<u8>,
    /// The byte ranges received: disjoint, in order.
    pieces: Vec<(usize, usize)>,
    /// True if an overlap was seen; later fragments of this packet are dropped.
    spoilt: bool,
}

impl Reassembly {
    pub(crate) fn new(hash: Keyed) -> Self {
        Reassembly {
            partial: Map::with_hasher(hash),
            order: BTreeSet::new(),
            by_peer: Map::with_hasher(hash),
        }
    }

    /// Add a fragment. The number counts packets that were given up to make room.
    pub(crate) fn add(
        &mut self,
        peer: PeerId,
        packet: &Packet<'_>,
        fragment: Fragment,
        now: Instant,
    ) -> (Outcome, u64) {
        if !is_sound(packet, fragment) {
            return (Outcome::Dropped, 0);
        }
        let key = Key {
            peer,
            source: packet.source,
            destination: packet.destination,
            protocol: packet.source.is_ipv4().then_some(packet.protocol),
            id: fragment.id,
        };
        let mut given_up = 0;
        if !self.partial.contains_key(&key) {
            given_up = self.make_room(peer);
            self.insert(key, now);
        }
        let partial = self.partial.get_mut(&key).expect("inserted above");
        if !partial.add(packet, fragment) {
            return (Outcome::Dropped, given_up);
        }
        if !partial.is_complete() {
            return (Outcome::Kept, given_up);
        }
        let partial = self.remove(&key).expect("found above");
        let mut whole = Vec::new();
        write_packet(
            &mut whole,
            packet.source,
            packet.destination,
            partial.protocol.expect("the piece at offset 0 is there"),
            &partial.data,
        );
        (Outcome::Whole(whole), given_up)
    }

    /// Give up packets after their timeout. Returns their number.
    pub(crate) fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        while let Some((since, key)) = self.order.first().copied()
            && since + TIMEOUT <= now
        {
            self.remove(&key);
            expired += 1;
        }
        expired
    }

    /// The time at which [`expire`](Self::expire) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order.first().map(|(since, _)| *since + TIMEOUT)
    }

    /// Forget a peer's fragments.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        for (_, key) in self.by_peer.remove(&peer).unwrap_or_default() {
            self.remove(&key);
        }
    }

    /// Remove a packet to make room: the peer's oldest for its own, the oldest of all for others.
    fn make_room(&mut self, peer: PeerId) -> u64 {
        let own = self.by_peer.get(&peer);
        let oldest = if own.is_some_and(|own| own.len() >= PACKETS_PER_PEER) {
            own.and_then(BTreeSet::first)
        } else if self.order.len() >= PACKETS {
            self.order.first()
        } else {
            None
        };
        let Some((_, key)) = oldest.copied() else {
            return 0;
        };
        self.remove(&key);
        1
    }

    fn insert(&mut self, key: Key, now: Instant) {
        self.partial.insert(key, Partial::new(now));
        self.order.insert((now, key));
        self.by_peer.entry(key.peer).or_default().insert((now, key));
    }

    fn remove(&mut self, key: &Key) -> Option<Partial> {
        let partial = self.partial.remove(key)?;
        self.order.remove(&(partial.since, *key));
        if let Some(own) = self.by_peer.get_mut(&key.peer) {
            own.remove(&(partial.since, *key));
            if own.is_empty() {
                self.by_peer.remove(&key.peer);
            }
        }
        Some(partial)
    }
}

fn is_sound(packet: &Packet<'_>, fragment: Fragment) -> bool {
    let length = packet.payload.len();
    let limit = if packet.source.is_ipv4() {
        MAX_PAYLOAD_V4
    } else {
        MAX_PAYLOAD
    };
    let size_fits = if fragment.more {
        length >= TINY && length.is_multiple_of(8)
    } else {
        length > 0
    };
    size_fits && fragment.offset + length <= limit
}

impl Partial {
    fn new(since: Instant) -> Self {
        Partial {
            since,
            protocol: None,
            total: None,
            data: Vec::new(),
            pieces: Vec::new(),
            spoilt: false,
        }
    }

    /// Add a fragment. Returns false if it cannot be used.
    fn add(&mut self, packet: &Packet<'_>, fragment: Fragment) -> bool {
        let (start, end) = (fragment.offset, fragment.offset + packet.payload.len());
        if self.spoilt {
            return false;
        }
        let place = self.pieces.partition_point(|piece| piece.0 < start);
        if self.pieces.get(place) == Some(&(start, end)) {
            // A repetition by the network (RFC 8200 section 4.5 allows ignoring it).
            return false;
        }
        let reaches_back = place > 0 && self.pieces[place - 1].1 > start;
        let reaches_on = self.pieces.get(place).is_some_and(|next| next.0 < end);
        let ends_twice = !fragment.more && self.total.is_some_and(|total| total != end);
        let beyond_end = self.total.is_some_and(|total| end > total)
            || !fragment.more && self.pieces.last().is_some_and(|last| last.1 > end);
        let overlaps = reaches_back || reaches_on || ends_twice || beyond_end;
        if overlaps || self.pieces.len() == PIECES {
            self.spoilt = true;
            self.data = Vec::new();
            self.pieces = Vec::new();
            return false;
        }
        self.pieces.insert(place, (start, end));
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[start..end].copy_from_slice(packet.payload);
        if start == 0 {
            self.protocol = Some(packet.protocol);
        }
        if !fragment.more {
            self.total = Some(end);
        }
        true
    }

    /// Returns true if the packet is complete: pieces are disjoint, so they cover everything if
    /// their lengths add up to it.
    fn is_complete(&self) -> bool {
        let covered: usize = self.pieces.iter().map(|(start, end)| end - start).sum();
        self.total == Some(covered)
    }
}
