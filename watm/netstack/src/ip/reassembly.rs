//! Reassembly of fragmented packets, within bounds for each peer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use watm_core::Instant;

use super::packet::{Fragment, MARKED, Packet};
use super::send::{LEAST_MTU_V6, write_packet};
use super::{TCP, TCP_HEADER};
use crate::PeerId;
use crate::hash::{Keyed, Map};

/// The time for which fragments wait for the others (RFC 1122 section 3.3.2, RFC 8200 section 4.5).
const TIMEOUT: Duration = Duration::from_secs(60);
/// The most incomplete packets of one peer. Fragments arrive one packet after another. Eight in
/// parallel is a busy resolver over a reordering path, and four times that is plenty.
const PACKETS_PER_PEER: usize = 32;
/// The most incomplete packets of all peers: at 64 KiB each at most 16 MiB.
const PACKETS: usize = 256;
/// The most pieces of one packet: 65535 bytes over a path with an MTU of 576.
const PIECES: usize = 128;
/// The largest payload of a packet.
const MAX_PAYLOAD: usize = 65535;
/// The largest payload of a packet with an IPv4 header.
const MAX_PAYLOAD_V4: usize = 65535 - super::V4_HEADER;

/// Reassembles IPv4 (RFC 791) and IPv6 (RFC 8200 section 4.5) packets. A packet with overlapping
/// fragments is dropped as a whole (RFC 5722), including its later fragments. A mark of congestion
/// on one fragment marks the packet (RFC 3168 section 5.3).
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

/// A packet whose fragments did not all arrive in time.
#[derive(Debug)]
pub(crate) struct Expired {
    pub peer: PeerId,
    /// The source and destination of the packet.
    pub ends: (IpAddr, IpAddr),
    /// The beginning of the first fragment, with its IP header: as much as an error repeats. It is
    /// empty if that one did not arrive.
    pub head: Vec<u8>,
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
    /// The beginning of the first fragment, with its IP header.
    head: Vec<u8>,
    /// The traffic class of the first fragment, without ECN.
    service: u8,
    /// True if a router marked a fragment because of congestion.
    marked: bool,
    /// True if a fragment could not have been marked.
    cannot_be_marked: bool,
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
        // RFC 3168 section 5.3: a marked packet must not pass as one that is not ECN-capable.
        if partial.marked && partial.cannot_be_marked {
            return (Outcome::Dropped, given_up);
        }
        let mut whole = Vec::new();
        write_packet(
            &mut whole,
            (packet.source, packet.destination),
            partial.protocol.expect("the piece at offset 0 is there"),
            partial.service | if partial.marked { MARKED } else { 0 },
            &partial.data,
        );
        (Outcome::Whole(whole), given_up)
    }

    /// Give up a packet after its timeout. `None` if there is none.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Expired> {
        let (since, key) = self.order.first().copied()?;
        if since + TIMEOUT > now {
            return None;
        }
        let partial = self.remove(&key)?;
        Some(Expired {
            peer: key.peer,
            ends: (key.source, key.destination),
            head: partial.head,
        })
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
    // A short fragment with a part of TCP's header serves to hide the header from filters (RFC 1858
    // section 3). The headers of IPv6 were checked before.
    let hides_header = packet.source.is_ipv4()
        && packet.protocol == TCP
        && fragment.offset < TCP_HEADER
        && length < TCP_HEADER;
    let size_fits = length > 0 && (!fragment.more || length.is_multiple_of(8));
    size_fits && !hides_header && fragment.offset + length <= limit
}

impl Partial {
    fn new(since: Instant) -> Self {
        Partial {
            since,
            protocol: None,
            total: None,
            head: Vec::new(),
            service: 0,
            marked: false,
            cannot_be_marked: false,
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
            self.head = Vec::new();
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
            self.service = packet.service();
            self.head = packet.whole[..packet.whole.len().min(LEAST_MTU_V6)].to_vec();
        }
        self.marked |= packet.is_marked();
        self.cannot_be_marked |= packet.cannot_be_marked();
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
