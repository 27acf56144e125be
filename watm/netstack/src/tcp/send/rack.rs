//! RACK (RFC 8985 section 6): what was sent before something that has arrived, and has not arrived
//! a little later, is lost.

use core::time::Duration;

use watm_core::Instant;

use super::outstanding::Transmission;
use super::round_trip::RoundTrip;
use crate::tcp::sequence::Sequence;

/// The number of segments after a gap before it counts as lost: at first (RFC 6675 section 5), and
/// at most on a path that reorders (`tcp_max_reordering` of Linux).
pub(super) const REORDERED: u16 = 3;
const MOST_REORDERED: u16 = 300;
/// The least reordering window: the resolution of timers.
const LEAST_WINDOW: Duration = Duration::from_millis(1);
/// The recoveries for which a wider reordering window stays (RFC 8985 section 6.2,
/// `RACK.reo_wnd_persist`).
const PERSISTS: u8 = 16;
/// The widest one, in quarters of a round trip. It is bounded by the round trip anyhow.
const MOST_QUARTERS: u8 = 64;

/// The most recently sent of what has arrived, and the reordering of the path.
#[derive(Debug)]
pub(super) struct Rack {
    /// When it was sent, its end, and its round trip; `None` at first.
    newest: Option<(Instant, Sequence, Duration)>,
    /// The end of the furthest range that has arrived (RACK.fack).
    furthest: Option<Sequence>,
    /// True if something arrived out of order (RACK.reordering_seen).
    reorders: bool,
    /// The number of segments by which it was overtaken, at most.
    degree: u16,
    /// The reordering window, in quarters of the least round trip (RACK.reo_wnd_mult), the
    /// recoveries for which it stays, and the end of the round trip in which it grew.
    quarters: u8,
    persists: u8,
    grew_until: Option<Sequence>,
    /// The time when the next loss is certain.
    due: Option<Instant>,
}

impl Default for Rack {
    fn default() -> Self {
        Rack {
            newest: None,
            furthest: None,
            reorders: false,
            degree: REORDERED,
            quarters: 1,
            persists: 0,
            grew_until: None,
            due: None,
        }
    }
}

impl Rack {
    /// The time when the next loss is certain.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn set_due(&mut self, due: Option<Instant>) {
        self.due = due;
    }

    /// The end of the furthest range that has arrived.
    pub(super) fn furthest(&self) -> Option<Sequence> {
        self.furthest
    }

    /// Records an arrival (steps 1 to 3 of section 6.2). `furthest` is that before the
    /// acknowledgement, and `original` is true if a retransmission did not cause it.
    pub(super) fn arrived(
        &mut self,
        sent: &Transmission,
        original: bool,
        (furthest, segment): (Option<Sequence>, usize),
        now: Instant,
    ) {
        if let Some(furthest) = furthest
            && original
            && furthest.is_after(sent.end)
        {
            self.reordered_by(sent.start.until(furthest).div_ceil(segment));
        }
        self.furthest = Some(match self.furthest {
            Some(furthest) => furthest.later(sent.end),
            None => sent.end,
        });
        if sent.again && original {
            return;
        }
        let newer = self
            .newest
            .is_none_or(|(at, end, _)| sent.sent > at || sent.sent == at && sent.end.is_after(end));
        if newer {
            self.newest = Some((sent.sent, sent.end, now - sent.sent));
        }
    }

    /// Records that a segment was overtaken by others, this many with itself.
    pub(super) fn reordered_by(&mut self, segments: usize) {
        let segments = u16::try_from(segments).unwrap_or(MOST_REORDERED);
        self.reorders = true;
        self.degree = self.degree.max(segments).min(MOST_REORDERED);
    }

    /// Records that a retransmission was needless (RFC 2883): the window grows once in a round
    /// trip, which ends when `next` is acknowledged.
    pub(super) fn needless(&mut self, una: Sequence, next: Sequence) {
        self.persists = PERSISTS;
        self.passed(una);
        if self.grew_until.is_none() {
            self.grew_until = Some(next);
            self.quarters = (self.quarters + 1).min(MOST_QUARTERS);
        }
    }

    /// Records that all before `una` is acknowledged: it may end the round trip in which the window
    /// grew.
    pub(super) fn passed(&mut self, una: Sequence) {
        self.grew_until.take_if(|until| !until.is_after(una));
    }

    /// Records that a recovery took place because of too many reordered segments.
    pub(super) fn needless_recovery(&mut self) {
        self.reorders = true;
        self.degree = (self.degree * 2).min(MOST_REORDERED);
    }

    /// Records the end of a recovery.
    pub(super) fn recovered(&mut self) {
        self.persists = self.persists.saturating_sub(1);
        if self.persists == 0 {
            self.quarters = 1;
        }
    }

    /// The number of bytes after a gap before it counts as lost whatever the time: fewer than
    /// `most`, so that a loss is found soon on a path that reorders too.
    pub(super) fn tolerance(&self, segment: usize, most: usize) -> usize {
        let least = usize::from(REORDERED) * segment;
        (usize::from(self.degree) * segment).min(most).max(least)
    }

    /// The reordering window (step 4 of section 6.2). `certain` is true in a recovery, or if enough
    /// segments have arrived beyond gaps.
    pub(super) fn window(&self, trips: &RoundTrip, certain: bool) -> Duration {
        if !self.reorders && certain {
            return Duration::ZERO;
        }
        let quarters = trips.least() / 4 * u32::from(self.quarters);
        quarters.min(trips.smoothed()).max(LEAST_WINDOW)
    }

    /// The time when `sent` counts as lost, if something sent later has arrived.
    pub(super) fn lost_at(&self, sent: &Transmission, window: Duration) -> Option<Instant> {
        let (at, end, trip) = self.newest?;
        // A retransmission and what has arrived cannot be of the same moment.
        let before = sent.sent < at || sent.sent == at && !sent.again && end.is_after(sent.end);
        before.then(|| sent.sent + trip + window)
    }
}
