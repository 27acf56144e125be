//! Bad networks on demand, between a network stack and its peers: delay, loss, a slow link with a queue.
//! No IO of its own. The transports `wireguard` and `tun` pass their IP packets through.
//!
//! A packet first survives or is lost, then waits in the queue of a link with a rate, then takes its
//! delay. Each direction of each rule has its own state for every peer. Everything follows from the
//! packets, their times and a seed.
//!
//! # The run loop
//!
//! 1. Pass each packet to [`Netem::take`], and let it go on unless it was taken.
//! 2. Call [`Netem::arrived`] at the time of [`Netem::deadline`], and let these packets go on.

mod chance;
mod codel;
mod field;
mod lane;
mod presets;
mod rule;
mod words;

use std::collections::BTreeMap;
use std::net::IpAddr;

pub use field::{field, of_json};
pub use presets::{PRESETS, Preset};
pub use rule::{Aqm, Burst, Direction, Distribution, Hosts, Path, Rule};
pub use words::{Uploader, WORDS, parse};

use chance::Chance;
use lane::{Fate, Lane};

/// The most bytes of packets that wait in all queues and delays. Beyond it, packets are dropped: a
/// second of 64 Mbit/s.
const BUDGET: usize = 8 << 20;

/// The most lanes: triples of a rule, a direction and a peer. Packets beyond them are untouched.
const MOST_LANES: usize = 1024;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A packet whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// The number of its peer.
    pub peer: u32,
    /// Its direction.
    pub direction: Direction,
    /// The packet.
    pub packet: Box<[u8]>,
}

/// The numbers of packets so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lost by chance.
    pub lost: u64,
    /// Dropped at a full queue, or by CoDel.
    pub dropped: u64,
    /// Changed in a bit.
    pub corrupted: u64,
    /// Sent twice.
    pub duplicated: u64,
}

impl Counts {
    /// Returns the numbers by the names that they have in a status.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("network.lost", self.lost),
            ("network.dropped", self.dropped),
            ("network.corrupted", self.corrupted),
            ("network.duplicated", self.duplicated),
        ]
        .into_iter()
    }
}

/// The bad network of all peers.
pub struct Netem {
    rules: Vec<Rule>,
    lanes: BTreeMap<(usize, Direction, u32), Lane>,
    /// Lanes of former rules. Their packets arrive at once.
    former: Vec<((Direction, u32), Lane)>,
    /// The bytes of memory that all packets need.
    held: usize,
    /// The time of the next call of `arrived`.
    next: Option<u64>,
    counts: Counts,
    seed: u64,
}

impl Netem {
    /// Makes a perfect network.
    pub fn new(seed: u64) -> Netem {
        Netem {
            rules: Vec::new(),
            lanes: BTreeMap::new(),
            former: Vec::new(),
            held: 0,
            next: None,
            counts: Counts::default(),
            seed,
        }
    }

    /// Replaces the rules. Packets that wait arrive at once, in their order.
    pub fn set_rules(&mut self, rules: &[Rule]) {
        if self.rules == rules {
            return;
        }
        self.rules = rules.to_vec();
        for ((_, direction, peer), mut lane) in std::mem::take(&mut self.lanes) {
            lane.hurry();
            self.former.push(((direction, peer), lane));
        }
        self.next = (!self.former.is_empty()).then_some(0);
    }

    /// Returns true if it changes nothing: there are no rules, and no packet waits.
    pub fn is_idle(&self) -> bool {
        self.rules.is_empty() && self.former.is_empty()
    }

    /// Returns the numbers of packets so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Drops the packets that wait for a peer that was removed.
    pub fn forget(&mut self, peer: u32) {
        self.lanes.retain(|(.., of), _| *of != peer);
        self.former.retain(|((_, of), _)| *of != peer);
        let left = || {
            let former = self.former.iter().map(|(_, lane)| lane);
            former.chain(self.lanes.values())
        };
        self.held = left().map(Lane::held).sum();
        self.next = left().filter_map(Lane::deadline).min();
    }

    /// Decides about an IP packet at this time, in nanoseconds. Returns true if the network has taken
    /// it: it is lost, or comes back through [`arrived`](Self::arrived). Otherwise it goes on at
    /// once, as it is.
    pub fn take(
        &mut self,
        direction: Direction,
        peer: (u32, &str),
        packet: &[u8],
        now: u64,
    ) -> bool {
        let (peer, name) = peer;
        let ends = ends(packet);
        let concerned = |rule: &Rule| rule.concerns(direction, name, ends);
        let Some(number) = self.rules.iter().position(concerned) else {
            return false;
        };
        let key = (number, direction, peer);
        if !self.lanes.contains_key(&key) {
            if self.lanes.len() >= MOST_LANES {
                return false;
            }
            let chance = Chance::of(self.seed, number as u64, direction as u64, peer.into());
            let lane = Lane::new(self.rules[number].path.clone(), chance);
            self.lanes.insert(key, lane);
        }
        let Some(lane) = self.lanes.get_mut(&key) else {
            return false;
        };
        let fates = lane.fates();
        if fates == UNCHANGED && !lane.holds() {
            return false;
        }
        let before = lane.held();
        self.counts.dropped += lane.advance(now);
        self.counts.lost += u64::from(fates[0].is_none());
        self.counts.duplicated += u64::from(fates[1].is_some());
        let mut room = BUDGET.saturating_sub(self.held);
        for fate in fates.into_iter().flatten() {
            let mut copy: Box<[u8]> = packet.into();
            if fate.corrupt {
                lane.corrupt(&mut copy, payload(packet));
                self.counts.corrupted += 1;
            }
            let cost = lane::cost(&copy);
            match cost <= room && lane.add(copy, now, fate.early) {
                true => room -= cost,
                false => self.counts.dropped += 1,
            }
        }
        self.counts.dropped += lane.advance(now);
        self.held = self.held - before + lane.held();
        self.next = self.next.into_iter().chain(lane.deadline()).min();
        true
    }

    /// Returns the packets whose time has come, in the order of their times.
    pub fn arrived(&mut self, now: u64) -> Vec<Arrived> {
        let former = self.former.iter_mut().map(|(key, lane)| (*key, lane));
        let lanes = self.lanes.iter_mut();
        let lanes = lanes.map(|((_, direction, peer), lane)| ((*direction, *peer), lane));
        let mut due = Vec::new();
        self.next = None;
        for ((direction, peer), lane) in former.chain(lanes) {
            let before = lane.held();
            self.counts.dropped += lane.advance(now);
            while let Some((time, packet)) = lane.pop(now) {
                let arrived = Arrived {
                    peer,
                    direction,
                    packet,
                };
                due.push((time, arrived));
            }
            self.held = self.held - before + lane.held();
            self.next = self.next.into_iter().chain(lane.deadline()).min();
        }
        self.former.clear();
        due.sort_by_key(|(time, _)| *time);
        due.into_iter().map(|(_, arrived)| arrived).collect()
    }

    /// Returns the time of the next call of [`arrived`](Self::arrived), in nanoseconds.
    pub fn deadline(&self) -> Option<u64> {
        self.next
    }
}

/// The fates of a packet that nothing happens to.
const UNCHANGED: [Option<Fate>; 2] = [
    Some(Fate {
        corrupt: false,
        early: false,
    }),
    None,
];

/// Returns the length of an IP packet's first header. Bits flip only beyond it: a changed address
/// would be one that the peer may not have.
fn payload(packet: &[u8]) -> usize {
    match packet.first() {
        Some(first) if first >> 4 == 4 => usize::from(first & 0x0f) * 4,
        _ => 40,
    }
}

/// Returns the ends of an IP packet. Later fragments and protocols without ports have none.
fn ends(packet: &[u8]) -> Option<rule::Ends> {
    let (source, destination, protocol) = match packet.first()? >> 4 {
        4 => {
            let is_first = packet.get(6)? & 0x1f == 0 && *packet.get(7)? == 0;
            let protocol = is_first.then_some(*packet.get(9)?);
            (v4(packet, 12)?, v4(packet, 16)?, protocol)
        }
        _ => (v6(packet, 8)?, v6(packet, 24)?, packet.get(6).copied()),
    };
    let has_ports = protocol.is_some_and(|protocol| [TCP, UDP].contains(&protocol));
    let port = |at: usize| {
        let at = payload(packet) + at;
        let bytes = packet.get(at..at + 2).filter(|_| has_ports)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    Some([(source, port(0)), (destination, port(2))])
}

fn v4(packet: &[u8], at: usize) -> Option<IpAddr> {
    let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
    Some(bytes.into())
}

fn v6(packet: &[u8], at: usize) -> Option<IpAddr> {
    let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
    Some(bytes.into())
}
