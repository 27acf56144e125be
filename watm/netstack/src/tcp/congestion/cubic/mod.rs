//! CUBIC (RFC 9438) with HyStart++ (RFC 9406): slow start becomes conservative when round trips get
//! longer, before queues overflow. A few losses without a queue (`queue`) do not shrink the window,
//! because some paths, such as radio links, lose packets without being full.
//!
//! A flow that does not fill its window reveals nothing about the path. Its acknowledgements do not
//! grow the window (RFC 7661 section 4.3), its round trips do not end slow start, and CUBIC's clock
//! pauses meanwhile (RFC 9438 section 5.8). A window that was not filled for minutes shrinks.
//!
//! The window is at least two segments, or one after a timeout, so that a flow can always send.

mod queue;

use core::time::Duration;

use watm_core::Instant;

use self::queue::Queue;
use super::queueing::waited;
use super::{
    Ack, Congestion, IdleRestart, Loss, Phase, Recovery, Sent, Start, Timeout, Undo, initial_window,
};

/// The least window in segments, except after a timeout (RFC 5681 section 3.1).
const LEAST: usize = 2;
/// The window in segments below which longer round trips do not end slow start: fewer segments make
/// no queue worth avoiding, and measure too little (`hystart_low_window` of Linux).
const LEAST_MEASURED: usize = 16;
/// The factor by which a window shrinks on a loss, and the resulting growth of a flow that is fair
/// to Reno's (RFC 9438 sections 4.6 and 4.3).
const BETA: f32 = 0.7;
const ALPHA: f32 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Segments per cubed second (RFC 9438 section 5).
const C: f32 = 0.4;
/// The measurements that tell the least round trip of a round, and of one that is over (RFC 9406
/// section 4.3, `N_RTT_SAMPLE`).
const SAMPLES: u8 = 8;
const SAMPLES_AT_THE_END: u8 = 3;
/// The growth of conservative slow start relative to slow start, and its length in rounds (RFC 9406
/// section 4.3, `CSS_GROWTH_DIVISOR` and `CSS_ROUNDS`).
const CONSERVATIVE_DIVISOR: usize = 4;
const CONSERVATIVE_ROUNDS: u8 = 5;
/// The growth of the round trip in conservative slow start that ends it at once: all that the
/// window grew by waits in the queue.
const FULL: f32 = 1.75;
/// The tolerated loss without a queue: one in this many bytes delivered, and a few segments more.
/// Their number doubles over the first 75 segments delivered: a path that loses 1 % may lose six of
/// them by chance.
const TOLERATED: usize = 50;
const TOLERATED_MORE: usize = 3;
/// The segments beyond the tolerated share that still count after the window shrank. If all did, a
/// few losses too many would shrink it in every round trip until they are forgotten, which takes
/// the longer the smaller it gets.
const STILL_COUNTED: usize = 2;
/// The number of segments over which losses are counted.
const REMEMBERED: usize = 2000;
/// The time after which a window that was not filled shrinks (RFC 7661 section 4.4.3).
const NON_VALIDATED: Duration = Duration::from_secs(300);
/// The pacing rates relative to a window for each round trip: after a pause, and in slow start,
/// which doubles the rate (`tcp_pacing_ca_ratio` and `tcp_pacing_ss_ratio` of Linux).
const PACE: f32 = 1.2;
const PACE_OF_SLOW_START: f32 = 2.0;
/// The segments that leave at once while the flow is paced.
const QUANTUM: usize = 16;
/// The longest burst that is not paced, in segments: many peers acknowledge 64 KiB at once.
const UNPACED_BURST: usize = 64;

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
    paced: Paced,
    round: Round,
    queue: Queue,
    /// Bytes recently delivered, and bytes recently lost.
    arrived: usize,
    lost: usize,
    episode: Option<Box<Episode>>,
}

/// The reason to pace the flow. Without one, the acknowledgements pace it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Paced {
    No,
    /// A pause, until the first acknowledgement.
    Pause,
    /// Growth by many segments at once, until what was in flight then is delivered.
    Growth {
        until: u64,
    },
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
    /// The window that Reno would have, and the used part of the window before it shrank
    /// (`cwnd_prior`).
    reno: f32,
    prior: f32,
    /// The time when growth by CUBIC began, moved forward by the time in which the window was not
    /// filled.
    epoch: Option<Instant>,
    /// Conservative slow start, while it lasts.
    conservative: Option<Conservative>,
}

/// Conservative slow start (RFC 9406): the least round trip at its begin, and the rounds since.
#[derive(Debug, Clone, Copy)]
struct Conservative {
    baseline: Duration,
    rounds: u8,
}

/// The round trip in progress: it ends when the transmissions after its begin are acknowledged.
#[derive(Debug, Clone, Default)]
struct Round {
    /// The deliveries at its begin.
    until: u64,
    /// Its quickest measurement, and the number of measurements.
    quickest: Option<Measured>,
    samples: u8,
    /// The least round trip of the last round that was measured.
    last: Option<Duration>,
}

/// A measured round trip, and the bytes in flight when its segment was sent.
#[derive(Debug, Clone, Copy)]
struct Measured {
    took: Duration,
    flight: usize,
}

/// The reaction to losses and echoes of congestion in one window of data, at most one reduction
/// (RFC 3168 section 6.1.2). It lasts as long as the recovery, or for a round trip after an echo.
#[derive(Debug, Clone)]
struct Episode {
    /// The state to which it returns if the losses are spurious. An echo shrinks this one too.
    before: Curve,
    /// True if the window has shrunk, and true if an echo is among the reasons.
    shrank: bool,
    echoed: bool,
    /// The total of delivered bytes at which it ends, unless a recovery is in progress.
    until: u64,
    /// True if it is over. The peer may still report that it was spurious.
    over: bool,
}

impl Cubic {
    pub(super) fn new(start: &Start) -> Self {
        Cubic {
            curve: Curve::new(start),
            acknowledged_at: start.now,
            validated_at: start.now,
            smoothed: start.round_trip.unwrap_or(Duration::ZERO),
            paced: Paced::No,
            round: Round::default(),
            queue: Queue::default(),
            arrived: 0,
            lost: 0,
            episode: None,
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

    /// Returns true if the losses show that the window is too large. `flight` bytes were in flight
    /// when the last lost segment was sent.
    fn is_congested(&self, flight: usize) -> bool {
        let few = TOLERATED_MORE * self.curve.segment;
        let more = few + few.min(2 * self.tolerated());
        let full = self.queue.holds_some_of(flight) && !self.curve.grows_fast();
        full || self.lost > self.tolerated() + more
    }

    /// The lost bytes that are tolerated without a queue, apart from a few segments.
    fn tolerated(&self) -> usize {
        self.arrived / TOLERATED
    }

    /// The episode in progress, which begins now if there is none.
    fn episode(&mut self) -> &mut Episode {
        self.episode.take_if(|episode| episode.over);
        self.episode.get_or_insert_with(|| {
            Box::new(Episode {
                before: self.curve.clone(),
                shrank: false,
                echoed: false,
                until: 0,
                over: false,
            })
        })
    }

    fn shrink_once(&mut self, used: usize, total_delivered: u64) {
        let episode = self.episode();
        if !std::mem::replace(&mut episode.shrank, true) {
            self.curve.shrink(used);
            self.queue.shrank(total_delivered);
            let counted = self.tolerated() + STILL_COUNTED * self.curve.segment;
            self.lost = self.lost.min(counted);
        }
    }

    /// The part of the window that the flow uses: all of it if it is limited by it. Its unused part
    /// goes on a loss (RFC 7661 section 4.4.1).
    fn used(&self, limited: bool, flight: usize) -> usize {
        let initial = initial_window(self.curve.segment);
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
            self.end_round(ack);
        }
        let quickest = match self.round.quickest {
            Some(before) if before.took <= trip.took => before,
            _ => trip,
        };
        self.round.quickest = Some(quickest);
        self.round.samples = self.round.samples.saturating_add(1);
        self.queue.measure(took, &rate, ack);
        if self.round.samples >= SAMPLES {
            self.curve.judge(&quickest, self.round.last);
        }
    }

    /// Begins another round, and judges the one before.
    fn end_round(&mut self, ack: &Ack) {
        let Round {
            quickest,
            samples,
            last,
            ..
        } = self.round;
        let quickest = quickest.filter(|_| samples >= SAMPLES_AT_THE_END);
        let was_conservative = self.curve.conservative.is_some();
        if let Some(quickest) = quickest {
            self.curve.judge(&quickest, last);
        }
        if was_conservative {
            self.curve.end_round();
        }
        self.round = Round {
            until: ack.total_delivered,
            last: quickest.map(|trip| trip.took).or(last),
            ..Round::default()
        };
    }

    /// Shrinks the window because of an echo of congestion, unless losses in the same window of
    /// data did.
    fn heed_echo(&mut self, ack: &Ack) {
        let used = self.used(ack.window_limited, ack.most_in_flight);
        self.shrink_once(used, ack.total_delivered);
        let episode = self.episode();
        if !episode.echoed {
            episode.until = ack.total_delivered + ack.in_flight as u64;
        }
        self.keep_shrunk();
    }

    /// Makes the shrinking last, even if the losses are spurious.
    fn keep_shrunk(&mut self) {
        let used = self.curve.prior as usize;
        if let Some(episode) = &mut self.episode
            && !std::mem::replace(&mut episode.echoed, true)
        {
            episode.before.shrink(used);
        }
    }

    /// Ends the episode once a round trip has passed, unless a recovery is in progress.
    fn expire_episode(&mut self, ack: &Ack) {
        if let Some(episode) = &mut self.episode
            && ack.phase == Phase::Open
        {
            episode.over |= ack.total_delivered > episode.until;
        }
    }

    /// Grows the window. In slow start, one acknowledgement may allow a burst, for instance if it
    /// fills a gap. The burst is paced (RFC 9406 section 4.2 bounds unpaced growth alone).
    fn grow(&mut self, ack: &Ack) {
        let before = self.curve.window;
        let starts = before < self.curve.threshold;
        self.curve.grow(ack.acknowledged, ack.smoothed, ack.now);
        if starts && self.is_burst(self.curve.window - before) {
            let until = ack.total_delivered + ack.in_flight as u64;
            self.paced = Paced::Growth { until };
        }
    }

    fn is_burst(&self, bytes: usize) -> bool {
        bytes > UNPACED_BURST * self.curve.segment
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
        let pace = match self.paced {
            Paced::No => return None,
            Paced::Pause => PACE,
            Paced::Growth { .. } => PACE_OF_SLOW_START,
        };
        let trip = Some(self.smoothed.as_secs_f32()).filter(|trip| *trip > 0.0)?;
        Some((self.curve.window as f32 * pace / trip) as u64)
    }

    fn send_quantum(&self) -> usize {
        QUANTUM * self.curve.segment
    }

    fn set_segment(&mut self, segment: usize) {
        self.curve.set_segment(segment);
    }

    fn on_idle_restart(&mut self, restart: &IdleRestart) {
        self.validate(restart.now);
        let is_burst = self.is_burst(self.curve.window);
        if self.paced == Paced::No && is_burst && restart.idle >= self.smoothed {
            self.paced = Paced::Pause;
        }
    }

    fn on_send(&mut self, sent: &Sent) {
        if sent.in_flight + self.curve.segment > self.curve.window {
            self.validated_at = sent.now;
        }
        self.validate(sent.now);
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.smoothed = ack.smoothed;
        self.paced = match self.paced {
            Paced::Growth { until } if ack.total_delivered < until => self.paced,
            _ => Paced::No,
        };
        self.measure(ack);
        self.count_arrived(ack.delivered);
        self.expire_episode(ack);
        if ack.congestion_echoed {
            self.heed_echo(ack);
            return;
        }
        let idle = ack.now - std::mem::replace(&mut self.acknowledged_at, ack.now);
        if self.is_limiting(ack) {
            let shrinks = |episode: &Episode| episode.shrank && !episode.over;
            let shrinks = self.episode.as_deref().is_some_and(shrinks);
            if !shrinks || ack.phase == Phase::Timeout {
                self.grow(ack);
            }
        } else if let Some(epoch) = &mut self.curve.epoch {
            *epoch = *epoch + idle;
        }
    }

    fn on_repeated_echo(&mut self) {
        self.keep_shrunk();
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.episode();
        self.lost += loss.bytes;
        if self.is_congested(loss.sent_in_flight) {
            let used = self.used(loss.window_limited, loss.sent_in_flight);
            self.shrink_once(used, loss.total_delivered);
        }
    }

    /// The window shrinks on a loss: see [`on_loss`](Congestion::on_loss).
    fn on_recovery(&mut self, _: &Recovery) {}

    fn on_recovery_end(&mut self, _: Instant) {
        if let Some(episode) = &mut self.episode {
            episode.over = true;
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        if timeout.in_a_row == 1 {
            let used = self.used(timeout.window_limited, timeout.in_flight);
            self.shrink_once(used, timeout.total_delivered);
        }
        self.curve.time_out();
    }

    fn on_undo(&mut self, undo: &Undo) {
        self.lost = self.lost.saturating_sub(undo.not_lost);
        if let Some(episode) = self.episode.take() {
            self.curve.restore(episode.before);
        }
    }
}

impl Curve {
    fn new(start: &Start) -> Self {
        let window = match start.lost_handshake {
            true => start.segment,
            false => initial_window(start.segment),
        };
        Curve {
            segment: start.segment,
            window,
            threshold: usize::MAX,
            flat_at: 0.0,
            flat: 0.0,
            reno: 0.0,
            prior: 0.0,
            epoch: None,
            conservative: None,
        }
    }

    /// Changes the size of segments. The window keeps their number, but larger ones do not
    /// make it grow (`tcp_mtup_probe_success` of Linux).
    fn set_segment(&mut self, segment: usize) {
        if segment == self.segment {
            return;
        }
        let ratio = segment as f32 / self.segment as f32;
        let scale = |bytes: usize| (bytes as f32 * ratio) as usize;
        self.window = scale(self.window).min(self.window).max(segment);
        if self.threshold != usize::MAX {
            self.threshold = scale(self.threshold);
        }
        self.flat *= ratio;
        self.prior *= ratio;
        self.segment = segment;
        self.epoch = None;
    }

    /// Halves a window that is not used, down to the initial one.
    fn decay(&mut self) {
        let initial = initial_window(self.segment);
        if self.window > initial {
            self.threshold = self.threshold.max(self.window / 4 * 3);
            self.window = initial.max(self.window / 2);
            self.epoch = None;
        }
    }

    /// Grows a full window for `bytes` of it that were acknowledged.
    fn grow(&mut self, bytes: usize, smoothed: Duration, now: Instant) {
        if self.window < self.threshold {
            let divisor = match self.conservative {
                Some(_) => CONSERVATIVE_DIVISOR,
                None => 1,
            };
            let more = bytes.min(self.window) / divisor;
            self.window = (self.window + more).min(self.threshold);
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
        let alpha = if self.reno < self.prior { ALPHA } else { 1.0 };
        self.reno += alpha * segment * share;
        let ahead = (now - epoch + smoothed).as_secs_f32() - self.flat_at;
        let target = (C * segment * ahead.powi(3) + self.flat).clamp(window, 1.5 * window);
        self.window = (window + (target - window) * share).max(self.reno) as usize;
    }

    /// Shrinks the window after a loss, of which `used` bytes were used.
    fn shrink(&mut self, used: usize) {
        let window = used as f32;
        self.prior = window;
        // A flow with a smaller window than before makes room for others (RFC 9438 section 4.7).
        self.flat = match window < self.flat {
            true => window * (1.0 + BETA) / 2.0,
            false => window,
        };
        self.window = ((window * BETA) as usize).max(LEAST * self.segment);
        self.threshold = self.window;
        self.epoch = None;
        self.conservative = None;
    }

    /// Shrinks the window after a timeout. Its growth begins anew where congestion avoidance begins
    /// (RFC 9438 section 4.8).
    fn time_out(&mut self) {
        self.window = self.segment;
        self.flat = 0.0;
        self.epoch = None;
    }

    /// Returns to the state `before`, because the reason for shrinking was wrong. Segments keep
    /// their present size.
    fn restore(&mut self, before: Curve) {
        if before.window > self.window {
            let segment = std::mem::replace(self, before).segment;
            self.set_segment(segment);
        }
    }

    /// Makes slow start conservative if round trips get longer than in the last round, or quick
    /// again if they do not stay so (RFC 9406 section 4.2).
    fn judge(&mut self, quickest: &Measured, last: Option<Duration>) {
        if self.window >= self.threshold || !self.is_measured_by(quickest) {
            return;
        }
        match self.conservative {
            Some(conservative) if quickest.took < conservative.baseline => {
                self.conservative = None;
            }
            Some(conservative)
                if conservative.rounds > 0
                    && quickest.took > conservative.baseline.mul_f32(FULL) =>
            {
                self.end_slow_start();
            }
            None if last.is_some_and(|last| waited(quickest.took, last)) => {
                self.conservative = Some(Conservative {
                    baseline: quickest.took,
                    rounds: 0,
                });
            }
            _ => {}
        }
    }

    /// Counts a round of conservative slow start, and ends it after the last.
    fn end_round(&mut self) {
        if let Some(conservative) = &mut self.conservative {
            conservative.rounds += 1;
            if conservative.rounds >= CONSERVATIVE_ROUNDS {
                self.end_slow_start();
            }
        }
    }

    /// Returns true in slow start, unless it is conservative.
    fn grows_fast(&self) -> bool {
        self.window < self.threshold && self.conservative.is_none()
    }

    fn end_slow_start(&mut self) {
        self.conservative = None;
        self.threshold = self.threshold.min(self.window);
    }

    /// Returns true if a round trip was measured with much of the window in flight. Others reveal
    /// nothing about a full path.
    fn is_measured_by(&self, trip: &Measured) -> bool {
        // The window may have doubled twice since the segment was sent.
        self.window > LEAST_MEASURED * self.segment && trip.flight * 4 > self.window
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, RateSample};
    use super::*;

    const SEGMENT: usize = 1000;
    const TRIP: Duration = Duration::from_millis(100);
    /// The acknowledgements in a round trip.
    const PARTS: usize = 20;

    fn start() -> Start {
        Start {
            now: Instant::default(),
            segment: SEGMENT,
            round_trip: Some(TRIP),
            lost_handshake: false,
            selective: true,
            seed: 1,
        }
    }

    /// A flow that fills its window, or some of it, on a path without loss.
    struct Flow {
        cubic: Cubic,
        now: Instant,
        delivered: u64,
    }

    impl Flow {
        fn new() -> Flow {
            Flow {
                cubic: Cubic::new(&start()),
                now: Instant::default(),
                delivered: 0,
            }
        }

        /// Passes a round trip in which `flight` bytes are in flight, in several acknowledgements.
        fn round(&mut self, flight: usize, took: Duration) -> usize {
            let before = self.delivered;
            let limited = flight + SEGMENT > self.cubic.window();
            self.cubic.on_send(&Sent {
                now: self.now,
                in_flight: flight,
            });
            self.now = self.now + took;
            for _ in 0..PARTS {
                self.delivered += (flight / PARTS) as u64;
                let ack = self.ack(flight, before, took, limited);
                self.cubic.on_ack(&ack);
            }
            self.cubic.window()
        }

        fn full_round(&mut self, took: Duration) -> usize {
            self.round(self.cubic.window(), took)
        }

        fn ack(&self, flight: usize, before: u64, took: Duration, limited: bool) -> Ack {
            let rate = flight as u128 * 1_000_000_000 / took.as_nanos();
            Ack {
                now: self.now,
                delivered: flight / PARTS,
                acknowledged: flight / PARTS,
                in_flight: flight,
                total_delivered: self.delivered,
                round_trip: Some(took),
                smoothed: TRIP,
                least: TRIP,
                rate: Some(RateSample {
                    delivered: flight as u64,
                    rate: Some(rate as u64),
                    app_limited: !limited,
                    prior_delivered: before,
                    sent_in_flight: flight,
                    lost: 0,
                }),
                phase: Phase::Open,
                window_limited: limited,
                most_in_flight: flight,
                congestion_echoed: false,
            }
        }

        fn lose(&mut self, segments: usize) -> usize {
            self.cubic.on_loss(&Loss {
                now: self.now,
                bytes: segments * SEGMENT,
                sent_in_flight: self.cubic.window(),
                lost_since_sent: 0,
                total_delivered: self.delivered,
                app_limited: false,
                window_limited: true,
            });
            self.cubic.window()
        }

        /// Acknowledges some bytes of a flight of 100 segments, with an echo of congestion.
        fn echo(&mut self) -> usize {
            let ack = self.ack(100 * SEGMENT, 0, TRIP, true);
            self.cubic.on_ack(&Ack {
                congestion_echoed: true,
                ..ack
            });
            self.cubic.window()
        }

        fn undo(&mut self, segments: usize) -> usize {
            self.cubic.on_undo(&Undo {
                not_lost: segments * SEGMENT,
            });
            self.cubic.window()
        }

        fn time_out(&mut self, in_a_row: u32) {
            self.cubic.on_timeout(&Timeout {
                now: self.now,
                in_flight: self.cubic.window(),
                in_a_row,
                total_delivered: self.delivered,
                app_limited: false,
                window_limited: true,
            });
        }
    }

    #[test]
    fn a_window_doubles_until_round_trips_get_longer() {
        let mut flow = Flow::new();
        assert_eq!(flow.cubic.window(), 10 * SEGMENT);
        for window in [20, 40, 80] {
            assert_eq!(flow.full_round(TRIP), window * SEGMENT);
        }
        // Round trips get longer: growth is conservative for five rounds, of which the first is a
        // part of one, and ends (RFC 9406 section 4.2).
        flow.full_round(TRIP.mul_f64(1.2));
        let windows = Vec::from_iter((0..8).map(|_| flow.full_round(TRIP.mul_f64(1.2))));
        let grew: Vec<f64> = windows
            .windows(2)
            .map(|pair| pair[1] as f64 / pair[0] as f64)
            .collect();
        assert!(
            grew[..3].iter().all(|grew| (1.2..1.26).contains(grew)),
            "{grew:?}"
        );
        assert!(grew[3..].iter().all(|grew| *grew < 1.05), "{grew:?}");
        // The queue was short-lived.
        let mut flow = Flow::new();
        for took in [TRIP, TRIP, TRIP.mul_f64(1.2), TRIP.mul_f64(1.2)] {
            flow.full_round(took);
        }
        assert!(flow.cubic.curve.conservative.is_some());
        flow.full_round(TRIP);
        let before = flow.cubic.window();
        assert!(flow.full_round(TRIP) > before / 10 * 19);
    }

    #[test]
    fn a_round_trip_is_compared_to_those_of_the_round_before() {
        let mut flow = Flow::new();
        for took in [1.0, 1.0, 1.1, 1.2, 1.3] {
            flow.full_round(TRIP.mul_f64(took));
        }
        assert!(flow.cubic.curve.conservative.is_none());
        flow.full_round(TRIP.mul_f64(1.5));
        assert!(flow.cubic.curve.conservative.is_some());
    }

    #[test]
    fn slow_start_ends_when_all_growth_waits_in_the_queue() {
        let mut flow = Flow::new();
        for took in [TRIP, TRIP, TRIP.mul_f64(1.2), TRIP.mul_f64(2.4)] {
            flow.full_round(took);
        }
        let before = flow.cubic.window();
        assert!(flow.full_round(TRIP.mul_f64(2.4)) < before / 10 * 11);
    }

    #[test]
    fn a_flow_is_paced_only_after_a_pause() {
        let mut flow = Flow::new();
        let restart = |flow: &mut Flow, idle| {
            flow.cubic.on_idle_restart(&IdleRestart {
                now: flow.now,
                idle,
                app_limited: true,
            });
            flow.cubic.pacing_rate()
        };
        assert_eq!(restart(&mut flow, TRIP), None);
        flow.cubic.curve.window = 100 * SEGMENT;
        assert_eq!(restart(&mut flow, TRIP / 2), None);
        // A little more than a window in a round trip.
        let rate = restart(&mut flow, TRIP).expect("a rate") / SEGMENT as u64;
        assert!((1150..1250).contains(&rate), "{rate} segments a second");
        flow.full_round(TRIP);
        assert_eq!(flow.cubic.pacing_rate(), None);
    }

    #[test]
    fn growth_by_many_segments_at_once_is_paced_for_a_round_trip() {
        let mut flow = Flow::new();
        flow.cubic.curve.window = 200 * SEGMENT;
        let acknowledge = |flow: &mut Flow, segments: usize| {
            flow.delivered += (segments * SEGMENT) as u64;
            let ack = flow.ack(200 * SEGMENT, 0, TRIP, true);
            flow.cubic.on_ack(&Ack {
                acknowledged: segments * SEGMENT,
                ..ack
            });
            let rate = flow.cubic.pacing_rate();
            rate.map(|rate| rate / SEGMENT as u64 / 100)
        };
        assert_eq!(acknowledge(&mut flow, 46), None);
        // Twice a window of 346 segments for a round trip.
        assert_eq!(acknowledge(&mut flow, 100), Some(69));
        for _ in 0..4 {
            assert!(acknowledge(&mut flow, 46).is_some());
        }
        assert_eq!(acknowledge(&mut flow, 46), None);
        // Congestion avoidance grows by less.
        flow.cubic.curve.threshold = 0;
        assert_eq!(acknowledge(&mut flow, 100), None);
    }

    #[test]
    fn losses_count_where_there_is_a_queue_or_where_they_are_many() {
        let mut flow = Flow::new();
        while flow.delivered < 2000 * SEGMENT as u64 {
            flow.round(8 * SEGMENT, TRIP);
        }
        let before = flow.cubic.window();
        assert_eq!(flow.lose(20), before);
        assert!(flow.lose(30) < before);
        let mut flow = Flow::new();
        flow.cubic.curve.threshold = 0;
        flow.full_round(TRIP * 2);
        flow.full_round(TRIP * 2);
        let before = flow.cubic.window();
        assert!(flow.lose(1) < before);
    }

    #[test]
    fn a_loss_in_slow_start_counts_once_round_trips_get_longer() {
        let mut flow = Flow::new();
        for _ in 0..4 {
            // Longer than the least one, but not longer than before.
            let before = flow.full_round(TRIP.mul_f64(1.2));
            assert_eq!(flow.lose(1), before);
            flow.cubic.on_recovery_end(flow.now);
        }
        let before = flow.full_round(TRIP.mul_f64(1.5));
        assert!(flow.lose(1) < before);
    }

    #[test]
    fn a_loss_shrinks_the_window_once() {
        let mut flow = Flow::new();
        while flow.delivered < 2000 * SEGMENT as u64 {
            flow.round(8 * SEGMENT, TRIP);
        }
        let before = flow.cubic.window();
        let once = flow.lose(50);
        assert!(once < before);
        // In later recoveries, a loss among those tolerated adds nothing to the ones before.
        for lost in [1, 1, 1, 1] {
            flow.cubic.on_recovery_end(flow.now);
            assert_eq!(flow.lose(lost), once);
        }
        flow.cubic.on_recovery_end(flow.now);
        assert!(flow.lose(1) < once);
    }

    #[test]
    fn a_window_comes_back_to_where_it_was_and_goes_on() {
        let mut flow = Flow::new();
        flow.cubic.curve.window = 100 * SEGMENT;
        assert_eq!(flow.lose(10), 70 * SEGMENT);
        flow.cubic.on_recovery_end(flow.now);
        let windows: Vec<usize> = (0..60).map(|_| flow.full_round(TRIP) / SEGMENT).collect();
        // The time is the cube root of 30 / 0.4, which is 4.2 s (RFC 9438 section 4.2).
        assert!((95..=103).contains(&windows[42]), "{windows:?}");
        assert!(windows[59] > 100, "{windows:?}");
        assert!(windows.is_sorted());
        flow.time_out(1);
        assert_eq!(flow.cubic.window(), SEGMENT);
    }

    #[test]
    fn after_a_timeout_growth_begins_anew_where_slow_start_ends() {
        let mut flow = Flow::new();
        flow.cubic.curve.window = 100 * SEGMENT;
        flow.time_out(1);
        flow.cubic.on_recovery_end(flow.now);
        while flow.cubic.window() < 70 * SEGMENT {
            flow.full_round(TRIP);
        }
        // Reno's growth is 0.53 segments in a round trip (RFC 9438 sections 4.3 and 4.8).
        let windows: Vec<usize> = (0..20).map(|_| flow.full_round(TRIP) / SEGMENT).collect();
        assert!((78..=82).contains(&windows[19]), "{windows:?}");
    }

    #[test]
    fn growth_is_that_of_reno_up_to_the_former_window() {
        let mut flow = Flow::new();
        flow.cubic.curve.window = 20 * SEGMENT;
        // The second shrink lowers the flat point (RFC 9438 section 4.7).
        for expected in [14, 9] {
            assert_eq!(flow.lose(10) / SEGMENT, expected);
            flow.cubic.on_recovery_end(flow.now);
        }
        let grew = |flow: &mut Flow| {
            let before = flow.cubic.window();
            flow.full_round(TRIP / 10) - before
        };
        while flow.cubic.window() < 13 * SEGMENT {
            let grew = grew(&mut flow);
            assert!(grew < SEGMENT / 10 * 7, "{grew}");
        }
        while flow.cubic.window() < 14 * SEGMENT {
            grew(&mut flow);
        }
        assert!(grew(&mut flow) > SEGMENT / 10 * 8);
    }

    #[test]
    fn what_was_no_loss_changes_nothing() {
        let mut flow = Flow::new();
        flow.cubic.curve.window = 100 * SEGMENT;
        assert_eq!(flow.lose(10), 70 * SEGMENT);
        assert_eq!(flow.lose(10), 70 * SEGMENT, "once in a recovery");
        assert_eq!(flow.undo(20), 100 * SEGMENT);
        // A report after the end of the recovery counts too.
        flow.lose(10);
        flow.cubic.on_recovery_end(flow.now);
        assert_eq!(flow.undo(10), 100 * SEGMENT);
        flow.time_out(1);
        flow.time_out(2);
        assert_eq!(flow.cubic.window(), SEGMENT);
        assert_eq!(flow.undo(0), 100 * SEGMENT);
    }

    #[test]
    fn congestion_that_is_echoed_shrinks_the_window_once_in_a_round_trip() {
        let mut flow = Flow::new();
        flow.cubic.curve.window = 100 * SEGMENT;
        flow.delivered = 1000;
        assert_eq!(flow.echo(), 70 * SEGMENT);
        assert_eq!(flow.echo(), 70 * SEGMENT);
        flow.delivered += 100_001;
        assert_eq!(flow.echo(), 49 * SEGMENT);
    }

    #[test]
    fn losses_and_echoes_of_one_window_shrink_it_once_and_for_good() {
        let flow = || {
            let mut flow = Flow::new();
            flow.cubic.curve.window = 100 * SEGMENT;
            flow
        };
        let mut echo_first = flow();
        assert_eq!(echo_first.echo(), 70 * SEGMENT);
        assert_eq!(echo_first.lose(10), 70 * SEGMENT);
        assert_eq!(echo_first.undo(10), 70 * SEGMENT);
        let mut loss_first = flow();
        assert_eq!(loss_first.lose(10), 70 * SEGMENT);
        loss_first.cubic.on_repeated_echo();
        assert_eq!(loss_first.undo(10), 70 * SEGMENT);
        let mut timeout = flow();
        timeout.time_out(1);
        timeout.cubic.on_repeated_echo();
        assert_eq!(timeout.undo(0), 70 * SEGMENT);
        // Losses among those tolerated have not shrunk it.
        let mut tolerated = flow();
        assert_eq!(tolerated.lose(1), 100 * SEGMENT);
        assert_eq!(tolerated.echo(), 70 * SEGMENT);
        assert_eq!(tolerated.undo(1), 70 * SEGMENT);
    }

    #[test]
    fn a_flow_that_sends_little_keeps_its_window() {
        let mut flow = Flow::new();
        for _ in 1..=20 {
            flow.round(100, TRIP * 60);
        }
        assert_eq!(flow.cubic.window(), 10 * SEGMENT);
        flow.cubic.curve.window = 100 * SEGMENT;
        assert_eq!(flow.round(300, TRIP * 60), 100 * SEGMENT);
    }

    #[test]
    fn a_pause_does_not_make_the_window_jump() {
        let mut flow = Flow::new();
        flow.cubic.curve.window = 100 * SEGMENT;
        flow.lose(10);
        flow.cubic.on_recovery_end(flow.now);
        for _ in 0..5 {
            flow.full_round(TRIP);
        }
        let before = flow.cubic.window();
        for _ in 0..100 {
            flow.round(100, TRIP);
        }
        assert_eq!(flow.cubic.window(), before);
        let after = flow.full_round(TRIP);
        assert!(after < before + 5 * SEGMENT, "{before} then {after}");
    }

    #[test]
    fn a_window_that_nothing_fills_shrinks_to_the_initial_one() {
        let mut flow = Flow::new();
        flow.cubic.curve.window = 100 * SEGMENT;
        for (seconds, segments) in [(299, 100), (300, 50), (3600, 10)] {
            flow.cubic.on_idle_restart(&IdleRestart {
                now: Instant::default() + Duration::from_secs(seconds),
                idle: Duration::from_secs(seconds),
                app_limited: true,
            });
            assert_eq!(flow.cubic.window(), segments * SEGMENT);
        }
    }

    #[test]
    fn a_window_holds_a_segment_whatever_its_size() {
        let mut cubic = Algorithm::Cubic.start(&Start {
            segment: 536,
            lost_handshake: true,
            selective: true,
            ..start()
        });
        assert_eq!(cubic.window(), 536);
        cubic.set_segment(1380);
        assert!(cubic.window() >= 1380);
        cubic.set_segment(536);
        assert!((536..1380).contains(&cubic.window()));
    }
}
