//! The evidence that a window exceeds what the path carries, and waits in a queue.

use core::time::Duration;

use watm_core::Instant;

use super::super::queueing;
use super::super::{Ack, RateSample};

/// The number of long round trips in a row that shows a queue.
const LEAST_WAITED: u8 = 8;
/// The time for which the most that the path has carried is remembered at least. It is remembered
/// for twice this time at most.
const REMEMBERED: Duration = Duration::from_secs(1);

/// The long round trips in a row, and the most that the path has carried.
///
/// A busy machine also makes round trips long, but a smaller window does not make them shorter
/// again. Without the second condition, random losses would shrink the window again and again.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// The total of delivered bytes when the window last shrank. Segments that were sent earlier
    /// waited in the queue of a larger window.
    shrank: u64,
    /// The number of long round trips in a row, and the total of delivered bytes at the first.
    waited: u8,
    since: u64,
    /// True if they are enough, and cover more than one round trip.
    shown: bool,
    /// The most bytes that the path has carried in a least round trip: in this period and in the one
    /// before. Then the start of this period.
    carried: u64,
    carried_before: u64,
    period_since: Instant,
}

impl Queue {
    /// Adds the round trip and the delivery rate that an acknowledgement measured.
    pub(super) fn measure(&mut self, took: Duration, rate: &RateSample, ack: &Ack) {
        if let Some(rate) = rate.rate {
            let carried = rate as f32 * ack.least.as_secs_f32();
            self.carry(carried as u64, ack.now);
        }
        if rate.prior_delivered < self.shrank {
            return;
        }
        if !queueing::waited(took, ack.least) {
            self.waited = 0;
            self.shown = false;
            return;
        }
        if self.waited == 0 {
            self.since = ack.total_delivered;
        }
        self.waited = self.waited.saturating_add(1);
        self.shown |= self.waited >= LEAST_WAITED && rate.prior_delivered >= self.since;
    }

    fn carry(&mut self, bytes: u64, now: Instant) {
        if now >= self.period_since + REMEMBERED {
            let forgotten = now >= self.period_since + 2 * REMEMBERED;
            self.carried_before = if forgotten { 0 } else { self.carried };
            self.carried = 0;
            self.period_since = now;
        }
        self.carried = self.carried.max(bytes);
    }

    /// Forgets the long round trips, because the window shrank when `total_delivered` bytes were
    /// delivered.
    pub(super) fn shrank(&mut self, total_delivered: u64) {
        self.shrank = total_delivered;
        self.waited = 0;
        self.shown = false;
    }

    /// Returns true if some of `flight` bytes waited in a queue.
    pub(super) fn holds_some_of(&self, flight: usize) -> bool {
        self.shown && flight as u64 > self.carried.max(self.carried_before)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Phase;
    use super::*;

    const LEAST: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_millis(25);
    const SEGMENT: u64 = 1000;

    /// A flow with eight segments in flight. Its acknowledgements are a quarter of a round trip
    /// apart, each of two segments.
    #[derive(Default)]
    struct Flow {
        queue: Queue,
        now: Instant,
        delivered: u64,
    }

    impl Flow {
        fn acknowledge(&mut self, took: Duration) {
            self.now = self.now + took / 4;
            self.delivered += 2 * SEGMENT;
            let flight = 8 * SEGMENT;
            let rate = RateSample {
                delivered: flight,
                rate: Some((flight as f32 / took.as_secs_f32()) as u64),
                app_limited: false,
                prior_delivered: self.delivered.saturating_sub(flight),
                sent_in_flight: flight as usize,
                lost: 0,
            };
            let ack = Ack {
                now: self.now,
                delivered: 2 * SEGMENT as usize,
                acknowledged: 2 * SEGMENT as usize,
                in_flight: flight as usize,
                total_delivered: self.delivered,
                round_trip: Some(took),
                smoothed: took,
                least: LEAST,
                rate: Some(rate),
                phase: Phase::Open,
                window_limited: true,
                most_in_flight: flight as usize,
                congestion_echoed: false,
            };
            self.queue.measure(took, &rate, &ack);
        }

        fn holds(&self, segments: u64) -> bool {
            self.queue.holds_some_of((segments * SEGMENT) as usize)
        }
    }

    #[test]
    fn a_few_long_round_trips_are_no_queue() {
        let mut flow = Flow::default();
        for _ in 0..7 {
            flow.acknowledge(LATE);
            assert!(!flow.holds(100));
        }
        flow.acknowledge(LATE);
        assert!(flow.holds(100));
        flow.acknowledge(LEAST);
        assert!(!flow.holds(100));
    }

    #[test]
    fn a_queue_is_judged_anew_after_the_window_shrank() {
        let mut flow = Flow::default();
        for _ in 0..20 {
            flow.acknowledge(LATE);
        }
        flow.queue.shrank(flow.delivered);
        // The first three acknowledge segments that were sent before.
        for _ in 0..10 {
            flow.acknowledge(LATE);
            assert!(!flow.holds(100));
        }
        flow.acknowledge(LATE);
        assert!(flow.holds(100));
    }

    #[test]
    fn a_window_that_the_path_has_carried_lately_makes_no_queue() {
        let mut flow = Flow::default();
        for _ in 0..8 {
            flow.acknowledge(LEAST);
        }
        for _ in 0..8 {
            flow.acknowledge(LATE);
        }
        assert!(!flow.holds(8));
        assert!(flow.holds(9));
        // It is forgotten after two seconds.
        let end = flow.now + 2 * REMEMBERED;
        while flow.now < end {
            flow.acknowledge(LATE);
        }
        assert!(flow.holds(8));
        assert!(!flow.holds(6));
    }
}
