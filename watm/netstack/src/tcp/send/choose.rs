//! The choice of what to send next: a probe, a retransmission, or new bytes.

use watm_core::Instant;

use super::outstanding::{Fate, Transmission};
use super::{Transmitter, Usage};
use crate::tcp::congestion::{INITIAL_SEGMENTS, IdleRestart, Sent};
use crate::tcp::sequence::Sequence;

/// The most payload bytes of one transmission, which is cut into segments when it leaves.
const MOST: usize = 64_000;

/// A range to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub start: Sequence,
    pub end: Sequence,
    /// True if it was sent before.
    pub again: bool,
    /// True if it probes a closed window.
    pub is_window_probe: bool,
    /// True if it probes for a wider path.
    pub widens: bool,
    /// True if it must report that the window was reduced (CWR of RFC 3168 section 6.1.2).
    pub reduced: bool,
    /// The most payload bytes of each of its segments.
    pub segment: usize,
}

impl Transmitter {
    /// Chooses the next range, of at most `most` segments. The caller sends it, and then calls
    /// [`sent`](Self::sent).
    pub(crate) fn choose(&mut self, most: usize, now: Instant) -> Option<Chosen> {
        let segment = self.segment();
        let most = (most * segment).min((MOST / segment).max(1) * segment);
        if let Some(probe) = self.choose_probe(now) {
            return Some(probe);
        }
        match self.outstanding.first_lost() {
            Some(lost) => self.choose_lost(*lost, most, now),
            None => self.choose_new(most, now),
        }
    }

    /// The time at which the pacing rate allows the next transmission, if one waits for it.
    pub(crate) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.congestion.pacing_rate()?;
        let until = self.pacer.waits_until(now)?;
        let segment = self.segment();
        let waits = match self.outstanding.first_lost() {
            Some(lost) => self.allowance() >= segment.min(lost.len()),
            None => self.sendable() > 0,
        };
        waits.then_some(until)
    }

    /// Records that a range was sent.
    pub(crate) fn sent(&mut self, chosen: &Chosen, now: Instant) {
        let bytes = chosen.start.until(chosen.end);
        let before = self.in_flight();
        let stamp = self.rate.stamp(before, before + bytes, now);
        if chosen.again {
            let lost = self.outstanding.lost();
            self.outstanding
                .sent_again(chosen.start, chosen.end, now, stamp);
            let unmarked = bytes.saturating_sub(lost - self.outstanding.lost());
            self.doubt_sent_again((chosen.start, chosen.end), unmarked);
            self.note_probe_repeated(chosen.start, now);
        } else {
            self.outstanding.push(Transmission {
                start: chosen.start,
                end: chosen.end,
                sent: now,
                stamp,
                fate: Fate::InFlight,
                again: false,
                segments: 0,
            });
            self.next = chosen.end;
            if chosen.reduced {
                self.reductions.reported(chosen.start);
            }
        }
        if chosen.start == self.una {
            self.waiting_since = now;
        }
        self.last_sent = now;
        self.blocked_since = None;
        self.urgent = false;
        self.report_sent(bytes, now);
    }

    fn report_sent(&mut self, bytes: usize, now: Instant) {
        let in_flight = self.in_flight();
        self.congestion.on_send(&Sent { now, in_flight });
        if let Some(rate) = self.congestion.pacing_rate() {
            let burst = INITIAL_SEGMENTS * self.segment();
            self.pacer.sent(bytes, rate, burst, now);
        }
        self.note_usage();
    }

    /// Records the use of the congestion window (RFC 7661 section 4.3).
    pub(super) fn note_usage(&mut self) {
        let flight = self.in_flight();
        let full = flight + self.segment() > self.congestion.window();
        let begins = !self.usage.until.is_after(self.una);
        if begins || full || (!self.usage.full && flight > self.usage.flight) {
            self.usage = Usage {
                until: self.next,
                flight,
                full,
            };
        }
    }

    fn restart(&mut self, now: Instant) {
        self.congestion.on_idle_restart(&IdleRestart {
            now,
            idle: now - self.last_sent,
            app_limited: self.rate.is_app_limited(),
        });
    }

    /// A retransmission, as far as the window and the rate allow, but one segment if it is urgent.
    /// A peer that has closed its window gets nothing else (RFC 9293 section 3.8.6.1).
    fn choose_lost(&mut self, lost: Transmission, most: usize, now: Instant) -> Option<Chosen> {
        let segment = self.segment();
        let closed = !self.window.end.is_after(self.una);
        let allowed = match (self.urgent, closed) {
            (true, true) => segment,
            (true, false) => self.allowance().max(segment),
            (false, true) => return None,
            (false, false) => self.allowance_now(now)?,
        };
        let len = self.cut(lost.len(), allowed.min(most))?;
        Some(Chosen {
            start: lost.start,
            end: lost.start.plus(len),
            again: true,
            is_window_probe: false,
            widens: false,
            reduced: false,
            segment,
        })
    }

    /// New bytes, as far as both windows and the rate allow.
    fn choose_new(&mut self, most: usize, now: Instant) -> Option<Chosen> {
        let sendable = self.sendable();
        if sendable == 0 {
            return None;
        }
        if self.outstanding.in_flight() == 0 && self.pacer.waits_until(now).is_none() {
            self.restart(now);
        }
        self.allowance_now(now)?;
        let len = match self.congestion.pacing_rate() {
            Some(_) => most.min(self.quantum()),
            None => most,
        };
        let probe = self.begin_width_probe(now);
        Some(Chosen {
            start: self.next,
            end: self.next.plus(probe.unwrap_or(len.min(sendable))),
            again: false,
            is_window_probe: false,
            widens: probe.is_some(),
            reduced: self.reductions.is_due(),
            segment: probe.unwrap_or(self.segment()),
        })
    }

    /// The bytes that leave at once at a pacing rate: full segments.
    fn quantum(&self) -> usize {
        let segment = self.segment();
        (self.congestion.send_quantum() / segment).max(1) * segment
    }

    /// The new bytes that may be sent, without regard to pacing. Small segments go only at the end
    /// of the queue, or if the peer's window is small (silly window avoidance, RFC 9293
    /// section 3.8.6.2.1).
    pub(super) fn sendable(&self) -> usize {
        if self.outstanding.is_full() {
            return 0;
        }
        let segment = self.segment();
        let unsent = self.unsent();
        let usable = self.next.until(self.window.end);
        let allowed = unsent.min(usable).min(self.allowance());
        // The FIN after the bytes may wait.
        if allowed >= self.next.until(self.queued_end) {
            return allowed;
        }
        let large = allowed == usable && allowed * 2 >= self.window.largest && allowed > 0;
        match allowed >= segment {
            true => allowed - allowed % segment,
            false if large => allowed,
            false => 0,
        }
    }

    /// The room of the congestion window.
    fn allowance(&self) -> usize {
        self.congestion.window().saturating_sub(self.in_flight())
    }

    /// The same, unless the pacing rate allows nothing now.
    fn allowance_now(&self, now: Instant) -> Option<usize> {
        let waits =
            self.congestion.pacing_rate().is_some() && self.pacer.waits_until(now).is_some();
        (!waits).then(|| self.allowance())
    }

    /// The first of `len` bytes that fit: all, or full segments.
    fn cut(&self, len: usize, allowed: usize) -> Option<usize> {
        if len <= allowed {
            return Some(len);
        }
        let segment = self.segment();
        (allowed >= segment).then(|| allowed - allowed % segment)
    }
}
