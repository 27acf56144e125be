//! One direction of a path for one peer: the outcome of each packet, its queue, and its delay. Used by
//! `Netem`. Times are in nanoseconds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::chance::{Chance, share_below};
use crate::codel::Codel;
use crate::rule::{Aqm, Distribution, Path};

/// The bytes that a waiting packet needs besides its content.
const OVERHEAD: usize = 128;

const SECOND: u128 = 1_000_000_000;

/// The outcome of a packet that is not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate {
    /// True if a bit flips.
    pub(crate) corrupt: bool,
    /// True if it skips the delay.
    pub(crate) early: bool,
}

/// A packet in the queue of the link.
struct Queued {
    since: u64,
    early: bool,
    packet: Box<[u8]>,
}

/// A packet on its way. The order is that of arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    due: u64,
    number: u64,
    packet: Box<[u8]>,
}

/// The state of one direction.
pub(crate) struct Lane {
    path: Path,
    chance: Chance,
    /// True in the bad times of the Gilbert-Elliott model.
    bad: bool,
    queue: VecDeque<Queued>,
    /// The time at which the link will have sent the packets that left the queue.
    busy_until: u64,
    codel: Codel,
    flying: BinaryHeap<Reverse<Flying>>,
    /// The number of packets that have left the queue.
    number: u64,
    /// The arrival of the last packet that did not skip the delay.
    last: u64,
    held: usize,
}

impl Lane {
    pub(crate) fn new(path: Path, chance: Chance) -> Lane {
        Lane {
            path,
            chance,
            bad: false,
            queue: VecDeque::new(),
            busy_until: 0,
            codel: Codel::default(),
            flying: BinaryHeap::new(),
            number: 0,
            last: 0,
            held: 0,
        }
    }

    /// Returns the bytes of memory that its packets need.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Returns true if a packet that comes now may have to wait.
    pub(crate) fn holds(&self) -> bool {
        self.path.holds()
    }

    /// Decides about a packet and its copy. A lost one has no fate.
    pub(crate) fn fates(&mut self) -> [Option<Fate>; 2] {
        if self.is_lost() {
            return [None, None];
        }
        let copied = self.chance.happens(self.path.duplicate);
        let mut fate = || Fate {
            corrupt: self.chance.happens(self.path.corrupt),
            early: self.chance.happens(self.path.reorder),
        };
        [Some(fate()), copied.then(fate)]
    }

    /// Flips one bit of the bytes from `payload` on.
    pub(crate) fn corrupt(&mut self, packet: &mut [u8], payload: usize) {
        let bytes = packet.get_mut(payload..).unwrap_or_default();
        if !bytes.is_empty() {
            let bit = self.chance.below(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Takes a packet. Returns false if the queue is full.
    pub(crate) fn add(&mut self, packet: Box<[u8]>, now: u64, early: bool) -> bool {
        if self.path.rate.is_some() && self.queue.len() >= self.path.queue {
            return false;
        }
        self.held += cost(&packet);
        match self.path.rate {
            None => self.fly(now, early, packet),
            Some(_) => self.queue.push_back(Queued {
                since: now,
                early,
                packet,
            }),
        }
        true
    }

    /// Sends the packets that the link has had time for. Returns the number of those that CoDel
    /// dropped.
    pub(crate) fn advance(&mut self, now: u64) -> u64 {
        let mut dropped = 0;
        while let Some(head) = self.queue.front() {
            let begin = self.busy_until.max(head.since);
            if begin > now {
                break;
            }
            let Some(queued) = self.queue.pop_front() else {
                break;
            };
            let (sojourn, more) = (begin - queued.since, !self.queue.is_empty());
            if self.path.aqm == Aqm::Codel && self.codel.drops(begin, sojourn, more) {
                self.held -= cost(&queued.packet);
                dropped += 1;
                continue;
            }
            self.busy_until = begin + self.time_of(queued.packet.len());
            self.fly(self.busy_until, queued.early, queued.packet);
        }
        dropped
    }

    /// Returns a packet whose time has come, with its time.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(u64, Box<[u8]>)> {
        if self.flying.peek()?.0.due > now {
            return None;
        }
        let Reverse(flying) = self.flying.pop()?;
        self.held -= cost(&flying.packet);
        Some((flying.due, flying.packet))
    }

    /// Returns the time of the next event: an arrival, or a packet that leaves the queue.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let flying = self.flying.peek().map(|Reverse(flying)| flying.due);
        let queued = self
            .queue
            .front()
            .map(|head| self.busy_until.max(head.since));
        flying.into_iter().chain(queued).min()
    }

    /// Lets all of its packets arrive now, in their order.
    pub(crate) fn hurry(&mut self) {
        while let Some(queued) = self.queue.pop_front() {
            let due = self.last.max(self.busy_until);
            self.push(due, queued.packet);
        }
        let mut flying = std::mem::take(&mut self.flying).into_sorted_vec();
        flying.iter_mut().for_each(|Reverse(flying)| flying.due = 0);
        self.flying = flying.into();
    }

    /// Takes a step of the Gilbert-Elliott model, and decides by its state.
    fn is_lost(&mut self) -> bool {
        let burst = self.path.burst;
        let change = if self.bad { burst.leave } else { burst.enter };
        if self.chance.happens(change) {
            self.bad = !self.bad;
        }
        let loss = if self.bad { burst.loss } else { self.path.loss };
        self.chance.happens(loss)
    }

    fn fly(&mut self, departs: u64, early: bool, packet: Box<[u8]>) {
        let due = match early {
            true => departs,
            false => {
                self.last = self.last.max(departs + self.delay());
                self.last
            }
        };
        self.push(due, packet);
    }

    fn push(&mut self, due: u64, packet: Box<[u8]>) {
        self.number += 1;
        self.flying.push(Reverse(Flying {
            due,
            number: self.number,
            packet,
        }));
    }

    /// Returns the delay of the next packet, never below 0.
    fn delay(&mut self) -> u64 {
        let mean = self.path.delay.as_nanos() as f64;
        let jitter = self.path.jitter.as_nanos() as f64;
        if jitter == 0.0 {
            return mean as u64;
        }
        let normal = self.chance.correlated(self.path.correlation);
        let off = match self.path.distribution {
            Distribution::Normal => normal,
            Distribution::Uniform => 2.0 * share_below(normal) - 1.0,
        };
        (mean + off * jitter).max(0.0) as u64
    }

    /// Returns the time that the link needs for so many bytes.
    fn time_of(&self, bytes: usize) -> u64 {
        match self.path.rate {
            // A packet of 64 KiB at 1 kbit/s needs nine minutes.
            Some(rate) => (bytes as u128 * 8 * SECOND / u128::from(rate)) as u64,
            None => 0,
        }
    }
}

/// Returns the bytes of memory that a waiting packet needs.
pub(crate) fn cost(packet: &[u8]) -> usize {
    packet.len() + OVERHEAD
}
