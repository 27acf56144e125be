//! How much a flow may have on its way: CUBIC (RFC 9438), with a slow start that ends when round
//! trips get longer (as in RFC 9406), before queues overflow. Few losses without a queue are no sign
//! of one, but of a way that loses by itself, such as a radio's.

use core::time::Duration;

use watm_core::Instant;

use super::round_trip::Measured;
use super::segment::Sequence;

/// Segments of a new flow (RFC 6928).
const INITIAL: usize = 10;
/// By how much a window shrinks with a loss, and what that makes of the growth of a flow that is
/// fair to Reno's (RFC 9438 sections 4.6 and 4.3).
const BETA: f64 = 0.7;
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Segments per cubed second (RFC 9438 section 5).
const C: f64 = 0.4;
/// Round trips that are longer than the least by an eighth of it wait in a queue; by no less and no
/// more than this (RFC 9406 section 4.3).
const LEAST_QUEUEING: Duration = Duration::from_millis(4);
const MOST_QUEUEING: Duration = Duration::from_millis(16);
/// So many round trips of one window say how long its queue is.
const SAMPLES: u8 = 3;
/// What a slow start leaves on its way, of what fills the path: the rest waits in the queue.
const QUEUED: f64 = 1.25;
/// Of what arrives, one in so many may be lost where there is no queue, and this many segments more.
const TOLERATED: usize = 50;
const TOLERATED_MORE: usize = 3;
/// Segments that are reckoned with for that.
const REMEMBERED: usize = 2000;

/// See the module's page. Windows are in bytes.
#[derive(Debug)]
pub(super) struct Congestion {
    segment: usize,
    window: usize,
    /// Below this the window doubles with each round trip.
    threshold: usize,
    /// Where CUBIC's curve is flat, in seconds after its epoch, and how large the window is there.
    flat_at: f64,
    flat: f64,
    /// The window that Reno would have.
    reno: f64,
    /// When growth by CUBIC began.
    epoch: Option<Instant>,
    /// Never made smaller by losses: slow start may go on.
    fresh: bool,
    /// Every round trip of a window waited in a queue.
    queues: bool,
    /// Bytes that arrived lately, and that were lost.
    arrived: usize,
    lost: usize,
    /// Of the window on its way: its end, its least round trip, and how many were measured.
    round_end: Sequence,
    round_least: Option<Measured>,
    samples: u8,
}

impl Congestion {
    /// Of a flow that has sent nothing after `end`.
    pub(super) fn new(segment: usize, end: Sequence) -> Self {
        Congestion {
            segment,
            window: INITIAL * segment,
            threshold: usize::MAX,
            flat_at: 0.0,
            flat: 0.0,
            reno: 0.0,
            epoch: None,
            fresh: true,
            queues: false,
            arrived: 0,
            lost: 0,
            round_end: end,
            round_least: None,
            samples: 0,
        }
    }

    /// How many bytes may be on their way.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// So many bytes arrived.
    pub(super) fn arrived(&mut self, bytes: usize) {
        self.arrived += bytes;
        if self.arrived > REMEMBERED * self.segment {
            self.arrived /= 2;
            self.lost /= 2;
        }
    }

    /// So many bytes were acknowledged of a window that was full.
    pub(super) fn grow(&mut self, bytes: usize, smoothed: Duration, now: Instant) {
        if self.window < self.threshold {
            self.window = (self.window + bytes.min(self.window)).min(self.threshold);
            return;
        }
        let segment = self.segment as f64;
        let window = self.window as f64;
        let epoch = *self.epoch.get_or_insert_with(|| {
            if self.flat < window {
                self.flat = window;
            }
            self.flat_at = ((self.flat - window) / (C * segment)).cbrt();
            self.reno = window;
            now
        });
        let share = bytes as f64 / window;
        let alpha = if self.reno < self.flat { ALPHA } else { 1.0 };
        self.reno += alpha * segment * share;
        let ahead = (now - epoch + smoothed).as_secs_f64() - self.flat_at;
        let target = (C * segment * ahead.powi(3) + self.flat).clamp(window, 1.5 * window);
        self.window = (window + (target - window) * share).max(self.reno) as usize;
    }

    /// A round trip was measured. `least` is the least ever; `end` is that of all that is on its way.
    pub(super) fn measured(&mut self, trip: Measured, least: Duration, end: Sequence) {
        let queueing = (least / 8).clamp(LEAST_QUEUEING, MOST_QUEUEING);
        let waited = |trip: &Measured| trip.took > least + queueing;
        if trip.end.is_after(self.round_end) {
            self.queues = self.samples >= SAMPLES && self.round_least.as_ref().is_some_and(waited);
            self.round_end = end;
            self.round_least = None;
            self.samples = 0;
        }
        let quickest = match self.round_least {
            Some(before) if before.took <= trip.took => before,
            _ => trip,
        };
        self.round_least = Some(quickest);
        self.samples = self.samples.saturating_add(1);
        let queues = waited(&quickest);
        self.queues &= queues;
        if !self.fresh || self.samples != SAMPLES {
            return;
        }
        if queues && self.window < self.threshold {
            let fills = quickest.flight as f64 * least.as_secs_f64() / quickest.took.as_secs_f64();
            self.window = self.window.min((fills * QUEUED) as usize);
            self.threshold = self.window;
            self.epoch = None;
        } else if !queues {
            // The queue was somebody else's, or a moment's.
            self.threshold = usize::MAX;
        }
    }

    /// So many bytes were lost. Whether that says that the window is too large.
    pub(super) fn lose(&mut self, bytes: usize) -> bool {
        self.lost += bytes;
        let tolerated = self.arrived / TOLERATED + TOLERATED_MORE * self.segment;
        self.queues || self.lost > tolerated
    }

    /// Make the window smaller.
    pub(super) fn shrink(&mut self) {
        let window = self.window as f64;
        // A flow that has less than before makes room for others (RFC 9438 section 4.7).
        self.flat = if window < self.flat {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.window = ((window * BETA) as usize).max(2 * self.segment);
        self.threshold = self.window;
        self.epoch = None;
        self.fresh = false;
    }

    /// Nothing was acknowledged in time: begin anew. Whether it is the `first` time.
    pub(super) fn timed_out(&mut self, first: bool) {
        if first {
            self.shrink();
        }
        self.window = self.segment;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: usize = 1000;
    const TRIP: Duration = Duration::from_millis(100);

    /// A window's round trips, which all took so long.
    fn round(congestion: &mut Congestion, number: u32, took: Duration) {
        let end = Sequence(number * 1_000_000);
        for part in 1..=SAMPLES {
            let trip = Measured {
                took,
                end: end.minus(900_000 - usize::from(part)),
                flight: congestion.window() as u32,
            };
            congestion.measured(trip, TRIP, end);
        }
    }

    #[test]
    fn a_window_doubles_until_round_trips_get_longer() {
        let mut congestion = Congestion::new(SEGMENT, Sequence(0));
        for number in 1..=3 {
            round(&mut congestion, number, TRIP);
            congestion.grow(congestion.window(), TRIP, Instant::default());
        }
        assert_eq!(congestion.window(), 80 * SEGMENT);
        round(&mut congestion, 4, TRIP * 2);
        // What fills the path is half of it.
        assert_eq!(congestion.window(), 50 * SEGMENT);
        congestion.grow(50 * SEGMENT, TRIP, Instant::default());
        assert!(congestion.window() < 55 * SEGMENT);
        // It was a moment's.
        round(&mut congestion, 5, TRIP);
        let before = congestion.window();
        congestion.grow(before, TRIP, Instant::default());
        assert_eq!(congestion.window(), 2 * before);
    }

    #[test]
    fn losses_count_where_there_is_a_queue_or_where_they_are_many() {
        let mut congestion = Congestion::new(SEGMENT, Sequence(0));
        congestion.arrived(1000 * SEGMENT);
        assert!(!congestion.lose(20 * SEGMENT));
        assert!(congestion.lose(4 * SEGMENT));
        let mut congestion = Congestion::new(SEGMENT, Sequence(0));
        congestion.arrived(1000 * SEGMENT);
        round(&mut congestion, 1, TRIP * 2);
        round(&mut congestion, 2, TRIP * 2);
        assert!(congestion.lose(SEGMENT));
        round(&mut congestion, 3, TRIP);
        assert!(!congestion.lose(SEGMENT));
    }

    #[test]
    fn a_window_comes_back_to_where_it_was_and_goes_on() {
        let mut congestion = Congestion::new(SEGMENT, Sequence(0));
        congestion.grow(10 * SEGMENT, TRIP, Instant::default());
        congestion.window = 100 * SEGMENT;
        congestion.shrink();
        assert_eq!(congestion.window(), 70 * SEGMENT);
        let mut now = Instant::default();
        let mut windows = Vec::new();
        for _ in 0..60 {
            congestion.grow(congestion.window(), TRIP, now);
            windows.push(congestion.window() / SEGMENT);
            now = now + TRIP;
        }
        // RFC 9438 section 4.2: after the cube root of 30 / 0.4, which is 4.2 s.
        assert!((95..=103).contains(&windows[42]), "{windows:?}");
        assert!(windows[59] > 100, "{windows:?}");
        assert!(windows.is_sorted());
        congestion.timed_out(true);
        assert_eq!(congestion.window(), SEGMENT);
    }
}
