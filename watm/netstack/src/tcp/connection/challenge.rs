//! Segments that may come from an attacker who guesses numbers (RFC 5961).

use core::time::Duration;

use watm_core::Instant;

use super::{Connection, State};
use crate::tcp::segment::Segment;
use crate::tcp::sequence::Sequence;

/// The least time between two challenges of a flow (RFC 5961 section 7), as in Linux. Each flow has
/// its own, so that it reveals nothing about another one.
pub(super) const PERIOD: Duration = Duration::from_millis(500);
/// The shortest time between answers to probes.
const PROBE_PERIOD: Duration = Duration::from_millis(100);

/// The treatment of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Take,
    Ignore,
    /// Answered with a challenge: an acknowledgement with the flow's position.
    Challenge,
}

/// The challenges of a flow, and other acknowledgements whose rate is bounded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Challenges {
    /// The time of the last one.
    last: Option<Instant>,
}

impl Challenges {
    /// The judgement on a reset or SYN, or on a segment that is not acceptable. It may come from an
    /// attacker who guesses the numbers of this flow. A genuine peer answers a challenge with the
    /// right number (RFC 5961 sections 3 and 4). `next` is the number that is expected, and `room`
    /// the bytes accepted beyond it.
    pub(super) fn judge(
        &mut self,
        segment: &Segment<'_>,
        next: Sequence,
        room: usize,
        now: Instant,
    ) -> Judgement {
        let start = segment.sequence;
        if segment.resets() && start == next {
            return Judgement::Take;
        }
        let in_window = !next.is_after(start) && start.until(next.plus(room)) > 0;
        if segment.resets() && !in_window || !self.permit(PERIOD, now) {
            return Judgement::Ignore;
        }
        Judgement::Challenge
    }

    /// Returns true, and counts one, if the last one was at least `period` ago.
    fn permit(&mut self, period: Duration, now: Instant) -> bool {
        let may = self.last.is_none_or(|last| now >= last + period);
        if may {
            self.last = Some(now);
        }
        may
    }
}

impl Connection {
    /// Decides whether a segment is processed. Nothing changes the end of a closed connection,
    /// whose bytes the application may still read.
    pub(crate) fn judge(&mut self, segment: &Segment<'_>, now: Instant) -> Judgement {
        if matches!(self.state, State::Closed(_)) {
            return Judgement::Ignore;
        }
        if !segment.resets() && !segment.is_syn() {
            return Judgement::Take;
        }
        let (next, room) = (self.receiver.next(), self.receiver.room());
        self.challenges.judge(segment, next, room, now)
    }

    /// Returns true if an acknowledgement number is plausible (RFC 5961 section 5.2).
    pub(super) fn is_plausible(&self, acknowledged: Sequence) -> bool {
        let (una, next) = (self.transmitter.una(), self.transmitter.next());
        // A single distance decides: SND.UNA + 2^31 would be neither before SND.UNA nor after
        // SND.NXT.
        let distance = next.0.wrapping_sub(acknowledged.0) as usize;
        distance <= una.until(next) + self.transmitter.largest_window()
    }

    /// Demands an acknowledgement for a segment that is not acceptable, at a bounded rate.
    pub(super) fn correct(&mut self, now: Instant) {
        if self.challenges.permit(PERIOD, now) {
            self.receiver.acknowledge();
        }
    }

    /// Demands an acknowledgement for a probe, at most once in [`PROBE_PERIOD`]. Linux sends its
    /// second probe 200 ms after the first.
    pub(super) fn answer_probe(&mut self, now: Instant) {
        if self.challenges.permit(PROBE_PERIOD, now) {
            self.receiver.acknowledge();
        }
    }
}
