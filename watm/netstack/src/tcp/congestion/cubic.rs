//! CUBIC (RFC 9438), with a slow start that ends when round trips get longer (as in RFC 9406),
//! before queues overflow. A few losses without a queue do not shrink the window, because some
//! paths, such as radio links, lose packets without being full.
//!
//! A flow that does not fill its window reveals nothing about the path. Its acknowledgements do not
//! grow the window (RFC 7661 section 4.3), its round trips do not end slow start, and CUBIC's clock
//! pauses meanwhile (RFC 9438 section 5.8). A window that was not filled for minutes shrinks.
//!
//! The window is at least two segments, or one after a timeout, so that a flow can always send.

use core::time::Duration;

use watm_core::Instant;

use super::{
    Ack, Congestion, INITIAL_SEGMENTS, IdleRestart, Loss, Recovery, Sent, Start, Timeout, Undo,
};

/// The least window in segments, except after a timeout (RFC 5681 section 3.1).
const LEAST: usize = 2;
/// The window in segments below which longer round trips do not end slow start, and do not shrink
/// it: fewer segments make no queue worth avoiding, and measure too little (`hystart_low_window` of
/// Linux).
const LEAST_MEASURED: usize = 16;
/// The factor by which a window shrinks on a loss, and the resulting growth of a flow that is fair
/// to Reno's (RFC 9438 sections 4.6 and 4.3).
const BETA: f32 = 0.7;
const ALPHA: f32 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Segments per cubed second (RFC 9438 section 5).
const C: f32 = 0.4;
/// The bounds of the queueing delay: round trips that exceed the least by an eighth of it wait in a
/// queue, within these bounds (RFC 9406 section 4.3).
const LEAST_QUEUEING: Duration = Duration::from_millis(4);
const MOST_QUEUEING: Duration = Duration::from_millis(16);
/// The number of round trips of one window that reveal its queue.
const SAMPLES: u8 = 3;
/// The growth of the delivery rate with a larger window, on a path that is not full.
const GROWTH: f32 = 1.15;
/// The factor by which a larger window is tried at least, before a path counts as full: the growth
/// of conservative slow start in a round trip (RFC 9406 section 4.3, `CSS_GROWTH_DIVISOR`).
const LEAST_TRY: f32 = 1.25;
/// The window that slow start leaves, relative to the bytes that fill the path: the rest waits in
/// the queue.
const QUEUED: f32 = 1.25;
/// The tolerated loss without a queue: one in this many bytes delivered, and a few segments more.
const TOLERATED: usize = 50;
const TOLERATED_MORE: usize = 3;
/// The number of segments over which losses are counted.
const REMEMBERED: usize = 2000;
/// The time after which a window that was not filled shrinks (RFC 7661 section 4.4.3).
const NON_VALIDATED: Duration = Duration::from_secs(300);
/// The pacing rate, relative to a window for each round trip, in slow start and after it
/// (`tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio` of Linux).
const PACE_OF_SLOW_START: f32 = 2.0;
const PACE: f32 = 1.2;
/// The time of pacing whose bytes leave at once, and the bounds of their number.
const QUANTUM: Duration = Duration::from_millis(1);
const LEAST_QUANTUM: usize = 4;
const MOST_QUANTUM: usize = 64 << 10;

/// The state of the algorithm. See the module's documentation. Windows are in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Cubic {
    curve: Curve,
    /// The time of the last acknowledgement.
    acknowledged_at: Instant,
    /// The time when the window was last full, or shrank because it was not.
    validated_at: Instant,
    /// The smoothed round trip.
    smoothed: Duration,
    round: Round,
    /// Bytes recently delivered, and bytes recently lost.
    arrived: usize,
    lost: usize,
    episode: Option<Box<Episode>>,
    /// The deliveries after which another echo of congestion counts: once in a round trip.
    echo_counts_after: u64,
}

/// The window, and the curve along which it grows.
#[derive(Debug, Clone)]
struct Curve {
    segment: usize,
    window: usize,
    /// The slow start threshold: below it, the window doubles with each round trip.
    threshold: usize,
    /// The flat point of CUBIC's curve: its time in seconds after the epoch, and the window there.
    flat_at: f32,
    flat: f32,
    /// The window that Reno would have.
    reno: f32,
    /// The time when growth by CUBIC began, moved forward by the time in which the window was not
    /// filled.
    epoch: Option<Instant>,
    /// True while no loss has shrunk the window: slow start may go on.
    fresh: bool,
    /// True if slow start is suspended until all round trips of the window have been measured.
    suspended: bool,
    /// The highest delivery rate in a window's quickest round trip so far, in bytes per second.
    rate: f32,
    /// True if the last window delivered no more than earlier ones.
    stalled: bool,
    /// True if every round trip of a window waited in a queue.
    queues: bool,
}

/// The round trip in progress: it ends when the transmissions after its begin are acknowledged.
#[derive(Debug, Clone, Default)]
struct Round {
    /// The deliveries at its begin.
    until: u64,
    /// Its quickest measurement, and the number of measurements.
    quickest: Option<Measured>,
    samples: u8,
}

/// A measured round trip, and the bytes in flight when its segment was sent.
#[derive(Debug, Clone, Copy)]
struct Measured {
    took: Duration,
    flight: usize,
}

/// A recovery: the state to which it returns if it is spurious, and whether the window has shrunk.
#[derive(Debug, Clone)]
struct Episode {
    before: Curve,
    shrank: bool,
}

impl Cubic {
    pub(super) fn new(start: &Start) -> Self {
        Cubic {
            curve: Curve::new(start.segment),
            acknowledged_at: start.now,
            validated_at: start.now,
            smoothed: start.round_trip.unwrap_or(Duration::ZERO),
            round: Round::default(),
            arrived: 0,
            lost: 0,
            episode: None,
            echo_counts_after: 0,
        }
    }

    /// Shrinks a window that was not full for minutes (RFC 7661 section 4.4.3).
    fn validate(&mut self, now: Instant) {
        while now >= self.validated_at + NON_VALIDATED {
            self.validated_at = self.validated_at + NON_VALIDATED;
            self.curve.decay();
        }
    }

    /// Counts delivered bytes, for the share of lost ones.
    fn count_arrived(&mut self, bytes: usize) {
        self.arrived += bytes;
        if self.arrived > REMEMBERED * self.curve.segment {
            self.arrived /= 2;
            self.lost /= 2;
        }
    }

    /// Returns true if the losses show that the window is too large.
    fn is_congested(&self) -> bool {
        let tolerated = self.arrived / TOLERATED + TOLERATED_MORE * self.curve.segment;
        self.curve.queues || self.lost > tolerated
    }

    /// The recovery in progress, which begins now if there is none.
    fn episode(&mut self) -> &mut Episode {
        self.episode.get_or_insert_with(|| {
            Box::new(Episode {
                before: self.curve.clone(),
                shrank: false,
            })
        })
    }

    fn shrink_once(&mut self, used: usize) {
        let episode = self.episode();
        if !std::mem::replace(&mut episode.shrank, true) {
            self.curve.shrink(used);
        }
    }

    /// The part of the window that the flow uses: all of it if it is limited by it. Its unused part
    /// goes on a loss (RFC 7661 section 4.4.1).
    fn used(&self, limited: bool, flight: usize) -> usize {
        let initial = INITIAL_SEGMENTS * self.curve.segment;
        match limited {
            true => self.curve.window,
            false => self.curve.window.min(flight.max(initial)),
        }
    }

    /// Measures the round trip of an acknowledgement.
    fn measure(&mut self, ack: &Ack) {
        let (Some(took), Some(rate)) = (ack.round_trip, ack.rate) else {
            return;
        };
        let trip = Measured {
            took,
            flight: rate.sent_in_flight,
        };
        if rate.prior_delivered >= self.round.until {
            let waited = |trip: &Measured| trip.waited(ack.least);
            let quickest = self.round.quickest.as_ref();
            self.curve.queues = self.round.samples >= SAMPLES && quickest.is_some_and(waited);
            if let Some(quickest) = self.round.quickest {
                self.curve.end_round(&quickest, ack.least);
            }
            self.round = Round {
                until: ack.total_delivered,
                ..Round::default()
            };
        }
        let quickest = match self.round.quickest {
            Some(before) if before.took <= trip.took => before,
            _ => trip,
        };
        self.round.quickest = Some(quickest);
        self.round.samples = self.round.samples.saturating_add(1);
        let waited = quickest.waited(ack.least);
        self.curve.queues &= waited;
        if self.round.samples >= SAMPLES {
            self.curve.judge(&quickest, waited);
        }
    }

    /// Returns true if the window limits the flow. In slow start this begins at half a window,
    /// because the next round trip can use twice as much.
    fn is_limiting(&self, ack: &Ack) -> bool {
        let curve = &self.curve;
        let doubles = curve.window < curve.threshold && curve.window < 2 * ack.most_in_flight;
        ack.window_limited || doubles
    }
}

impl Congestion for Cubic {
    fn window(&self) -> usize {
        self.curve.window
    }

    fn pacing_rate(&self) -> Option<u64> {
        let ratio = match self.curve.window < self.curve.threshold / 2 {
            true => PACE_OF_SLOW_START,
            false => PACE,
        };
        let trip = self.smoothed.as_secs_f32();
        (trip > 0.0).then(|| (self.curve.window as f32 * ratio / trip) as u64)
    }

    fn send_quantum(&self) -> usize {
        let rate = self.pacing_rate().unwrap_or(u64::MAX);
        let quantum = u128::from(rate) * QUANTUM.as_nanos() / 1_000_000_000;
        let least = LEAST_QUANTUM * self.curve.segment;
        usize::try_from(quantum)
            .unwrap_or(MOST_QUANTUM)
            .clamp(least, MOST_QUANTUM.max(least))
    }

    fn set_segment(&mut self, segment: usize) {
        self.curve.set_segment(segment);
    }

    fn on_idle_restart(&mut self, restart: &IdleRestart) {
        self.validate(restart.now);
    }

    fn on_send(&mut self, sent: &Sent) {
        if sent.in_flight + self.curve.segment > self.curve.window {
            self.validated_at = sent.now;
        }
        self.validate(sent.now);
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.smoothed = ack.smoothed;
        self.measure(ack);
        self.count_arrived(ack.delivered);
        if ack.congestion_echoed && ack.total_delivered > self.echo_counts_after {
            // Once in a window (RFC 3168 section 6.1.2).
            self.echo_counts_after = ack.total_delivered + ack.in_flight as u64;
            let used = self.used(ack.window_limited, ack.most_in_flight);
            self.curve.shrink(used);
            return;
        }
        let idle = ack.now - std::mem::replace(&mut self.acknowledged_at, ack.now);
        if self.is_limiting(ack) {
            let shrank = self.episode.as_ref().is_some_and(|episode| episode.shrank);
            if !shrank || ack.phase == super::Phase::Timeout {
                self.curve.grow(ack.acknowledged, ack.smoothed, ack.now);
            }
        } else if let Some(epoch) = &mut self.curve.epoch {
            *epoch = *epoch + idle;
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.episode();
        self.lost += loss.bytes;
        if self.is_congested() {
            let used = self.used(loss.window_limited, loss.sent_in_flight);
            self.shrink_once(used);
        }
    }

    /// The window shrinks on a loss: see [`on_loss`](Congestion::on_loss).
    fn on_recovery(&mut self, _: &Recovery) {}

    fn on_recovery_end(&mut self, _: Instant) {
        self.episode = None;
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        if timeout.in_a_row == 1 {
            let used = self.used(timeout.window_limited, timeout.in_flight);
            self.shrink_once(used);
        }
        self.curve.window = self.curve.segment;
    }

    fn on_undo(&mut self, undo: &Undo) {
        self.lost = self.lost.saturating_sub(undo.not_lost);
        if let Some(episode) = self.episode.take() {
            self.curve.restore(episode.before);
        }
    }
}

impl Measured {
    /// Returns true if the segment waited in a queue, on a path whose least round trip is `least`
    /// (RFC 9406 section 4.3).
    fn waited(&self, least: Duration) -> bool {
        let queueing = (least / 8).clamp(LEAST_QUEUEING, MOST_QUEUEING);
        self.took > least + queueing
    }
}

impl Curve {
    fn new(segment: usize) -> Self {
        Curve {
            segment,
            window: INITIAL_SEGMENTS * segment,
            threshold: usize::MAX,
            flat_at: 0.0,
            flat: 0.0,
            reno: 0.0,
            epoch: None,
            fresh: true,
            suspended: false,
            rate: 0.0,
            stalled: false,
            queues: false,
        }
    }

    /// Changes the size of segments. The window keeps their number.
    fn set_segment(&mut self, segment: usize) {
        if segment == self.segment {
            return;
        }
        let ratio = segment as f32 / self.segment as f32;
        let scale = |bytes: usize| (bytes as f32 * ratio) as usize;
        self.window = scale(self.window).max(segment);
        if self.threshold != usize::MAX {
            self.threshold = scale(self.threshold);
        }
        self.flat *= ratio;
        self.segment = segment;
        self.epoch = None;
    }

    /// Halves a window that is not used, down to the initial one.
    fn decay(&mut self) {
        let initial = INITIAL_SEGMENTS * self.segment;
        if self.window > initial {
            self.threshold = self.threshold.max(self.window / 4 * 3);
            self.window = initial.max(self.window / 2);
            self.epoch = None;
        }
    }

    /// Grows a full window for `bytes` of it that were acknowledged.
    fn grow(&mut self, bytes: usize, smoothed: Duration, now: Instant) {
        if self.window < self.threshold {
            self.window = (self.window + bytes.min(self.window)).min(self.threshold);
            return;
        }
        let segment = self.segment as f32;
        let window = self.window as f32;
        let epoch = *self.epoch.get_or_insert_with(|| {
            if self.flat < window {
                self.flat = window;
            }
            self.flat_at = ((self.flat - window) / (C * segment)).cbrt();
            self.reno = window;
            now
        });
        let share = bytes as f32 / window;
        let alpha = if self.reno < self.flat { ALPHA } else { 1.0 };
        self.reno += alpha * segment * share;
        let ahead = (now - epoch + smoothed).as_secs_f32() - self.flat_at;
        let target = (C * segment * ahead.powi(3) + self.flat).clamp(window, 1.5 * window);
        self.window = (window + (target - window) * share).max(self.reno) as usize;
    }

    /// Shrinks the window after a loss, of which `used` bytes were used.
    fn shrink(&mut self, used: usize) {
        let window = used as f32;
        // A flow with a smaller window than before makes room for others (RFC 9438 section 4.7).
        self.flat = match window < self.flat {
            true => window * (1.0 + BETA) / 2.0,
            false => window,
        };
        self.window = ((window * BETA) as usize).max(LEAST * self.segment);
        self.threshold = self.window;
        self.epoch = None;
        self.fresh = false;
    }

    /// Returns to the state `before`, because the reason for shrinking was wrong.
    fn restore(&mut self, before: Curve) {
        if before.window > self.window {
            *self = before;
        }
    }

    /// Suspends slow start if a queue builds up, or resumes it if there is none.
    fn judge(&mut self, quickest: &Measured, waited: bool) {
        if !self.fresh {
            return;
        }
        if !waited {
            // The queue belonged to other flows, or was short-lived.
            self.threshold = usize::MAX;
            self.suspended = false;
        } else if self.window < self.threshold && self.is_measured_by(quickest) {
            // The other round trips of this window confirm or refute the queue.
            self.threshold = self.window;
            self.suspended = true;
        }
    }

    /// Returns true if a round trip was measured with much of the window in flight. Others reveal
    /// nothing about a full path.
    fn is_measured_by(&self, trip: &Measured) -> bool {
        // The window may have doubled twice since the segment was sent.
        self.window > LEAST_MEASURED * self.segment && trip.flight * 4 > self.window
    }

    /// Ends a suspended slow start, or resumes it, by `quickest`, the least of a window's round
    /// trips. A larger window delivers more bytes, unless the path is full. Then the window keeps
    /// the bytes that fill the path.
    fn end_round(&mut self, quickest: &Measured, least: Duration) {
        let took = quickest.took.as_secs_f32().max(1e-6);
        let rate = quickest.flight as f32 / took;
        let grew = rate / self.rate;
        self.rate = self.rate.max(rate);
        if !std::mem::take(&mut self.suspended) || !self.is_measured_by(quickest) {
            return;
        }
        let first = !std::mem::replace(&mut self.stalled, grew <= GROWTH);
        if grew > GROWTH || first {
            // The same growth as before may deliver as much more again.
            let more = grew.clamp(LEAST_TRY, 2.0);
            self.threshold = (self.window as f32 * more) as usize;
            return;
        }
        let kept = LEAST_MEASURED * self.segment;
        let fills = quickest.flight as f32 * least.as_secs_f32() / took;
        self.window = self.window.min(kept.max((fills * QUEUED) as usize));
        self.threshold = self.window;
        self.epoch = None;
    }
}
