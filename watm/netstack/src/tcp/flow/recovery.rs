//! Loss recovery: detects lost segments from acknowledgements and timeouts, and retransmits them.

use smoltcp::iface::PollResult;
use watm_core::Instant;

use super::super::segment::{Segment, Sequence};
use super::super::width::Width;
use super::super::wire::Repeats;
use super::undo::{REORDERED, Timeout};
use super::{Context, Flow, TIMEOUT, smoltcp_time};

/// A recovery: it lasts until everything in flight at its start is acknowledged.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The end of the bytes in flight at its start.
    pub(super) end: Sequence,
    /// The end of the loss: unreceived bytes before it are lost.
    pub(super) lost: Sequence,
    /// The end of the retransmissions in order.
    again: Sequence,
    /// The end of all retransmissions, some repeated, and the time when they began.
    pub(super) sent_again: Sequence,
    pub(super) sent_again_since: Option<Instant>,
    /// The first filled gap, and the end of all bytes sent at that time.
    since: Option<(Sequence, Sequence)>,
    /// True if a segment may go regardless of the bytes in flight.
    urgent: bool,
    /// True if the window grows meanwhile.
    pub(super) grows: bool,
    /// True if the window was reduced for this loss.
    pub(super) shrank: bool,
    /// The timeout that it began with, while that may have been premature.
    pub(super) timeout: Option<Timeout>,
}

impl Recovery {
    /// Makes a recovery of everything between the acknowledged and the sent end.
    fn whole(acknowledged: Sequence, sent_end: Sequence) -> Recovery {
        Recovery {
            end: sent_end,
            lost: sent_end,
            again: acknowledged,
            sent_again: acknowledged,
            sent_again_since: None,
            since: None,
            urgent: true,
            grows: false,
            shrank: false,
            timeout: None,
        }
    }
}

impl Flow {
    /// The first unacknowledged byte, if any. smoltcp takes care of handshakes.
    pub(super) fn unanswered(&self) -> Option<Sequence> {
        if self.flags.connecting || self.is_half_open() {
            return None;
        }
        let from = self.acknowledged;
        let sent = self.log.sent_end.is_some_and(|end| end.is_after(from));
        sent.then_some(from)
    }

    /// Process the information in an acknowledgement about the bytes in flight.
    pub(super) fn learn(&mut self, segment: &Segment<'_>, now: Instant) {
        let (Some(acknowledged), Some(sent_end)) = (segment.acknowledges(), self.log.sent_end)
        else {
            return;
        };
        if acknowledged.is_after(sent_end) || self.acknowledged.is_after(acknowledged) {
            return;
        }
        let gained = self.acknowledged.until(acknowledged);
        self.note_arrival(self.acknowledged, acknowledged, now);
        self.acknowledged = acknowledged;
        // A selective peer reports the bytes that it has beyond a gap. Without SACK, a repeated
        // acknowledgement answers a duplicate (RFC 6675 section 2, RFC 2883).
        let repeats = gained == 0
            && !self.selective
            && segment.is_bare()
            && segment.repr.window_len == self.window;
        self.duplicates = if repeats { self.duplicates + 1 } else { 0 };
        self.log.received.forget_before(acknowledged);
        for (start, end) in segment.received() {
            if !end.is_after(start) || end.is_after(sent_end) {
                continue;
            }
            if start.is_after(acknowledged) {
                self.note_arrival(start, end, now);
                self.log.received.insert(start, end);
            } else {
                self.note_duplicate(start, end);
            }
        }
        self.undo_timeout();
        let over = |recovery: &Recovery| !recovery.end.is_after(acknowledged);
        if self.recovery.as_deref().is_some_and(over) {
            self.recovery = None;
        }
        let received = &self.log.received;
        let has = |end: Sequence| !end.is_after(acknowledged) || received.reaches(end);
        if let Some(trip) = self.trips.measure(has, now) {
            self.congestion.measured(trip, self.trips.least(), sent_end);
        }
        self.find_lost(gained > 0, sent_end);
        if gained > 0 {
            self.probed = None;
            let may_grow = self.recovery.as_ref().is_none_or(|recovery| recovery.grows);
            let smoothed = self.trips.smoothed();
            self.congestion
                .acknowledged(gained, may_grow, smoothed, now);
        }
    }

    /// Look for segments that more than a few others have overtaken. `moved`: new bytes are
    /// acknowledged.
    fn find_lost(&mut self, moved: bool, sent_end: Sequence) {
        let start = self.acknowledged;
        let segment = self.full_segment();
        let lost = match (self.log.received.end(), &self.recovery) {
            // Two round trips have passed since the rest was sent.
            (Some(passed), _) if self.probed == Some(passed) => passed,
            (Some(passed), _) => passed.minus(self.tolerance()),
            // Without SACK there is one more gap if the last retransmission did not fill everything
            // (RFC 6582).
            (None, Some(recovery)) if moved && !self.selective => {
                recovery.end.earlier(start.plus(segment))
            }
            (None, None) if self.duplicates == usize::from(REORDERED) => {
                sent_end.earlier(start.plus(segment))
            }
            (None, _) => return,
        };
        if !lost.is_after(start) {
            return;
        }
        if self.recovery.is_none() {
            self.settle_doubt();
        }
        let recovery = self.recovery.get_or_insert_with(|| {
            Box::new(Recovery {
                lost: start,
                grows: true,
                ..Recovery::whole(start, sent_end)
            })
        });
        let more = self.log.received.missing(recovery.lost.later(start), lost);
        recovery.lost = recovery.lost.later(lost);
        if more > 0 {
            self.mark_lost(more, start);
        }
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        // Segments sent after the first retransmission have arrived, and the retransmission has
        // not.
        let again = |(first, end): (Sequence, Sequence)| first == start && lost.is_after(end);
        if recovery.since.is_some_and(again) {
            recovery.again = start;
            recovery.urgent = true;
        }
    }

    /// Send everything in flight again. Returns true if there is anything. Duplicates among it are
    /// no sign of loss.
    pub(super) fn send_all_again(&mut self) -> bool {
        let Some((from, end)) = self.unanswered().zip(self.log.sent_end) else {
            return false;
        };
        self.recovery = Some(Box::new(Recovery {
            shrank: true,
            ..Recovery::whole(from, end)
        }));
        true
    }

    /// Counts bytes after `from` as lost, and shrinks the window if this shows that the path is
    /// full, once in a recovery.
    fn mark_lost(&mut self, bytes: usize, from: Sequence) {
        self.doubt(bytes, from);
        let congested = self.congestion.lose(bytes);
        if let Some(recovery) = &mut self.recovery
            && congested
            && !recovery.shrank
        {
            recovery.shrank = true;
            recovery.grows = false;
            self.congestion.shrink();
        }
    }

    /// The lost bytes that were not retransmitted yet.
    fn missing(&self) -> usize {
        self.recovery.as_ref().map_or(0, |recovery| {
            let from = recovery.again.later(self.acknowledged);
            self.log.received.missing(from, recovery.lost)
        })
    }

    /// The bytes in flight: sent, and neither lost nor known to be received.
    pub(super) fn in_flight(&self) -> usize {
        let sent_end = self.log.sent_end.unwrap_or(self.acknowledged);
        let gone = self.log.received.bytes() + self.missing();
        self.acknowledged.until(sent_end).saturating_sub(gone)
    }

    /// The bytes that may be taken from the application: the room of the window after filling gaps.
    pub(super) fn allowance_of_new(&self) -> usize {
        let queued = self.acknowledged.until(self.queued_end);
        let unreceived = queued.saturating_sub(self.log.received.bytes());
        self.congestion.window().saturating_sub(unreceived)
    }

    /// Fill gaps, as far as the window allows.
    pub(super) fn send_again(&mut self, left: &mut usize, cx: &mut Context<'_, '_>) {
        // Bytes that wait for the peer's window are not in flight.
        let allowance = self.congestion.window().saturating_sub(self.in_flight());
        let segment = self.full_segment();
        let (Some(recovery), Some(end)) = (&mut self.recovery, self.log.sent_end) else {
            return;
        };
        let from = recovery.again.later(self.acknowledged);
        let most = match recovery.urgent {
            true => allowance.max(segment),
            false => allowance,
        };
        if !recovery.lost.is_after(from) || most < segment {
            return;
        }
        let to = self
            .log
            .received
            .after_missing(from, most.min(*left * segment));
        let to = to.earlier(recovery.lost);
        recovery.urgent = false;
        if from == self.acknowledged {
            recovery.since = Some((from, end));
        }
        *left = left.saturating_sub(from.until(to).div_ceil(segment));
        let to = self.send_between(from, to, end, cx);
        self.doubt_sent_again(to, end);
        if let Some(recovery) = &mut self.recovery {
            recovery.again = to;
            recovery.sent_again = recovery.sent_again.later(to);
            recovery.sent_again_since.get_or_insert(cx.io.now);
        }
    }

    /// The time of a tail loss probe: the last segments may be lost, with nothing behind them to
    /// reveal it. A lone segment waits for its timeout, because peers delay its acknowledgement.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        let recovers = |recovery: &Recovery| recovery.timeout.is_none() && self.missing() == 0;
        let has_gap = self.log.received.end().is_some();
        let may = self.selective
            && self.recovery.as_deref().is_none_or(recovers)
            && self.probed.is_none()
            && (has_gap || self.in_flight() > self.full_segment());
        self.trips.probe_at().filter(|_| may)
    }

    /// Sends the last segment again (RFC 8985 section 7.3). Once the peer has it, all bytes that it
    /// lacks are lost. If the peer has bytes beyond a gap, the gaps are lost already, and their
    /// retransmissions are lost too.
    pub(super) fn probe(&mut self, left: &mut usize, cx: &mut Context<'_, '_>) {
        let Some(end) = self.log.sent_end else {
            return;
        };
        let passed = self.log.received.end();
        self.probed = Some(passed.unwrap_or(end));
        if passed.is_some() {
            self.find_lost(false, end);
            if let Some(recovery) = &mut self.recovery {
                recovery.again = self.acknowledged;
                recovery.urgent = true;
            }
            self.send_again(left, cx);
        } else {
            self.send_between(end.minus(self.full_segment()), end, end, cx);
        }
    }

    /// Retransmits the bytes in this range that the peer lacks, out of all that end at `end`.
    /// Returns the end of the last segment.
    fn send_between(
        &mut self,
        from: Sequence,
        to: Sequence,
        end: Sequence,
        cx: &mut Context<'_, '_>,
    ) -> Sequence {
        self.log.repeats = Repeats::Between(from, to);
        self.log.sent_again = None;
        self.rewind(end, cx);
        self.log.repeats = Repeats::Nothing;
        let to = self.log.sent_again.map_or(to, |end| to.later(end));
        self.trips.sent_again(from, to, cx.io.now);
        to
    }

    /// Make smoltcp write all unacknowledged bytes again, up to `end`. It does so when its own
    /// timer is due, so that it is shown that time.
    fn rewind(&mut self, end: Sequence, cx: &mut Context<'_, '_>) {
        let now = smoltcp_time(cx.io.now);
        self.log.repeated = None;
        // The timeout of a peer that does not answer must not end with it.
        self.socket_mut().set_timeout(None);
        // An acknowledgement may be due before.
        for _ in 0..3 {
            let due = cx.interface.poll_at(now, &self.sockets);
            let Some(due) = due.filter(|_| self.log.repeated.is_none()) else {
                break;
            };
            if self.poll_egress(due.max(now), cx) == PollResult::None {
                break;
            }
        }
        while self.log.repeated.is_some_and(|at| end.is_after(at))
            && self.poll_egress(now, cx) != PollResult::None
        {}
        self.socket_mut().set_timeout(Some(TIMEOUT.into()));
    }

    /// Handle a timeout. The peer may have discarded bytes beyond gaps (RFC 2018 section 8).
    pub(super) fn time_out(&mut self, now: Instant) {
        let Some((from, end)) = self.unanswered().zip(self.log.sent_end) else {
            return;
        };
        let received = std::mem::take(&mut self.log.received);
        let earlier = self.recovery.take();
        let again = earlier.as_ref().is_some_and(|recovery| recovery.shrank);
        let sent_again = earlier
            .as_ref()
            .map_or(from, |recovery| recovery.sent_again);
        let mut timeout = earlier
            .and_then(|recovery| recovery.timeout)
            .unwrap_or_else(|| Timeout::new(&self.congestion, received, self.width));
        self.doubt = None;
        self.congestion.timed_out(!again);
        self.trips.back_off();
        if from.until(end) >= self.full_segment() {
            self.narrow(&mut timeout);
        }
        self.trips.sent_again(from, end, now);
        self.recovery = Some(Box::new(Recovery {
            grows: true,
            shrank: true,
            sent_again,
            timeout: Some(timeout),
            ..Recovery::whole(from, end)
        }));
    }

    /// Shortens segments if full ones were unanswered several times.
    fn narrow(&mut self, timeout: &mut Timeout) {
        let is_ipv4 = self.key.source.is_ipv4();
        let width = Width::after_silence(self.trips.timeouts(), is_ipv4);
        if width > self.width {
            self.width = width;
            timeout.narrowed(width);
        }
    }
}
