//! The congestion window of a flow: CUBIC (RFC 9438), with a slow start that ends when round trips
//! get longer (as in RFC 9406), before queues overflow. A few losses without a queue do not shrink
//! the window, because some paths, such as radio links, lose packets without being full.
//!
//! A flow that does not fill its window reveals nothing about the path. Its acknowledgements do not
//! grow the window (RFC 7661 section 4.3), its round trips do not end slow start, and CUBIC's clock
//! pauses meanwhile (RFC 9438 section 5.8). A window that was not filled for minutes shrinks.
//!
//! The window is at least two segments, or one after a timeout, so that a flow can always send.
//!
//! [`Flow`](super::flow::Flow) reports what it sends and what is acknowledged.

use core::time::Duration;

use watm_core::Instant;

use super::round_trip::Measured;
use super::segment::Sequence;

/// The initial window in segments (RFC 6928).
const INITIAL: usize = 10;
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
/// The factor by which a larger window is tried at least, before a path counts as full.
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

/// The state of the congestion control. See the module's documentation. Windows are in bytes.
#[derive(Debug, Clone)]
pub(super) struct Congestion {
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
    /// The time of the last acknowledgement.
    acknowledged_at: Instant,
    usage: Usage,
    /// The time when the window was last full, or shrank because it was not.
    validated_at: Instant,
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
    /// Bytes recently delivered, and bytes recently lost.
    arrived: usize,
    lost: usize,
    /// The window in flight: its end, its least round trip, and the number of measurements.
    round_end: Sequence,
    round_least: Option<Measured>,
    samples: u8,
}

/// The flow's use of the window in the current round trip, in bytes.
#[derive(Debug, Clone, Default)]
struct Usage {
    /// The end of the bytes in flight when the round trip began.
    until: Sequence,
    /// The most bytes in flight.
    flight: usize,
    /// True if the window had no room for another full segment.
    full: bool,
}

impl Congestion {
    /// Creates the state of a flow that has sent nothing after `end`, with full segments of
    /// `segment` bytes.
    pub(super) fn new(segment: usize, end: Sequence, now: Instant) -> Self {
        Congestion {
            segment,
            window: INITIAL * segment,
            threshold: usize::MAX,
            flat_at: 0.0,
            flat: 0.0,
            reno: 0.0,
            epoch: None,
            acknowledged_at: now,
            usage: Usage {
                until: end,
                ..Usage::default()
            },
            validated_at: now,
            fresh: true,
            suspended: false,
            rate: 0.0,
            stalled: false,
            queues: false,
            arrived: 0,
            lost: 0,
            round_end: end,
            round_least: None,
            samples: 0,
        }
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// Prepares for sending at `now`, with full segments of `segment` bytes. A change of their size
    /// keeps the window's number of segments.
    pub(super) fn prepare(&mut self, segment: usize, now: Instant) {
        self.set_segment(segment);
        while now >= self.validated_at + NON_VALIDATED {
            self.validated_at = self.validated_at + NON_VALIDATED;
            let initial = INITIAL * self.segment;
            if self.window > initial {
                self.threshold = self.threshold.max(self.window / 4 * 3);
                self.window = initial.max(self.window / 2);
                self.epoch = None;
            }
        }
    }

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

    /// Records that `flight` bytes are in flight at `now`, between `start` and `end`.
    pub(super) fn sent(&mut self, flight: usize, start: Sequence, end: Sequence, now: Instant) {
        let full = flight + self.segment > self.window;
        if full {
            self.validated_at = now;
        }
        let begins = !self.usage.until.is_after(start);
        if begins || full || (!self.usage.full && flight > self.usage.flight) {
            self.usage = Usage {
                until: end,
                flight,
                full,
            };
        }
    }

    /// Returns true if the window limits the flow. In slow start this begins at half a window,
    /// because the next round trip can use twice as much.
    fn is_limiting(&self) -> bool {
        let doubles = self.window < self.threshold && self.window < 2 * self.usage.flight;
        self.usage.full || doubles
    }

    /// Records that `bytes` arrived. The window grows if it limits the flow and `may_grow` is set.
    pub(super) fn acknowledged(
        &mut self,
        bytes: usize,
        may_grow: bool,
        smoothed: Duration,
        now: Instant,
    ) {
        self.arrived += bytes;
        if self.arrived > REMEMBERED * self.segment {
            self.arrived /= 2;
            self.lost /= 2;
        }
        let idle = now - std::mem::replace(&mut self.acknowledged_at, now);
        if self.is_limiting() {
            if may_grow {
                self.grow(bytes, smoothed, now);
            }
        } else if let Some(epoch) = &mut self.epoch {
            *epoch = *epoch + idle;
        }
    }

    /// Grows the window for `bytes` of a full window that were acknowledged.
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

    /// Records a measured round trip. `least` is the least of the path; `end` is the end of all
    /// bytes in flight.
    pub(super) fn measured(&mut self, trip: Measured, least: Duration, end: Sequence) {
        let queueing = (least / 8).clamp(LEAST_QUEUEING, MOST_QUEUEING);
        let waited = |trip: &Measured| Duration::from_micros(trip.took.into()) > least + queueing;
        if trip.end.is_after(self.round_end) {
            self.queues = self.samples >= SAMPLES && self.round_least.as_ref().is_some_and(waited);
            if let Some(quickest) = self.round_least {
                self.end_round(quickest, least);
            }
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
        if !self.fresh || self.samples < SAMPLES {
            return;
        }
        if !queues {
            // The queue belonged to other flows, or was short-lived.
            self.threshold = usize::MAX;
            self.suspended = false;
        } else if self.window < self.threshold && self.is_measured_by(&quickest) {
            // The other round trips of this window confirm or refute the queue.
            self.threshold = self.window;
            self.suspended = true;
        }
    }

    /// Returns true if a round trip was measured with much of the window in flight. Others reveal
    /// nothing about a full path.
    fn is_measured_by(&self, trip: &Measured) -> bool {
        // The window may have doubled twice since the segment was sent.
        self.window > LEAST_MEASURED * self.segment && trip.flight as usize * 4 > self.window
    }

    /// Ends a suspended slow start, or resumes it, by `quickest`, the least of a window's round
    /// trips. A larger window delivers more bytes, unless the path is full. Then the window keeps
    /// the bytes that fill the path.
    fn end_round(&mut self, quickest: Measured, least: Duration) {
        let rate = quickest.flight as f32 / quickest.took.max(1) as f32 * 1e6;
        let grew = rate / self.rate;
        self.rate = self.rate.max(rate);
        if !std::mem::take(&mut self.suspended) || !self.is_measured_by(&quickest) {
            return;
        }
        let first = !std::mem::replace(&mut self.stalled, grew <= GROWTH);
        if grew > GROWTH || first {
            // The same growth as before may deliver as much more again.
            let more = grew.clamp(LEAST_TRY, 2.0);
            self.threshold = (self.window as f32 * more) as usize;
            return;
        }
        let flight = quickest.flight as usize;
        let kept = LEAST_MEASURED * self.segment;
        let fills = flight as f32 * least.as_secs_f32() / (quickest.took as f32 / 1e6);
        self.window = self.window.min(kept.max((fills * QUEUED) as usize));
        self.threshold = self.window;
        self.epoch = None;
    }

    /// Counts lost bytes. Returns true if they show that the window is too large.
    pub(super) fn lose(&mut self, bytes: usize) -> bool {
        self.lost += bytes;
        let tolerated = self.arrived / TOLERATED + TOLERATED_MORE * self.segment;
        self.queues || self.lost > tolerated
    }

    /// Undoes the loss of this many bytes.
    pub(super) fn not_lost(&mut self, bytes: usize) {
        self.lost = self.lost.saturating_sub(bytes);
    }

    /// Restores the window to `before`, because the reason for shrinking it was wrong.
    pub(super) fn restore(&mut self, before: &Congestion) {
        if before.window <= self.window {
            return;
        }
        *self = Congestion {
            arrived: self.arrived,
            lost: self.lost,
            acknowledged_at: self.acknowledged_at,
            validated_at: self.validated_at,
            ..before.clone()
        };
    }

    /// Shrinks the window after a loss. Its unused part goes at once (RFC 7661 section 4.4.1).
    pub(super) fn shrink(&mut self) {
        let used = match self.is_limiting() {
            true => self.window,
            false => self
                .window
                .min(self.usage.flight.max(INITIAL * self.segment)),
        };
        let window = used as f32;
        // A flow with a smaller window than before makes room for others (RFC 9438 section 4.7).
        self.flat = if window < self.flat {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.window = ((window * BETA) as usize).max(LEAST * self.segment);
        self.threshold = self.window;
        self.epoch = None;
        self.fresh = false;
    }

    /// Starts over after a timeout. `first` is true for the first of several in a row.
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

    /// Has the round trips of a window measured, each of this length with this many bytes in
    /// flight.
    fn round_of(congestion: &mut Congestion, number: u32, took: Duration, flight: usize) {
        let end = Sequence(number * 1_000_000);
        for part in 1..=SAMPLES {
            let trip = Measured {
                took: took.as_micros() as u32,
                end: end.minus(900_000 - usize::from(part)),
                flight: flight as u32,
            };
            congestion.measured(trip, TRIP, end);
        }
    }

    /// The same for a full window.
    fn round(congestion: &mut Congestion, number: u32, took: Duration) {
        let window = congestion.window();
        round_of(congestion, number, took, window);
    }

    #[test]
    fn a_window_doubles_until_round_trips_get_longer() {
        let mut congestion = Congestion::new(SEGMENT, Sequence(0), Instant::default());
        for number in 1..=3 {
            round(&mut congestion, number, TRIP);
            congestion.grow(congestion.window(), TRIP, Instant::default());
        }
        assert_eq!(congestion.window(), 80 * SEGMENT);
        round(&mut congestion, 4, TRIP * 2);
        // It hardly grows, and keeps the bytes that fill the path when two windows deliver no more.
        congestion.grow(80 * SEGMENT, TRIP, Instant::default());
        assert!(congestion.window() < 82 * SEGMENT);
        round(&mut congestion, 5, TRIP * 2);
        round(&mut congestion, 6, TRIP * 2);
        assert_eq!(congestion.window() / SEGMENT, 50);
        congestion.grow(50 * SEGMENT, TRIP, Instant::default());
        assert!(congestion.window() < 55 * SEGMENT);
        // The queue was short-lived.
        round(&mut congestion, 7, TRIP);
        let before = congestion.window();
        congestion.grow(before, TRIP, Instant::default());
        assert_eq!(congestion.window(), 2 * before);
    }

    #[test]
    fn losses_count_where_there_is_a_queue_or_where_they_are_many() {
        let mut congestion = Congestion::new(SEGMENT, Sequence(0), Instant::default());
        congestion.acknowledged(1000 * SEGMENT, false, TRIP, Instant::default());
        assert!(!congestion.lose(20 * SEGMENT));
        assert!(congestion.lose(4 * SEGMENT));
        let mut congestion = Congestion::new(SEGMENT, Sequence(0), Instant::default());
        congestion.acknowledged(1000 * SEGMENT, false, TRIP, Instant::default());
        round(&mut congestion, 1, TRIP * 2);
        round(&mut congestion, 2, TRIP * 2);
        assert!(congestion.lose(SEGMENT));
        round(&mut congestion, 3, TRIP);
        assert!(!congestion.lose(SEGMENT));
    }

    #[test]
    fn a_window_comes_back_to_where_it_was_and_goes_on() {
        let mut congestion = Congestion::new(SEGMENT, Sequence(0), Instant::default());
        congestion.grow(10 * SEGMENT, TRIP, Instant::default());
        congestion.window = 100 * SEGMENT;
        congestion.sent(100 * SEGMENT, Sequence(0), Sequence(1), Instant::default());
        congestion.shrink();
        assert_eq!(congestion.window(), 70 * SEGMENT);
        let mut now = Instant::default();
        let mut windows = Vec::new();
        for _ in 0..60 {
            congestion.grow(congestion.window(), TRIP, now);
            windows.push(congestion.window() / SEGMENT);
            now = now + TRIP;
        }
        // The time is the cube root of 30 / 0.4, which is 4.2 s (RFC 9438 section 4.2).
        assert!((95..=103).contains(&windows[42]), "{windows:?}");
        assert!(windows[59] > 100, "{windows:?}");
        assert!(windows.is_sorted());
        congestion.timed_out(true);
        assert_eq!(congestion.window(), SEGMENT);
    }

    #[test]
    fn a_flow_that_sends_little_keeps_its_window() {
        let mut congestion = Congestion::new(SEGMENT, Sequence(0), Instant::default());
        for number in 1..=20 {
            round_of(&mut congestion, number, TRIP * 60, 100);
        }
        assert_eq!(congestion.window(), INITIAL * SEGMENT);
        // A large window stays as well.
        congestion.window = 100 * SEGMENT;
        round_of(&mut congestion, 21, TRIP * 60, 300);
        assert_eq!(congestion.window(), 100 * SEGMENT);
        // Longer round trips of full windows leave enough to go on.
        for number in 22..=25 {
            round_of(&mut congestion, number, TRIP * 60, 100 * SEGMENT);
        }
        assert_eq!(congestion.window(), LEAST_MEASURED * SEGMENT);
    }

    #[test]
    fn a_window_grows_only_while_it_is_full() {
        let now = Instant::default();
        for (window, flight, grows) in [
            // No second segment fits.
            (2 * SEGMENT - 100, SEGMENT, true),
            (2 * SEGMENT, SEGMENT + 1, true),
            (2 * SEGMENT, SEGMENT, false),
            // Slow start is limited by half a window.
            (20 * SEGMENT, 10 * SEGMENT + 1, true),
            (20 * SEGMENT, 10 * SEGMENT, false),
            (20 * SEGMENT, 300, false),
        ] {
            let mut congestion = Congestion::new(SEGMENT, Sequence(0), now);
            congestion.window = window;
            congestion.sent(flight, Sequence(0), Sequence(100_000), now);
            congestion.acknowledged(flight, true, TRIP, now);
            let grew = congestion.window() > window;
            assert_eq!(grew, grows, "{flight} bytes in a window of {window}");
        }
        // Without slow start a window grows if no other segment fits.
        let mut congestion = Congestion::new(SEGMENT, Sequence(0), now);
        congestion.threshold = 0;
        congestion.sent(8 * SEGMENT, Sequence(0), Sequence(100_000), now);
        congestion.acknowledged(8 * SEGMENT, true, TRIP, now);
        assert_eq!(congestion.window(), INITIAL * SEGMENT);
        congestion.sent(9 * SEGMENT + 1, Sequence(0), Sequence(100_000), now);
        congestion.acknowledged(9 * SEGMENT, true, TRIP, now + TRIP);
        assert!(congestion.window() > INITIAL * SEGMENT);
    }

    #[test]
    fn a_pause_does_not_make_the_window_jump() {
        let mut congestion = Congestion::new(SEGMENT, Sequence(0), Instant::default());
        congestion.window = 100 * SEGMENT;
        congestion.sent(100 * SEGMENT, Sequence(0), Sequence(1), Instant::default());
        congestion.shrink();
        let mut now = Instant::default();
        let mut step = |congestion: &mut Congestion, flight: usize, time: Duration| {
            now = now + time;
            congestion.sent(flight, Sequence(0), Sequence(1), now);
            congestion.acknowledged(flight, true, TRIP, now);
            congestion.usage = Usage::default();
            congestion.window()
        };
        for _ in 0..5 {
            let window = congestion.window();
            step(&mut congestion, window, TRIP);
        }
        let before = congestion.window();
        for _ in 0..100 {
            step(&mut congestion, 100, TRIP);
        }
        assert_eq!(congestion.window(), before);
        let after = step(&mut congestion, before, TRIP);
        assert!(after < before + 5 * SEGMENT, "{before} then {after}");
    }

    #[test]
    fn a_window_that_nothing_fills_shrinks_to_the_initial_one() {
        let mut congestion = Congestion::new(SEGMENT, Sequence(0), Instant::default());
        congestion.window = 100 * SEGMENT;
        let hour = Instant::default() + Duration::from_secs(3600);
        congestion.prepare(SEGMENT, Instant::default() + Duration::from_secs(299));
        assert_eq!(congestion.window(), 100 * SEGMENT);
        congestion.prepare(SEGMENT, Instant::default() + Duration::from_secs(300));
        assert_eq!(congestion.window(), 50 * SEGMENT);
        congestion.prepare(SEGMENT, hour);
        assert_eq!(congestion.window(), INITIAL * SEGMENT);
    }

    #[test]
    fn a_window_holds_a_segment_whatever_its_size() {
        let now = Instant::default();
        let mut congestion = Congestion::new(536, Sequence(0), now);
        congestion.timed_out(true);
        assert_eq!(congestion.window(), 536);
        congestion.prepare(1380, now);
        assert!(congestion.window() >= 1380);
        congestion.prepare(536, now);
        assert!((536..1380).contains(&congestion.window()));
    }
}
