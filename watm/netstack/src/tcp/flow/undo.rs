//! Undoes the effects of a loss or a timeout that turns out to be wrong, because packets were late or reordered.
//!
//! [`recovery`](super::recovery) reports the bytes that it marks as lost, those that it retransmits, and those that
//! arrive.

use watm_core::Instant;

use super::super::cwnd::Congestion;
use super::super::scoreboard::Scoreboard;
use super::super::segment::Sequence;
use super::super::width::Width;
use super::Flow;

/// The number of segments after a gap before it counts as lost: at first (RFC 6675 section 5), and at most on a path
/// that reorders (`tcp_max_reordering` of Linux).
pub(super) const REORDERED: u16 = 3;
const MOST_REORDERED: u16 = 300;

/// Bytes that were marked as lost and may not be, and the state before.
#[derive(Debug)]
pub(super) struct Doubt {
    congestion: Congestion,
    /// The bytes that are not known to have arrived without a retransmission.
    lost: usize,
    /// The range that was retransmitted.
    from: Sequence,
    to: Sequence,
    /// The end of all bytes sent then. Once the peer has acknowledged it, it has reported all its duplicates.
    told_by: Sequence,
}

/// A timeout that may have been premature, and the state before.
#[derive(Debug)]
pub(super) struct Timeout {
    congestion: Congestion,
    /// The bytes that the peer had beyond gaps.
    received: Scoreboard,
    /// The segment width before, and the reduced width, if it was reduced since.
    width: Width,
    narrowed: Option<Width>,
}

impl Timeout {
    /// Records the state of a flow before it times out.
    pub(super) fn new(congestion: &Congestion, received: Scoreboard, width: Width) -> Timeout {
        Timeout {
            congestion: congestion.clone(),
            received,
            width,
            narrowed: None,
        }
    }

    /// Records that segments are reduced to this width.
    pub(super) fn narrowed(&mut self, width: Width) {
        self.narrowed = Some(width);
    }
}

impl Flow {
    /// Checks whether bytes up to `acknowledged` arrived that were not retransmitted after a timeout. If so, the
    /// timeout was premature (RFC 5682), unless the peer had them before it. In both cases the path carries segments of
    /// the width before.
    pub(super) fn undo_timeout(&mut self) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        let Some(timeout) = &recovery.timeout else {
            return;
        };
        let arrived = self.acknowledged.earlier(recovery.end);
        if !arrived.is_after(recovery.sent_again) {
            return;
        }
        // A router may have reported another MTU meanwhile.
        if timeout.narrowed == Some(self.width) {
            self.width = timeout.width;
        }
        let is_premature = timeout.received.missing(recovery.sent_again, arrived) > 0;
        if is_premature {
            self.congestion.restore(&timeout.congestion);
            self.recovery = None;
        } else {
            recovery.timeout = None;
        }
    }

    /// Records that `bytes` after `from` were marked as lost, before the window shrinks for them.
    pub(super) fn doubt(&mut self, bytes: usize, from: Sequence) {
        let doubt = self.doubt.get_or_insert_with(|| {
            Box::new(Doubt {
                congestion: self.congestion.clone(),
                lost: 0,
                from,
                to: from,
                told_by: self.log.sent_end.unwrap_or(from),
            })
        });
        doubt.lost += bytes;
    }

    /// Records that everything before `to` was retransmitted, with `sent_end` as the end of all bytes sent.
    pub(super) fn doubt_sent_again(&mut self, to: Sequence, sent_end: Sequence) {
        if let Some(doubt) = &mut self.doubt {
            doubt.to = doubt.to.later(to);
            doubt.told_by = sent_end;
        }
    }

    /// Settles doubts about which no more reports can follow.
    pub(super) fn settle_doubt(&mut self) {
        let acknowledged = self.acknowledged;
        self.doubt
            .take_if(|doubt| acknowledged.is_after(doubt.told_by));
    }

    /// Records bytes that arrived, before the scoreboard does. If they fill a gap without a retransmission, or too soon
    /// after one, they were reordered on the path.
    pub(super) fn note_arrival(&mut self, start: Sequence, end: Sequence, now: Instant) {
        let Some(passed) = self.log.received.end() else {
            return;
        };
        let segment = self.full_segment();
        let soon = self.trips.least() / 4 * 3;
        let (again, lost) = match &self.recovery {
            Some(recovery) => {
                let since = recovery.sent_again_since.unwrap_or(now);
                let again = match now < since + soon {
                    true => self.acknowledged,
                    false => recovery.sent_again,
                };
                (again, recovery.lost)
            }
            None => (self.acknowledged, self.acknowledged),
        };
        let from = start.later(again).later(self.acknowledged);
        let to = end.earlier(passed);
        if self.log.received.missing(from, to) == 0 {
            return;
        }
        let first = self.log.received.after_missing(from, 1).minus(1);
        let segments = first.until(passed).div_ceil(segment);
        let segments = u16::try_from(segments).unwrap_or(MOST_REORDERED);
        self.reordering = self.reordering.max(segments).min(MOST_REORDERED);
        let marked = self.log.received.missing(from, to.earlier(lost));
        self.not_lost(marked);
    }

    /// Records bytes that the peer received twice (RFC 2883).
    pub(super) fn note_duplicate(&mut self, start: Sequence, end: Sequence) {
        let Some(doubt) = &self.doubt else {
            return;
        };
        let twice = start.later(doubt.from).until(end.earlier(doubt.to));
        if twice > 0 && self.not_lost(twice) {
            self.reordering = (self.reordering * 2).min(MOST_REORDERED);
        }
    }

    /// The bytes after a gap before it counts as lost: fewer than those in flight, so that a loss is found without a
    /// timeout on a path that reorders too.
    pub(super) fn tolerance(&self) -> usize {
        let half = self.congestion.window() / 2;
        let segment = self.full_segment();
        let least = usize::from(REORDERED) * segment;
        (usize::from(self.reordering) * segment)
            .min(half)
            .max(least)
    }

    /// Undoes the loss of these bytes. Returns true if they were the last of all that were marked as lost, which undoes
    /// the changes of the loss.
    fn not_lost(&mut self, bytes: usize) -> bool {
        self.congestion.not_lost(bytes);
        let Some(doubt) = &mut self.doubt else {
            return false;
        };
        doubt.lost = doubt.lost.saturating_sub(bytes);
        if doubt.lost > 0 {
            return false;
        }
        self.congestion.restore(&doubt.congestion);
        self.doubt = None;
        if let Some(recovery) = &mut self.recovery {
            recovery.shrank = false;
            recovery.grows = true;
        }
        true
    }
}
