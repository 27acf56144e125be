//! Connections in TIME-WAIT, which [`Tcp`](super::Tcp) keeps after their flows.

use std::collections::VecDeque;
use std::time::Duration;

use watm_core::Instant;

use super::clocks::Clocks;
use super::segment::Segment;
use super::sequence::Sequence;
use crate::hash::{Keyed, Map};
use crate::table::Key;

/// The time for which a connection is remembered that this side closed first: a client that did not
/// get the last acknowledgement repeats its FIN after 1, 3 and 7 seconds. A later FIN is answered
/// with RST. RFC 9293 section 3.6.1 (MUST-13) asks for four minutes, which would take the memory of
/// 24 times as many connections.
const LENGTH: Duration = Duration::from_secs(10);
/// The most connections remembered; the oldest are forgotten first. Segments of others are answered
/// with RST, which ends them as well.
const LIMIT: usize = 16384;

/// The least distance from the last number of a connection to the first of the next one.
const GAP: usize = 64 << 10;

/// Connections in TIME-WAIT (RFC 9293 section 3.6), reduced to the answer to a repeated FIN.
pub(crate) struct TimeWait {
    connections: Map<Key, Last>,
    /// The connections by age. Some may have been replaced.
    order: VecDeque<(Instant, Key)>,
}

/// The position of a connection: its end, once it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Last {
    pub since: Instant,
    /// The number after the last byte sent; at the end, after the local FIN.
    pub ours: Sequence,
    /// The number after the last byte received; at the end, after the peer's FIN.
    pub theirs: Sequence,
    /// The clocks of both ends, if the connection uses timestamps.
    pub clocks: Option<Clocks>,
}

impl Last {
    /// Returns true if a SYN opens a later connection, and is no old duplicate (RFC 6191 section
    /// 2).
    pub(crate) fn precedes(&self, syn: &Segment<'_>) -> bool {
        let later = syn.sequence.is_after(self.theirs);
        match (self.clocks, syn.options.timestamp) {
            (Some(last), Some(next)) if next.value == last.recent => later,
            (Some(last), Some(next)) => !last.is_old(next),
            (Some(_), None) => later,
            (None, Some(_)) => true,
            (None, None) => later,
        }
    }

    /// The same end, but now, if a segment repeats the peer's FIN: the wait begins again (RFC 9293
    /// section 3.10.7.4). The answer echoes the timestamp of the segment (RFC 7323 section 4.3).
    pub(crate) fn again(&self, segment: &Segment<'_>, now: Instant) -> Option<Last> {
        let end = segment.sequence.plus(segment.length());
        let acknowledges = segment.acknowledges?;
        if !segment.ends() || end != self.theirs || acknowledges.is_after(self.ours) {
            return None;
        }
        let clocks = match self.clocks {
            Some(clocks) => Some(clocks.after(segment.options.timestamp?)?),
            None => None,
        };
        Some(Last {
            since: now,
            clocks,
            ..*self
        })
    }

    /// The first number of the next connection: `first`, or one beyond the windows of this one.
    pub(crate) fn successor(&self, first: Sequence) -> Sequence {
        first.later(self.ours.plus(GAP))
    }
}

impl TimeWait {
    pub(crate) fn new(hash: Keyed) -> Self {
        TimeWait {
            connections: Map::with_hasher(hash),
            order: VecDeque::new(),
        }
    }

    /// Remembers a connection, in place of what was remembered of it.
    pub(crate) fn insert(&mut self, key: Key, last: Last) {
        if self.order.len() >= LIMIT {
            self.forget_oldest();
        }
        self.connections.insert(key, last);
        self.order.push_back((last.since, key));
    }

    pub(crate) fn find(&self, key: &Key) -> Option<Last> {
        self.connections.get(key).copied()
    }

    /// The remembered connections, the oldest first. One may appear twice.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.order.iter().map(|(_, key)| key)
    }

    /// Forgets a connection whose ports are used again, and returns it.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Last> {
        self.connections.remove(key)
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.forget_oldest();
        }
    }

    /// The time at which [`expire`](Self::expire) has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|(since, _)| *since + LENGTH)
    }

    fn forget_oldest(&mut self) {
        if let Some((since, key)) = self.order.pop_front()
            && self.find(&key).is_some_and(|last| last.since == since)
        {
            self.remove(&key);
        }
    }
}
