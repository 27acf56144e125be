//! Loss detection, and the recovery that follows (RFC 8985, RFC 6675, RFC 6582).

use watm_core::Instant;

use super::Transmitter;
use super::outstanding::{Outstanding, Transmission};
use super::rack::REORDERED;
use crate::tcp::congestion::{Congestion, Loss, Phase, Rate, Recovery};
use crate::tcp::sequence::Sequence;

impl Transmitter {
    /// Looks for losses. `advanced`: new bytes were acknowledged.
    pub(super) fn detect_losses(&mut self, advanced: bool, now: Instant) {
        let before = self.rate.lost();
        let window = self.congestion.window();
        match self.selective {
            true => self.detect_by_time(now),
            false => self.detect_by_duplicates(advanced, now),
        }
        let lost = usize::try_from(self.rate.lost() - before).unwrap_or(usize::MAX);
        if lost > 0 {
            self.doubt_lost(lost);
            if self.congestion.window() < window {
                self.reductions.lost();
            }
            self.recover();
        }
    }

    /// Begins fast recovery, unless a recovery is in progress.
    pub(super) fn recover(&mut self) {
        self.urgent = true;
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Recovery;
        self.recover = self.next;
        self.congestion.on_recovery(&Recovery {
            total_delivered: self.rate.delivered(),
        });
    }

    /// Ends a recovery that is complete.
    pub(super) fn end_recovery(&mut self, now: Instant) {
        if self.phase == Phase::Open || self.recover.is_after(self.una) {
            return;
        }
        self.phase = Phase::Open;
        self.duplicates = 0;
        self.spurious = None;
        self.rack.recovered();
        self.congestion.on_recovery_end(now);
    }

    /// Marks what was overtaken for longer than the reordering window (RFC 8985 section 6.2 step
    /// 5), or by more segments than the path reorders (RFC 6675 section 5).
    fn detect_by_time(&mut self, now: Instant) {
        self.rack.set_due(None);
        if self.outstanding.received() == 0 && self.phase == Phase::Open {
            return;
        }
        let segment = self.segment();
        let certain =
            self.phase != Phase::Open || self.outstanding.has_received_segments(REORDERED);
        let window = self.rack.window(&self.trips, certain);
        let tolerance = self.rack.tolerance(segment, self.congestion.window() / 2);
        let passed = self.outstanding.received_from(tolerance);
        let probe = self.width_probe();
        let mut due = None;
        let Transmitter {
            outstanding, rack, ..
        } = self;
        let lost = |sent: &Transmission| {
            let overtaken = passed.is_some_and(|passed| !sent.end.is_after(passed));
            match rack.lost_at(sent, window) {
                _ if overtaken && !sent.again => true,
                Some(at) if at > now => {
                    due = due.max(Some(at));
                    false
                }
                at => at.is_some(),
            }
        };
        let full = self.usage.full;
        let probe_lost = mark_lost(
            outstanding,
            lost,
            probe,
            (&mut self.rate, &mut *self.congestion),
            full,
            now,
        );
        self.rack.set_due(due);
        self.urgent |= probe_lost;
    }

    /// Marks the first segment after three duplicate acknowledgements, and after each one that
    /// shows another gap (RFC 6582).
    fn detect_by_duplicates(&mut self, advanced: bool, now: Instant) {
        let begins = self.phase == Phase::Open && self.duplicates == usize::from(REORDERED);
        let partial = self.phase == Phase::Recovery && advanced;
        if !begins && !partial {
            return;
        }
        if self.lose_width_probe() {
            return;
        }
        let segment = self.segment();
        if let Some(sent) = self.outstanding.lose_first(segment) {
            let full = self.usage.full;
            report_lost(&sent, (&mut self.rate, &mut *self.congestion), full, now);
        }
    }
}

/// Marks transmissions as lost, and reports each of them but the probe of a wider path, whose first
/// number is given: it may be too long (RFC 4821 section 7.6.2). Returns true if the probe is lost.
fn mark_lost(
    outstanding: &mut Outstanding,
    mut lost: impl FnMut(&Transmission) -> bool,
    probe: Option<Sequence>,
    (rate, congestion): (&mut Rate, &mut dyn Congestion),
    window_limited: bool,
    now: Instant,
) -> bool {
    let mut probe_lost = false;
    outstanding.lose(|sent| {
        let is_lost = lost(sent);
        let is_probe = probe == Some(sent.start);
        if is_lost && !is_probe {
            report_lost(sent, (rate, congestion), window_limited, now);
        }
        probe_lost |= is_lost && is_probe;
        is_lost
    });
    probe_lost
}

fn report_lost(
    sent: &Transmission,
    (rate, congestion): (&mut Rate, &mut dyn Congestion),
    window_limited: bool,
    now: Instant,
) {
    rate.lose(sent.len());
    congestion.on_loss(&Loss {
        now,
        bytes: sent.len(),
        sent_in_flight: sent.stamp.in_flight as usize,
        lost_since_sent: rate.lost() - sent.stamp.lost.min(rate.lost()),
        total_delivered: rate.delivered(),
        app_limited: sent.stamp.app_limited,
        window_limited,
    });
}
