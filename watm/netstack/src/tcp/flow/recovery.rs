//! What the peer has of what was sent, what is lost of it, and when that is sent again.

use smoltcp::iface::PollResult;
use watm_core::Instant;

use super::super::segment::{Segment, Sequence};
use super::super::width::Width;
use super::super::wire::Repeats;
use super::{Context, Flow, TIMEOUT, smoltcp_time};

/// So many segments that come after a gap say that it is lost, and not just late (RFC 6675).
const REORDERED: usize = 3;

/// What was lost, until everything that was on its way then is acknowledged.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The end of that.
    end: Sequence,
    /// What the peer does not have before this is lost.
    lost: Sequence,
    /// Before this it was sent again.
    again: Sequence,
    /// Since when: the first gap that was filled, and the end of all that had been sent then.
    since: Option<(Sequence, Sequence)>,
    /// A segment may go however much is on its way.
    urgent: bool,
    /// The window grows meanwhile.
    grows: bool,
    /// The window was made smaller for it.
    shrank: bool,
}

impl Recovery {
    /// Of everything between what is acknowledged and what was sent.
    fn whole(acknowledged: Sequence, sent_end: Sequence) -> Recovery {
        Recovery {
            end: sent_end,
            lost: sent_end,
            again: acknowledged,
            since: None,
            urgent: true,
            grows: false,
            shrank: false,
        }
    }
}

impl Flow {
    /// What was sent and is not acknowledged, by its first byte; of handshakes smoltcp takes care.
    pub(super) fn unanswered(&self) -> Option<Sequence> {
        if self.flags.connecting || self.is_half_open() {
            return None;
        }
        let from = self.acknowledged;
        let sent = self.log.sent_end.is_some_and(|end| end.is_after(from));
        sent.then_some(from)
    }

    /// What an acknowledgement says of what is on its way.
    pub(super) fn learn(&mut self, segment: &Segment<'_>, now: Instant) {
        let (Some(acknowledged), Some(sent_end)) = (segment.acknowledges(), self.log.sent_end)
        else {
            return;
        };
        if acknowledged.is_after(sent_end) || self.acknowledged.is_after(acknowledged) {
            return;
        }
        let gained = self.acknowledged.until(acknowledged);
        let limited = self.acknowledged.until(self.queued_end) >= self.congestion.window() / 4 * 3;
        self.acknowledged = acknowledged;
        let repeats = gained == 0 && segment.is_bare() && segment.repr.window_len == self.window;
        self.duplicates = if repeats { self.duplicates + 1 } else { 0 };
        self.log.received.forget_before(acknowledged);
        for (start, end) in segment.received() {
            if start.is_after(acknowledged) && end.is_after(start) && !end.is_after(sent_end) {
                self.log.received.insert(start, end);
            }
        }
        let over = |recovery: &Recovery| !recovery.end.is_after(acknowledged);
        if self.recovery.as_deref().is_some_and(over) {
            self.recovery = None;
        }
        let received = &self.log.received;
        let has = |end: Sequence| !end.is_after(acknowledged) || received.reaches(end);
        if let Some(trip) = self.trips.measure(has, now) {
            self.congestion.measured(trip, self.trips.least(), sent_end);
        }
        self.congestion.arrived(gained);
        self.find_lost(gained > 0, sent_end);
        let grows = self.recovery.as_ref().is_none_or(|recovery| recovery.grows);
        if gained > 0 && limited && grows {
            self.congestion.grow(gained, self.trips.smoothed(), now);
        }
    }

    /// Look for what more than a few segments have passed by. `moved`: more is acknowledged than was.
    fn find_lost(&mut self, moved: bool, sent_end: Sequence) {
        let start = self.acknowledged;
        let segment = self.full_segment();
        let lost = match (self.log.received.end(), &self.recovery) {
            (Some(passed), _) => passed.minus(REORDERED * segment),
            // Without knowledge of gaps there is one more if the last did not fill everything
            // (RFC 6582).
            (None, Some(recovery)) if moved && !self.selective => {
                recovery.end.earlier(start.plus(segment))
            }
            (None, None) if self.duplicates == REORDERED => sent_end.earlier(start.plus(segment)),
            (None, _) => return,
        };
        if !lost.is_after(start) {
            return;
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
        if more > 0 && self.congestion.lose(more) && !recovery.shrank {
            recovery.shrank = true;
            recovery.grows = false;
            self.congestion.shrink();
        }
        // What was sent after the first gap was filled has come, and that has not.
        let again = |(first, end): (Sequence, Sequence)| first == start && lost.is_after(end);
        if recovery.since.is_some_and(again) {
            recovery.again = start;
            recovery.urgent = true;
        }
    }

    /// What is on its way is sent again, if there is anything. What comes twice of it says nothing
    /// of losses.
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

    /// Bytes that are lost and were not sent again yet.
    fn missing(&self) -> usize {
        self.recovery.as_ref().map_or(0, |recovery| {
            let from = recovery.again.later(self.acknowledged);
            self.log.received.missing(from, recovery.lost)
        })
    }

    /// How many more bytes may be on their way.
    fn allowance(&self) -> usize {
        let there = self.log.received.bytes() + self.missing();
        let on_its_way = self
            .acknowledged
            .until(self.queued_end)
            .saturating_sub(there);
        self.congestion.window().saturating_sub(on_its_way)
    }

    /// How many of them may be new: gaps come first.
    pub(super) fn allowance_of_new(&self) -> usize {
        self.allowance().saturating_sub(self.missing())
    }

    /// Fill gaps, as far as the window allows.
    pub(super) fn send_again(&mut self, left: &mut usize, cx: &mut Context<'_, '_>) {
        let allowance = self.allowance();
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
        recovery.again = to;
        if from == self.acknowledged {
            recovery.since = Some((from, end));
        }
        *left = left.saturating_sub(from.until(to).div_ceil(segment));
        self.log.repeats = Repeats::Between(from, to);
        self.rewind(end, cx);
        self.log.repeats = Repeats::Nothing;
        self.trips.sent_again(from, to, cx.io.now);
    }

    /// Have smoltcp write everything again that is not acknowledged, up to `end`. It does so when
    /// its own timer is due, so that is the time that it is shown.
    fn rewind(&mut self, end: Sequence, cx: &mut Context<'_, '_>) {
        let now = smoltcp_time(cx.io.now);
        self.log.repeated = None;
        // The time of a peer that does not answer is not over with it.
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

    /// Nothing was acknowledged in time. What the peer has of the rest it may have given up
    /// (RFC 2018 section 8).
    pub(super) fn time_out(&mut self, now: Instant) {
        let Some((from, end)) = self.unanswered().zip(self.log.sent_end) else {
            return;
        };
        let again = self
            .recovery
            .as_ref()
            .is_some_and(|recovery| recovery.shrank);
        self.congestion.timed_out(!again);
        self.trips.back_off();
        if from.until(end) >= self.full_segment() {
            let is_ipv4 = self.key.source.is_ipv4();
            let width = Width::after_silence(self.trips.timeouts(), is_ipv4);
            self.width = self.width.max(width);
        }
        self.trips.sent_again(from, end, now);
        self.log.received.clear();
        self.recovery = Some(Box::new(Recovery {
            grows: true,
            shrank: true,
            ..Recovery::whole(from, end)
        }));
    }
}
