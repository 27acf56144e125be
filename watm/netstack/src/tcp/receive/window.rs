//! The receive window: its size, and what is announced of it (RFC 9293 section 3.8.6).

use core::time::Duration;

use watm_core::Instant;

use super::Receiver;
use crate::PeerId;
use crate::tcp::memory::Memory;
use crate::tcp::sequence::Sequence;

/// The size of the window of a new flow: the largest without scaling.
pub(crate) const LEAST: usize = 64 << 10;
/// The largest size: 160 Mbit/s over 100 ms.
const MOST: usize = 2 << 20;
/// The window scale that lets [`MOST`] be announced (RFC 7323 section 2).
pub(crate) const SHIFT: u8 = MOST.ilog2() as u8 + 1 - 16;
/// Rounding may add one part in this many to the window. Peers such as smoltcp recover badly from a
/// right edge that moves to the left. A sixteenth suffices for segments of 512 bytes: each of them
/// rounds the window up at most once, by half a unit of 64 bytes on average.
const ROUNDING_PARTS: usize = 16;
/// The delay that a batch and a timer may add to a round trip.
const SLACK: Duration = Duration::from_millis(50);

/// The receive window.
#[derive(Debug)]
pub(super) struct Window {
    /// The bytes that may wait for the application.
    size: usize,
    shift: u8,
    /// The end of the window that was announced.
    end: Sequence,
    /// The bytes that the application took since `since`.
    taken: usize,
    since: Instant,
}

impl Window {
    pub(super) fn new(end: Sequence, shift: u8, now: Instant) -> Self {
        Window {
            size: LEAST,
            shift,
            end,
            taken: 0,
            since: now,
        }
    }

    /// The end of the window that was announced.
    pub(super) fn end(&self) -> Sequence {
        self.end
    }

    /// Records that the application took bytes.
    pub(super) fn taken(&mut self, bytes: usize) {
        self.taken += bytes;
    }
}

impl Receiver {
    /// The bytes beyond the next expected number that are accepted.
    pub(crate) fn room(&self) -> usize {
        self.next.until(self.window.end)
    }

    /// Returns true if a number precedes the next expected one by a window at most, so that the
    /// peer may still repeat it. Further ones are an attacker's guesses (RFC 7323 section 5.3, R2).
    pub(crate) fn is_recent(&self, sequence: Sequence) -> bool {
        !sequence.is_after(self.next) && sequence.until(self.next) <= self.window.size
    }

    /// Returns the window field, and the furthest end that was ever announced. The announced edge
    /// moves to the right if it can move by a full segment or half of the window (RFC 9293
    /// section 3.8.6.2.2), and if the field is rounded up. It can move to the left by less than a
    /// unit of the field, once rounding has used its share (RFC 7323 section 2.4).
    pub(super) fn announcement(&self, segment: usize) -> (u16, Sequence) {
        let window = &self.window;
        let limit = self.taken.plus(window.size);
        let offered = limit.later(window.end);
        let step = segment.min(window.size / 2);
        let moves = window.end.until(offered) >= step;
        let end = if moves { offered } else { window.end };
        let bytes = self.next.until(end);
        let unit = 1 << window.shift;
        let (less, more) = (bytes - bytes % unit, bytes.next_multiple_of(unit));
        // A rounded window should not end before the one announced. Without a bound, each rounding
        // would add to it while the application takes nothing.
        let short = less < self.next.until(window.end);
        let bound = limit.plus((window.size / ROUNDING_PARTS).max(unit - 1));
        let bounded = !self.next.plus(more).is_after(bound);
        let rounded = if short && bounded { more } else { less };
        let field = u16::try_from(rounded >> window.shift).unwrap_or(u16::MAX);
        let announced = self.next.plus(usize::from(field) << window.shift);
        (field, announced.later(window.end))
    }

    /// Returns true if the application took so much that the peer must learn of the room now. After
    /// its FIN it needs none.
    pub(super) fn must_announce(&self, segment: usize) -> bool {
        if self.has_ended() {
            return false;
        }
        let (_, end) = self.announcement(segment);
        let grows = self.window.end.until(end);
        let shown = self.room();
        grows > 0 && grows >= shown.max(segment.min(self.window.size / 2))
    }

    pub(super) fn announced(&mut self, end: Sequence) {
        self.window.end = end;
    }

    /// Doubles the window if the peer filled it within a round trip, so that it limits the flow.
    pub(crate) fn grow(
        &mut self,
        round_trip: Duration,
        peer: PeerId,
        memory: &Memory,
        now: Instant,
    ) {
        let window = &mut self.window;
        if window.taken < window.size {
            return;
        }
        let fast = now - window.since <= round_trip * 2 + SLACK;
        window.taken = 0;
        window.since = now;
        let larger = window.size * 2;
        if fast && larger <= MOST && window.shift > 0 && memory.grants(peer, larger) {
            window.size = larger;
        }
    }

    /// Returns true if the window of an idle flow is not the least.
    pub(crate) fn is_large(&self) -> bool {
        self.window.size > LEAST
    }

    /// Shrinks the window of an idle flow. The announced part stays.
    pub(crate) fn shrink(&mut self) {
        self.window.size = LEAST;
    }
}
