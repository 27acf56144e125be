//! One direction of a link: what becomes of a packet, its queue, and its delay. Used by `link`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Waiting;
use super::chance::{Chance, share_below};
use super::codel::Codel;
use super::rule::{Aqm, Distribution, Path};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// The outcome for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    Kept {
        corrupt: bool,
        /// True if it skips the delay.
        early: bool,
    },
}

/// A packet in the queue of the link.
struct Queued {
    since: u64,
    early: bool,
    waiting: Waiting,
}

/// A packet on its way.
struct Flying {
    due: u64,
    /// The order among packets of the same time.
    number: u64,
    waiting: Waiting,
}

/// The state of one direction.
pub(super) struct Lane {
    path: Path,
    chance: Chance,
    /// True in the bad times of the Gilbert-Elliott model.
    bad: bool,
    queue: VecDeque<Queued>,
    /// The time at which the link has sent what it sends.
    busy_until: u64,
    codel: Codel,
    flying: BinaryHeap<Reverse<Flying>>,
    number: u64,
    held: usize,
}

impl Lane {
    pub(super) fn new(path: Path, chance: Chance) -> Lane {
        Lane {
            path,
            chance,
            bad: false,
            queue: VecDeque::new(),
            busy_until: 0,
            codel: Codel::default(),
            flying: BinaryHeap::new(),
            number: 0,
            held: 0,
        }
    }

    /// The bytes that its packets need.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Decides about a packet, and about its copy if there is one.
    pub(super) fn fates(&mut self) -> Vec<Fate> {
        if self.is_lost() {
            return vec![Fate::Lost];
        }
        let copies = 1 + usize::from(self.chance.happens(self.path.duplicate));
        let fate = |_| Fate::Kept {
            corrupt: self.chance.happens(self.path.corrupt),
            early: self.chance.happens(self.path.reorder),
        };
        (0..copies).map(fate).collect()
    }

    /// Takes a packet that is kept. Returns false if the queue is full.
    pub(super) fn add(&mut self, mut waiting: Waiting, now: u64, fate: Fate) -> bool {
        let Fate::Kept { corrupt, early } = fate else {
            return false;
        };
        if corrupt && !waiting.packet.is_empty() {
            let bit = self.chance.below(waiting.packet.len() * 8);
            waiting.packet[bit / 8] ^= 1 << (bit % 8);
        }
        let cost = waiting.cost();
        if self.path.rate.is_none() {
            self.held += cost;
            self.fly(now, early, waiting);
            return true;
        }
        if self.queue.len() >= self.path.queue {
            return false;
        }
        self.held += cost;
        self.queue.push_back(Queued {
            since: now,
            early,
            waiting,
        });
        true
    }

    /// Sends what the link has had time for. Returns the number of packets that CoDel dropped.
    pub(super) fn advance(&mut self, now: u64) -> u64 {
        let mut dropped = 0;
        while let Some(head) = self.queue.front() {
            let begin = self.busy_until.max(head.since);
            if begin > now {
                break;
            }
            let Some(queued) = self.queue.pop_front() else {
                break;
            };
            let more = !self.queue.is_empty();
            if self.path.aqm == Aqm::Codel
                && self.codel.drops(begin, begin - queued.since, more)
            {
                self.held -= queued.waiting.cost();
                dropped += 1;
                continue;
            }
            self.busy_until = begin + self.time_of(queued.waiting.packet.len());
            self.fly(self.busy_until, queued.early, queued.waiting);
        }
        dropped
    }

    /// Returns a packet that is due, with its time.
    pub(super) fn pop(&mut self, now: u64) -> Option<(u64, Waiting)> {
        if self.flying.peek()?.0.due > now {
            return None;
        }
        let Reverse(flying) = self.flying.pop()?;
        self.held -= flying.waiting.cost();
        Some((flying.due, flying.waiting))
    }

    /// The time of the next packet: on its way, or at the head of the queue.
    pub(super) fn deadline(&self) -> Option<u64> {
        let flying = self.flying.peek().map(|Reverse(flying)| flying.due);
        let head = self.queue.front();
        let queued = head.map(|head| self.busy_until.max(head.since));
        flying.into_iter().chain(queued).min()
    }

    /// Returns all of its packets, in the order of their times and of the queue.
    pub(super) fn empty(self) -> impl Iterator<Item = (u64, Waiting)> {
        let flying = self.flying.into_sorted_vec().into_iter().rev();
        let flying = flying.map(|Reverse(flying)| (flying.due, flying.waiting));
        let queued = self.queue.into_iter();
        flying.chain(queued.map(|queued| (u64::MAX, queued.waiting)))
    }

    /// Takes a step of the Gilbert-Elliott model, and decides by its state.
    fn is_lost(&mut self) -> bool {
        let Some(burst) = self.path.burst else {
            return self.chance.happens(self.path.loss);
        };
        let change = if self.bad { burst.leave } else { burst.enter };
        if self.chance.happens(change) {
            self.bad = !self.bad;
        }
        let loss = if self.bad { burst.loss } else { self.path.loss };
        self.chance.happens(loss)
    }

    fn fly(&mut self, departs: u64, early: bool, waiting: Waiting) {
        let delay = if early { 0 } else { self.delay() };
        self.number += 1;
        self.flying.push(Reverse(Flying {
            due: departs + delay,
            number: self.number,
            waiting,
        }));
    }

    /// The delay of the next packet, in nanoseconds; never below 0.
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

    /// The time that the link needs for so many bytes, in nanoseconds.
    fn time_of(&self, bytes: usize) -> u64 {
        let rate = self.path.rate.unwrap_or(u64::MAX);
        (bytes as u64 * 8).saturating_mul(SECOND) / rate
    }
}

impl PartialEq for Flying {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Flying {}

impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flying {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}
