//! When to acknowledge, and with what (RFC 9293 section 3.8.6.3).

use core::time::Duration;

use watm_core::Instant;

use super::Receiver;
use crate::tcp::options::{BLOCKS, BLOCKS_WITH_TIMESTAMP, Written};
use crate::tcp::sequence::Sequence;

/// The delay of the acknowledgement of a lone segment; two are acknowledged at once. Long enough
/// for the answer of a local application to carry the acknowledgement; too short to be noticed by a
/// client that holds back its next small segment until then (Nagle).
const DELAY: Duration = Duration::from_millis(2);
/// The segments without an acknowledgement that are tolerated (RFC 5681 section 4.2).
const TOLERATED: u8 = 1;

/// The next acknowledgement.
#[derive(Debug)]
pub(super) struct AckTimer {
    /// The last number that was acknowledged.
    told: Sequence,
    /// True if it is due now.
    now: bool,
    /// The segments that wait for it, and the time when they have waited long enough.
    segments: u8,
    due: Option<Instant>,
}

impl AckTimer {
    pub(super) fn new(told: Sequence) -> Self {
        AckTimer {
            told,
            now: false,
            segments: 0,
            due: None,
        }
    }

    /// Demands an acknowledgement at the end of this turn.
    pub(super) fn at_once(&mut self) {
        self.now = true;
    }

    /// Records that bytes, or a FIN, arrived in order.
    pub(super) fn arrived(&mut self, now: Instant) {
        self.segments = self.segments.saturating_add(1);
        self.now |= self.segments > TOLERATED;
        self.due.get_or_insert(now + DELAY);
    }
}

impl Receiver {
    /// Demands an acknowledgement at the end of this turn.
    pub(crate) fn acknowledge(&mut self) {
        self.acknowledgement.at_once();
    }

    /// Returns true if an acknowledgement must leave now. `segment` is the size of the peer's
    /// segments.
    pub(crate) fn must_acknowledge(&self, segment: usize, now: Instant) -> bool {
        let timer = &self.acknowledgement;
        timer.now || timer.due.is_some_and(|due| due <= now) || self.must_announce(segment)
    }

    /// Returns true if an acknowledgement must leave now, and reports bytes beyond a gap or a
    /// duplicate (RFC 2018 section 4, RFC 5681 section 4.2).
    pub(crate) fn must_report(&self) -> bool {
        self.acknowledgement.now && self.arrivals.is_some()
    }

    /// Returns true if another acknowledgement must precede the next segment: it has a duplicate to
    /// report, and a second one would replace that.
    pub(crate) fn has_unreported_duplicate(&self) -> bool {
        self.arrivals
            .as_ref()
            .is_some_and(|arrivals| arrivals.has_unreported_duplicate())
    }

    /// The time of a delayed acknowledgement.
    pub(crate) fn acknowledge_at(&self) -> Option<Instant> {
        self.acknowledgement.due
    }

    /// The last number that was acknowledged (Last.ACK.sent of RFC 7323 section 4.3).
    pub(crate) fn told(&self) -> Sequence {
        self.acknowledgement.told
    }

    /// The acknowledgement number and the window field of a segment that leaves now. With it, the
    /// acknowledgement is done.
    pub(crate) fn tell(&mut self, segment: usize) -> (Sequence, u16) {
        let (field, end) = self.announcement(segment);
        self.announced(end);
        self.acknowledgement = AckTimer::new(self.next);
        (self.next, field)
    }

    /// Adds the blocks that arrived beyond a gap or twice to the options of an acknowledgement.
    pub(crate) fn tell_blocks(&mut self, options: &mut Written) {
        let Some(arrivals) = &mut self.arrivals else {
            return;
        };
        if self.selective {
            let most = match options.bytes().is_empty() {
                true => BLOCKS,
                false => BLOCKS_WITH_TIMESTAMP,
            };
            options.blocks(arrivals.tell(most));
        }
        self.drop_empty_arrivals();
    }
}
