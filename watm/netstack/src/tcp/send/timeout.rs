//! The timers of the sending half: retransmission (RFC 6298), tail loss probes (RFC 8985
//! section 7), the reordering window (RFC 8985 section 6), and window probes (RFC 9293
//! section 3.8.6.1).

use core::time::Duration;

use watm_core::Instant;

use super::Transmitter;
use super::choose::Chosen;
use super::outstanding::Fate;
use super::undo::SpuriousTimeout;
use super::width::Width;
use crate::tcp::congestion::{Phase, Timeout};
use crate::tcp::sequence::Sequence;

/// The timeout beyond which its spread grows no further.
const MOST_SPREAD: Duration = Duration::from_secs(4);

/// The probe for lost segments at the end of a flight.
#[derive(Debug, Default)]
pub(super) struct TailProbe {
    /// The end of what was in flight when a probe was sent, until it is acknowledged, and true if
    /// the probe was a retransmission.
    sent: Option<(Sequence, bool)>,
    /// True if a probe is due.
    due: bool,
    /// The same for a probe of the peer's window.
    window_due: bool,
}

impl Transmitter {
    /// The time of the next timer.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let timers = [
            self.timeout_at(),
            self.tail_probe_at(),
            self.rack.due(),
            self.window_probe_at(),
            self.paced_until(now),
        ];
        timers.into_iter().flatten().min()
    }

    /// Handles the timers that are due.
    pub(crate) fn expire(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.rack.due()) {
            self.detect_losses(false, now);
        }
        if is_due(self.timeout_at()) {
            self.time_out(now);
        } else if is_due(self.tail_probe_at()) {
            self.tail_probe.due = true;
        }
        if is_due(self.window_probe_at()) {
            self.trips.back_off();
            self.tail_probe.window_due = true;
        }
    }

    /// Starts or stops waiting for the peer's window. Call it after everything that may leave has
    /// left.
    pub(crate) fn wait_for_window(&mut self, now: Instant) {
        let waits = self.outstanding.is_empty() && self.unsent() > 0 && self.sendable() == 0;
        if !waits {
            self.blocked_since = None;
            return;
        }
        self.blocked_since.get_or_insert(now);
        // The delivery of a window probe says nothing about the path's rate.
        self.rate.limit_by_application(0);
    }

    /// Returns true if it has something to send, and nothing that makes it go on. It is true only
    /// because of a bug.
    pub(crate) fn is_stuck(&self) -> bool {
        let waits = self.unsent() > 0 && self.outstanding.is_empty();
        let paced = self.congestion.pacing_rate().is_some() && self.sendable() > 0;
        waits && !paced && self.blocked_since.is_none()
    }

    /// The probe that is due: the first new byte for a closed window, new bytes, or else the last
    /// segment again.
    pub(super) fn choose_probe(&mut self, now: Instant) -> Option<Chosen> {
        if std::mem::take(&mut self.tail_probe.window_due) && self.unsent() > 0 {
            let usable = self.next.until(self.window.end);
            let probe = self.first_new(usable.clamp(1, self.segment()));
            return Some(Chosen {
                is_window_probe: usable == 0,
                ..probe
            });
        }
        if !std::mem::take(&mut self.tail_probe.due) {
            return None;
        }
        let usable = self.next.until(self.window.end).min(self.segment());
        self.tail_probe.sent = Some((self.next, false));
        let last = *self.outstanding.last()?;
        let probe = match usable.min(self.unsent()) {
            0 if last.fate != Fate::InFlight => return None,
            0 => {
                // The FIN goes with the last bytes.
                let fin = usize::from(self.ends_at(last.end));
                let rest = (last.len() - fin) % self.segment();
                let len = if rest == 0 { self.segment() } else { rest };
                Chosen {
                    start: last.end.minus((len + fin).min(last.len())),
                    end: last.end,
                    again: true,
                    is_window_probe: false,
                    widens: false,
                    reduced: false,
                    segment: self.segment(),
                }
            }
            len => self.first_new(len),
        };
        self.tail_probe.sent = Some((self.next.later(probe.end), probe.again));
        // The answer comes before the timeout then (RFC 8985 section 7.3).
        self.waiting_since = now;
        Some(probe)
    }

    /// Ends a tail loss probe that was answered (RFC 8985 section 7.4). Without a duplicate, the
    /// probe has repaired a loss, to which the window reacts.
    pub(super) fn end_tail_probe(&mut self, duplicate: bool, repeats: bool, now: Instant) {
        let Some((end, again)) = self.tail_probe.sent else {
            return;
        };
        if end.is_after(self.una) {
            return;
        }
        if !again || duplicate {
            self.tail_probe.sent = None;
        } else if self.una.is_after(end) {
            self.tail_probe.sent = None;
            self.repaired(now);
        } else if repeats {
            self.tail_probe.sent = None;
        }
    }

    /// Forgets a tail loss probe.
    pub(super) fn forget_tail_probe(&mut self) {
        self.tail_probe = TailProbe::default();
    }

    /// Reports a loss that is repaired already.
    fn repaired(&mut self, now: Instant) {
        if self.phase != Phase::Open {
            return;
        }
        let urgent = self.urgent;
        self.recover();
        self.urgent = urgent;
        self.recover = self.una;
        self.end_recovery(now);
    }

    fn first_new(&self, len: usize) -> Chosen {
        Chosen {
            start: self.next,
            end: self.next.plus(len.min(self.unsent())),
            again: false,
            is_window_probe: false,
            widens: false,
            reduced: false,
            segment: self.segment(),
        }
    }

    /// The time of the retransmission timeout.
    fn timeout_at(&self) -> Option<Instant> {
        let timeout = self.trips.timeout();
        let waits = !self.outstanding.is_empty();
        waits.then(|| self.waiting_since + timeout + self.spread(timeout))
    }

    /// The delay of a retransmission beyond its timeout: up to a quarter of the timeout, and a
    /// second. Without it, hundreds of flows that lost one burst would send the next in the same
    /// millisecond, lose it again, and wait twice as long each time.
    fn spread(&self, timeout: Duration) -> Duration {
        // The multiplier is the golden ratio's bits: close values are far apart in the product.
        let mixed = self.next.0.wrapping_mul(0x9E37_79B9) >> 24;
        timeout.min(MOST_SPREAD) * mixed / 1024
    }

    /// The time of a tail loss probe: the last segments may be lost, with nothing after them to
    /// reveal it. A lone segment waits for its timeout, because peers delay its acknowledgement.
    fn tail_probe_at(&self) -> Option<Instant> {
        let may = self.selective
            && self.phase == Phase::Open
            && self.outstanding.lost() == 0
            && self.rack.due().is_none()
            && self.tail_probe.sent.is_none()
            && !self.tail_probe.due
            && self.outstanding.in_flight() > self.segment();
        let after = self.trips.probe_after().filter(|_| may)?;
        Some(self.last_sent.max(self.waiting_since) + after)
    }

    fn window_probe_at(&self) -> Option<Instant> {
        let since = self.blocked_since?;
        let waits = self.outstanding.is_empty() && !self.tail_probe.window_due;
        waits.then(|| since + self.trips.timeout())
    }

    /// Handles a retransmission timeout (RFC 6298 section 5).
    fn time_out(&mut self, now: Instant) {
        self.waiting_since = now;
        if self.phase == Phase::Open && self.lose_width_probe() {
            return;
        }
        self.trips.back_off();
        self.trips.forget_least();
        self.forget_tail_probe();
        self.rack.set_due(None);
        self.duplicates = 0;
        // The peer has no room for it: it is probed (RFC 9293 section 3.8.6.1).
        let probes = !self.window.end.is_after(self.una);
        if !probes {
            self.report_timeout(now);
        }
        // The peer has discarded what it had beyond gaps (RFC 2018 section 8).
        let first = self.outstanding.first();
        let reneged = first.is_some_and(|sent| sent.fate == Fate::Received);
        let lost = self.outstanding.lost();
        self.outstanding.lose_all(reneged);
        self.urgent = true;
        if probes {
            self.forget_doubts();
        } else {
            self.rate.lose(self.outstanding.lost() - lost);
            self.narrow();
        }
    }

    fn report_timeout(&mut self, now: Instant) {
        let again = self.phase == Phase::Timeout;
        let first = self.outstanding.first();
        self.congestion.on_timeout(&Timeout {
            now,
            in_flight: self.in_flight(),
            in_a_row: if again {
                self.trips.timeouts().max(2)
            } else {
                1
            },
            total_delivered: self.rate.delivered(),
            app_limited: first.is_some_and(|sent| sent.stamp.app_limited),
            window_limited: self.usage.full,
        });
        self.reductions.lost();
        self.doubt = None;
        self.spurious = match again {
            // Nothing has arrived since an undo, so that it was wrong. On a path that became
            // shorter, each answer seems to come too soon for the retransmission.
            _ if self.undone_at == Some(self.una) => None,
            false => Some(SpuriousTimeout::Unanswered),
            // Late answers would say nothing about the timeout before this one.
            true if self.trips.timeouts() == 1 => None,
            true => self.spurious,
        };
        self.phase = Phase::Timeout;
        self.recover = self.next;
    }

    /// Shortens segments if long ones were unanswered several times: they may be too long for a
    /// router that does not report it (RFC 2923 section 2.1).
    fn narrow(&mut self) {
        let width = Width::after_silence(self.trips.timeouts(), self.path.is_ipv4);
        let segment = self.segment();
        let first = self.outstanding.first().map_or(0, |sent| sent.len());
        let is_long = first.min(segment) > self.path.segment_of(width);
        if is_long && width > self.path.width() {
            self.set_width(width);
        }
    }
}
