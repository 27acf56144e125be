//! Segments that may come from an attacker who guesses numbers (RFC 5961).

use core::time::Duration;

use watm_core::Instant;

use super::{Connection, State};
use crate::tcp::segment::Segment;
use crate::tcp::sequence::Sequence;
use crate::tcp::time_wait::Last;

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
    /// Answered with a challenge: the flow's position, and the window that it announces.
    Challenge(Last, u16),
}

/// The judgement on a reset or SYN, or on a segment that is not acceptable. It may come from an
/// attacker who guesses the numbers of this flow. The answer is a challenge with the flow's
/// position; a genuine peer then repeats its segment with the right number (RFC 5961 sections 3
/// and 4). `last` is the flow's position, `room` the bytes accepted beyond it, and `shift` the scale
/// of the window.
pub(super) fn judge(
    segment: &Segment<'_>,
    (last, room, shift): (Last, usize, u8),
    challenge_at: &mut Instant,
    now: Instant,
) -> Judgement {
    let start = segment.sequence;
    if segment.resets() && start == last.theirs {
        return Judgement::Take;
    }
    let in_window = !last.theirs.is_after(start) && start.until(last.theirs.plus(room)) > 0;
    if segment.resets() && !in_window || now < *challenge_at {
        return Judgement::Ignore;
    }
    *challenge_at = now + PERIOD;
    let window = room >> shift;
    Judgement::Challenge(last, u16::try_from(window).unwrap_or(u16::MAX))
}

impl Connection {
    /// Decides whether a segment is processed. Nothing changes the end of a closed connection, whose
    /// bytes the application may still read.
    pub(crate) fn judge(&mut self, segment: &Segment<'_>, now: Instant) -> Judgement {
        if matches!(self.state, State::Closed(_)) {
            return Judgement::Ignore;
        }
        if !segment.resets() && !segment.is_syn() {
            return Judgement::Take;
        }
        let position = (
            self.position(now),
            self.receiver.room(),
            self.receiver.shift(),
        );
        judge(segment, position, &mut self.challenge_at, now)
    }

    /// Returns true if an acknowledgement number is plausible (RFC 5961 section 5.2).
    pub(super) fn is_plausible(&self, acknowledged: Sequence) -> bool {
        let (una, next) = (self.transmitter.una(), self.transmitter.next());
        // One distance: SND.UNA + 2^31 is neither before SND.UNA nor after SND.NXT.
        let behind = next.0.wrapping_sub(acknowledged.0) as usize;
        behind <= una.until(next) + self.transmitter.largest_window()
    }

    /// Demands an acknowledgement for a segment that is not acceptable, at a bounded rate.
    pub(super) fn correct(&mut self, now: Instant) {
        if now >= self.challenge_at {
            self.challenge_at = now + PERIOD;
            self.receiver.acknowledge();
        }
    }

    /// The same for a probe. Two of Linux follow each other in 200 ms.
    pub(super) fn answer_probe(&mut self, now: Instant) {
        if now + PERIOD >= self.challenge_at + PROBE_PERIOD {
            self.challenge_at = now + PERIOD;
            self.receiver.acknowledge();
        }
    }
}
