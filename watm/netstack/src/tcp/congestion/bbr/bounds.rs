//! The bounds that losses set (section 5.5.10): a long-term one on the bytes in flight, from
//! probes, and short-term ones on them and on the rate, which the next probe lifts. A spurious
//! recovery takes them back (section 5.5.11).

use watm_core::Instant;

use super::arithmetic::part;
use super::{BETA, Bbr, LEAST_SEGMENTS, Loss, Sample, State, TOLERATED_LOSS, Timeout, UNBOUNDED};

/// The part of the long-term bound that stays free for other flows, in percent (`Headroom`,
/// section 2.8).
const HEADROOM: u64 = 15;
/// The number of standard deviations by which losses may exceed the tolerated share. Few segments
/// lose more by chance, on a path that loses less.
const DEVIATIONS: u64 = 2;

/// The bounds. Those that are not set are [`UNBOUNDED`].
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// The bytes in flight that the path bears (`inflight_longterm`).
    pub long: u64,
    /// The bytes in flight, and the rate, since the last probe (`inflight_shortterm`,
    /// `bw_shortterm`).
    pub short: u64,
    pub rate: u64,
}

/// The state before the first loss of a recovery (section 5.5.11.1).
#[derive(Debug, Clone)]
pub(super) struct Before {
    bounds: Bounds,
    /// The state that a loss ended: Startup or Up.
    ended: Option<State>,
    /// True if the recovery is over. The peer may still report that it was spurious.
    over: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            long: UNBOUNDED,
            short: UNBOUNDED,
            rate: UNBOUNDED,
        }
    }
}

impl Bounds {
    /// Lifts the short-term bounds (`ResetShortTermModel`).
    pub(super) fn reset_short_term(&mut self) {
        self.short = UNBOUNDED;
        self.rate = UNBOUNDED;
    }

    /// Returns to bounds that are at least those of `before`.
    fn rise_to(&mut self, before: &Bounds) {
        self.long = self.long.max(before.long);
        self.short = self.short.max(before.short);
        self.rate = self.rate.max(before.rate);
    }
}

/// Returns the bytes in flight at which the losses became too many, within a run of segments that
/// were sent at once (`InflightAtLoss`, section 5.5.10.2).
fn inflight_at_loss(loss: &Loss) -> u64 {
    let bytes = loss.bytes as u64;
    let inflight_before = (loss.sent_in_flight as u64).saturating_sub(bytes);
    let lost_before = loss.lost_since_sent.saturating_sub(bytes);
    let tolerated = part(inflight_before, TOLERATED_LOSS).saturating_sub(lost_before);
    let prefix = tolerated.saturating_mul(100) / (100 - TOLERATED_LOSS);
    inflight_before.saturating_add(prefix)
}

impl Bbr {
    /// The long-term bound, less the room that other flows find (`InflightWithHeadroom`). After a
    /// probe that lost too much, this is as much as CUBIC leaves, unless the path would be idle.
    pub(super) fn bound_with_headroom(&self) -> u64 {
        let long = self.bounds.long;
        if long == UNBOUNDED {
            return UNBOUNDED;
        }
        let usual = long.saturating_sub(part(long, HEADROOM).max(self.segment));
        let left = match self.cycle.lost_much() {
            true => part(long, BETA).max(self.product()).min(usual),
            false => usual,
        };
        left.max(LEAST_SEGMENTS.saturating_mul(self.segment))
    }

    /// Records a loss, and the state before the first one of a recovery (`NoteLoss`,
    /// `SaveStateUponLoss`).
    pub(super) fn note_loss(&mut self, total_delivered: u64) {
        self.latest.note_loss(total_delivered);
        self.save();
    }

    fn save(&mut self) {
        self.before.take_if(|before| before.over);
        if self.before.is_none() {
            self.save_window();
            self.before = Some(Box::new(Before {
                bounds: self.bounds.clone(),
                ended: None,
                over: false,
            }));
        }
    }

    /// Notes the end of the recovery. It can still be undone, until another one begins.
    pub(super) fn end_recovery(&mut self) {
        self.recovers = false;
        if let Some(before) = &mut self.before {
            before.over = true;
        }
    }

    /// Notes that a loss ends the present state, so that an undo returns to it. A recovery that is
    /// over is not changed: an echo is no loss.
    pub(super) fn note_undo_state(&mut self) {
        if let Some(before) = self.before.as_mut().filter(|before| !before.over) {
            before.ended = Some(self.state);
        }
    }

    /// Returns true if losses show that too much was in flight (`IsInflightTooHigh`,
    /// section 5.5.10.2): more than the tolerated share, and than chance adds to it. Without
    /// selective acknowledgements, a round trip reveals one loss at most.
    pub(super) fn is_too_high(&self, lost: u64, sent_in_flight: u64) -> bool {
        if !self.selective {
            return lost > 0;
        }
        let tolerated = part(sent_in_flight, TOLERATED_LOSS);
        let deviation = tolerated.saturating_mul(self.segment).isqrt();
        lost > tolerated.saturating_add(DEVIATIONS * deviation)
    }

    /// Ends a probe whose losses show that too much was in flight (`HandleLostPacket`).
    pub(super) fn check_probe_loss(&mut self, loss: &Loss) {
        let too_high = self.is_too_high(loss.lost_since_sent, loss.sent_in_flight as u64);
        if self.cycle.is_sampled() && too_high {
            let inflight = (!loss.app_limited).then(|| inflight_at_loss(loss));
            self.end_high_probe(inflight, loss.now, loss.total_delivered);
        }
    }

    /// Ends a probe that a timeout ends: everything in flight was lost.
    pub(super) fn check_probe_timeout(&mut self, timeout: &Timeout) {
        if self.cycle.is_sampled() {
            let inflight = (!timeout.app_limited).then_some(0);
            self.end_high_probe(inflight, timeout.now, timeout.total_delivered);
        }
    }

    /// Ends a probe whose segments met congestion.
    pub(super) fn handle_too_high(&mut self, sample: &Sample) {
        let inflight = (!sample.app_limited).then_some(sample.sent_in_flight);
        self.end_high_probe(inflight, sample.now, sample.total_delivered);
    }

    /// Lowers the long-term bound to `inflight`, unless the application limited the probe, and ends
    /// Up (`HandleInflightTooHigh`).
    fn end_high_probe(&mut self, inflight: Option<u64>, now: Instant, total_delivered: u64) {
        self.cycle.note_too_high();
        if let Some(inflight) = inflight {
            self.bounds.long = inflight.max(part(self.target(), BETA));
        }
        if self.state == State::Up {
            self.note_undo_state();
            self.go_down(now, total_delivered);
        }
    }

    /// Lowers the short-term bounds at the end of a round trip with losses that show congestion
    /// (`AdaptLowerBoundsFromCongestion`, section 5.5.10.3).
    pub(super) fn adapt_short_term(&mut self) {
        let lost = self.latest.take_lost() && !self.state.accelerates();
        if lost && (self.waits_for_others() || self.loses_much()) {
            self.lower_short_term(BETA);
        }
    }

    /// Returns true if the last round trip waited in a queue. In Down this is the queue of the
    /// probe, and the rate is low on purpose.
    fn waits_for_others(&self) -> bool {
        self.state != State::Down && self.latest.waited(self.round_trips.least())
    }

    fn loses_much(&self) -> bool {
        self.is_too_high(self.latest.lost_bytes(), self.latest.delivered())
    }

    /// Lowers the short-term bounds to `percent` of them, but not below what the last round trip
    /// delivered (`InitLowerBounds`, `LossLowerBounds`). The rate stays if that is not known, as in
    /// a long recovery of a peer without SACK.
    pub(super) fn lower_short_term(&mut self, percent: u64) {
        if self.bounds.rate == UNBOUNDED {
            self.bounds.rate = self.bandwidth.most();
        }
        if self.bounds.short == UNBOUNDED {
            self.bounds.short = self.window_before_recovery();
        }
        if self.latest.rate() > 0 {
            self.bounds.rate = part(self.bounds.rate, percent).max(self.latest.rate());
        }
        self.bounds.short = part(self.bounds.short, percent).max(self.latest.delivered());
    }

    /// Returns to the state before a recovery that turned out to be spurious
    /// (`HandleSpuriousLossDetection`, section 5.5.11.2).
    pub(super) fn restore(&mut self, before: &Before) {
        self.latest.forget_losses();
        self.pipe.reset(0);
        self.bounds.rise_to(&before.bounds);
        let probes_round_trip = self.state == State::ProbeRoundTrip;
        match before.ended {
            Some(State::Startup) => {
                self.pipe.set_was_full(false);
                if !probes_round_trip {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state != State::Up && !probes_round_trip => {
                self.refill(self.rounds.delivered());
            }
            _ => {}
        }
    }
}
