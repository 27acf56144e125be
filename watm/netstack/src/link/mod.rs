//! A bad network on demand between the peers and the stack: delay, loss, a slow link with a queue.
//! `Netstack` passes its packets through, at the edge where they enter and leave.
//!
//! A packet first survives or is lost, then waits in the queue of a link with a rate, then takes its
//! delay. Each direction of each rule has this for every peer separately. Everything follows from the
//! packets, their times and a seed, so that a test can repeat a run.

mod chance;
mod codel;
mod lane;
mod presets;
mod rule;
mod words;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use watm_core::Instant;

pub use presets::PRESETS;
pub use rule::{Aqm, Burst, Distribution, Path, Rule};
pub use words::{WORDS, parse};

use crate::counters::Counters;
use crate::{Origin, PeerId};
use chance::Chance;
use lane::{Fate, Lane};

/// The most bytes of packets that wait in all queues and delays. Beyond it, packets are dropped: a
/// second of 64 Mbit/s.
const BUDGET: usize = 8 << 20;

/// The most pairs of a rule, a direction and a peer with a link of their own. Packets beyond them
/// pass untouched.
const LANES: usize = 1024;

/// The bytes that a waiting packet needs besides its content.
const OVERHEAD: usize = 128;

/// The direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From a peer to the stack.
    FromPeer,
    /// From the stack to a peer.
    ToPeer,
}

/// A packet that waits.
struct Waiting {
    peer: PeerId,
    /// The origin of a packet from a peer.
    origin: Option<Origin>,
    packet: Box<[u8]>,
}

impl Waiting {
    fn cost(&self) -> usize {
        self.packet.len() + OVERHEAD
    }
}

/// A packet whose time has come.
pub(crate) enum Arrived {
    FromPeer(Origin, Box<[u8]>),
    ToPeer(PeerId, Box<[u8]>),
}

/// All links of a stack.
pub(crate) struct Link {
    rules: Vec<Rule>,
    lanes: BTreeMap<(usize, Way, PeerId), Lane>,
    names: BTreeMap<PeerId, Rc<str>>,
    /// Packets of former rules, which go on at once.
    leaving: Vec<(u64, Way, Waiting)>,
    held: usize,
    seed: u64,
}

impl Link {
    pub(crate) fn new(seed: u64) -> Link {
        Link {
            rules: Vec::new(),
            lanes: BTreeMap::new(),
            names: BTreeMap::new(),
            leaving: Vec::new(),
            held: 0,
            seed,
        }
    }

    /// Replaces the rules. Packets that wait go on at once, in the order of their times.
    pub(crate) fn set_rules(&mut self, rules: &[Rule]) {
        if self.rules == rules {
            return;
        }
        self.rules = rules.to_vec();
        for ((_, way, _), lane) in std::mem::take(&mut self.lanes) {
            let left = lane.empty().map(|(time, waiting)| (time, way, waiting));
            self.leaving.extend(left);
        }
    }

    /// Returns true if no packet needs it: there are no rules, and none waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.rules.is_empty() && self.leaving.is_empty()
    }

    /// Learns the name of a peer, which rules refer to.
    pub(crate) fn know(&mut self, origin: &Origin) {
        let named = self.rules.iter().any(|rule| rule.peer.is_some());
        if named && !self.names.contains_key(&origin.peer) {
            self.names.insert(origin.peer, Rc::clone(&origin.name));
        }
    }

    /// Drops what waits for a peer that was removed.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.names.remove(&peer);
        let held = &mut self.held;
        self.leaving.retain(|(.., waiting)| {
            if waiting.peer == peer {
                *held -= waiting.cost();
            }
            waiting.peer != peer
        });
        self.lanes.retain(|(.., of), lane| {
            if *of == peer {
                *held -= lane.held();
            }
            *of != peer
        });
    }

    /// Takes a packet at this time. Returns false if no rule concerns it, so that it goes on at
    /// once.
    pub(crate) fn take(
        &mut self,
        way: Way,
        peer: PeerId,
        origin: Option<&Origin>,
        packet: &[u8],
        now: Instant,
        counters: &mut Counters,
    ) -> bool {
        let Some(number) = self.rule(way, peer, packet) else {
            return false;
        };
        let key = (number, way, peer);
        if !self.lanes.contains_key(&key) {
            if self.lanes.len() >= LANES {
                return false;
            }
            let rule = &self.rules[number];
            let seed = rule.seed.unwrap_or(self.seed);
            let chance = Chance::of(seed, number as u64, way as u64, peer.into());
            self.lanes.insert(key, Lane::new(rule.path.clone(), chance));
        }
        let Some(lane) = self.lanes.get_mut(&key) else {
            return false;
        };
        let before = lane.held();
        counters.link_dropped += lane.advance(now.0);
        self.held -= before - lane.held();
        for fate in lane.fates() {
            let waiting = Waiting {
                peer,
                origin: origin.cloned(),
                packet: packet.into(),
            };
            match fate {
                Fate::Lost => counters.link_lost += 1,
                Fate::Kept { corrupt, .. } => {
                    let cost = waiting.cost();
                    if self.held + cost > BUDGET || !lane.add(waiting, now.0, fate) {
                        counters.link_dropped += 1;
                        continue;
                    }
                    self.held += cost;
                    counters.link_corrupted += u64::from(corrupt);
                }
            }
        }
        true
    }

    /// Returns the packets whose time has come.
    pub(crate) fn arrived(&mut self, now: Instant, counters: &mut Counters) -> Vec<Arrived> {
        let mut due = std::mem::take(&mut self.leaving);
        self.held -= due.iter().map(|(.., waiting)| waiting.cost()).sum::<usize>();
        for ((_, way, _), lane) in &mut self.lanes {
            let before = lane.held();
            counters.link_dropped += lane.advance(now.0);
            while let Some((time, waiting)) = lane.pop(now.0) {
                due.push((time, *way, waiting));
            }
            self.held -= before - lane.held();
        }
        due.sort_by_key(|(time, ..)| *time);
        counters.link_passed += due.len() as u64;
        let arrived = due.into_iter().map(|(_, way, waiting)| match (way, waiting.origin) {
            (Way::FromPeer, Some(origin)) => Arrived::FromPeer(origin, waiting.packet),
            _ => Arrived::ToPeer(waiting.peer, waiting.packet),
        });
        arrived.collect()
    }

    /// The time of the next packet.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !self.leaving.is_empty() {
            return Some(Instant(0));
        }
        let times = self.lanes.values().filter_map(Lane::deadline);
        times.min().map(Instant)
    }

    /// The first rule for this packet.
    fn rule(&self, way: Way, peer: PeerId, packet: &[u8]) -> Option<usize> {
        let name = self.names.get(&peer).map(|name| &**name);
        let ends = ends(packet);
        self.rules.iter().position(|rule| {
            rule.concerns(way)
                && rule.peer.as_deref().is_none_or(|peer| name == Some(peer))
                && rule.host.as_ref().is_none_or(|host| {
                    ends.is_some_and(|ends| ends.iter().any(|end| host.contains(*end)))
                })
        })
    }
}

/// The addresses of an IP packet, each with its port if it has one: source, then destination.
fn ends(packet: &[u8]) -> Option<[(IpAddr, Option<u16>); 2]> {
    let (addresses, protocol, payload): ([IpAddr; 2], u8, usize) = match packet.first()? >> 4 {
        4 => {
            let address = |at: usize| Some(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?.into());
            let later = packet.get(6)? & 0x1f != 0 || *packet.get(7)? != 0;
            let length = usize::from(packet[0] & 0x0f) * 4;
            let protocol = if later { 0 } else { *packet.get(9)? };
            ([address(12)?, address(16)?], protocol, length)
        }
        _ => {
            let address = |at: usize| Some(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?.into());
            ([address(8)?, address(24)?], *packet.get(6)?, 40)
        }
    };
    let port = |at: usize| {
        let has_ports = [crate::ip::TCP, crate::ip::UDP].contains(&protocol);
        let bytes = packet.get(payload + at..payload + at + 2)?;
        has_ports.then(|| u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    Some([(addresses[0], port(0)), (addresses[1], port(2))])
}
