//! A network link that delays, loses, duplicates and reorders packets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use watm_core::Instant;

use super::Random;

/// The treatment of packets by a network.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// The delay in one direction.
    pub delay: Duration,
    /// The random addition to the delay, which reorders packets.
    pub jitter: Duration,
    /// The loss in thousandths.
    pub loss: usize,
    pub duplication: usize,
}

impl Conditions {
    /// Half of `round_trip` each way, without faults.
    pub fn clean(round_trip: Duration) -> Self {
        Conditions {
            delay: round_trip / 2,
            jitter: Duration::ZERO,
            loss: 0,
            duplication: 0,
        }
    }
}

/// One direction of a network.
#[derive(Debug)]
pub struct Link {
    pub conditions: Conditions,
    /// The longest packet in bytes; longer ones are lost silently.
    pub longest: usize,
    random: Random,
    sent: u64,
    queue: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
}

impl Link {
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Link {
            conditions,
            longest: usize::MAX,
            random: Random(seed),
            sent: 0,
            queue: BinaryHeap::new(),
        }
    }

    pub fn send(&mut self, now: Instant, packet: Vec<u8>) {
        let lost = self.random.below(1000) < self.conditions.loss;
        if lost || packet.len() > self.longest {
            return;
        }
        if self.random.below(1000) < self.conditions.duplication {
            self.push(now, packet.clone());
        }
        self.push(now, packet);
    }

    fn push(&mut self, now: Instant, packet: Vec<u8>) {
        let jitter = self.conditions.jitter.as_nanos() as usize;
        let extra = self.random.below(jitter + 1) as u64;
        let at = now + self.conditions.delay + Duration::from_nanos(extra);
        self.sent += 1;
        self.queue.push(Reverse((at, self.sent, packet)));
    }

    pub fn next(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// Drops the packets on their way.
    pub fn clear(&mut self) {
        self.queue.clear();
    }

    pub fn due(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            due.extend(self.queue.pop().map(|Reverse((_, _, packet))| packet));
        }
        due
    }
}
