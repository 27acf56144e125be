//! What round trips of a flow take, and how long it waits for an acknowledgement.

use core::time::Duration;

use watm_core::Instant;

use super::segment::Sequence;

/// The least that a timeout is above the round trip, as in Linux (`TCP_RTO_MIN`). smoltcp keeps to the
/// second of RFC 6298 section 2.4, which is long where a round trip takes milliseconds.
const LEAST_MARGIN: Duration = Duration::from_millis(200);
/// From here on smoltcp's own timeout is as good.
const OWN: Duration = Duration::from_millis(900);
/// The most that a timeout becomes by doubling (RFC 6298 section 2.5).
const MOST: Duration = Duration::from_secs(60);

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// A segment that is measured, by its end, and when it was sent.
    timed: Option<(Sequence, Instant)>,
    /// All in microseconds, as there may be many flows. The last one, and the least.
    last: u32,
    least: Option<u32>,
    /// SRTT and RTTVAR of RFC 6298 section 2.
    smoothed: u32,
    variation: u32,
    waiting: Option<Waiting>,
}

/// For an acknowledgement of what begins here, since when, and how often in vain.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    from: Sequence,
    since: Instant,
    doublings: u32,
}

impl RoundTrip {
    /// Measure a segment by its end, if none is measured.
    pub(super) fn begin(&mut self, end: Sequence, now: Instant) {
        self.timed.get_or_insert((end, now));
    }

    /// Something is sent again now. What comes twice says nothing of round trips (Karn's
    /// algorithm), and its acknowledgement has the whole time to come.
    pub(super) fn sent_again(&mut self, now: Instant) {
        self.timed = None;
        if let Some(waiting) = &mut self.waiting {
            waiting.since = now;
        }
    }

    /// Take the round trip of the segment that is measured, if it is acknowledged.
    pub(super) fn measure(&mut self, acknowledged: Sequence, now: Instant) {
        let Some((end, sent)) = self.timed else {
            return;
        };
        if end.is_after(acknowledged) {
            return;
        }
        let trip = (now - sent).min(MOST).as_micros() as u32;
        if let Some(least) = &mut self.least {
            *least = trip.min(*least);
            self.variation = (self.variation * 3 + self.smoothed.abs_diff(trip)) / 4;
            self.smoothed = (self.smoothed * 7 + trip) / 8;
        } else {
            self.least = Some(trip);
            self.variation = trip / 2;
            self.smoothed = trip;
        }
        self.last = trip;
        self.timed = None;
    }

    /// Whether the last took no more than twice the least, and this.
    pub(super) fn is_short(&self, slack: Duration) -> bool {
        let least = self.least.unwrap_or(u32::MAX);
        self.last
            <= least
                .saturating_mul(2)
                .saturating_add(slack.as_micros() as u32)
    }

    /// Tell what is not acknowledged, by its first byte, after each turn.
    pub(super) fn wait(&mut self, from: Option<Sequence>, now: Instant) {
        if from != self.waiting.map(|waiting| waiting.from) {
            self.waiting = from.map(|from| Waiting {
                from,
                since: now,
                doublings: 0,
            });
        }
    }

    /// When it is to be sent again; `None` where that is left to smoltcp.
    pub(super) fn timeout_at(&self) -> Option<Instant> {
        let waiting = self.waiting?;
        self.least?;
        let margin = LEAST_MARGIN.max(Duration::from_micros(u64::from(self.variation) * 4));
        let timeout = Duration::from_micros(u64::from(self.smoothed)) + margin;
        let doubled = timeout.saturating_mul(1 << waiting.doublings.min(16));
        (timeout < OWN).then(|| waiting.since + doubled.min(MOST))
    }

    /// Nothing came in time: wait twice as long from now on (RFC 6298 section 5.5).
    pub(super) fn back_off(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.doublings += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::default() + Duration::from_millis(milliseconds)
    }

    fn measured(trip: u64) -> RoundTrip {
        let mut trips = RoundTrip::default();
        trips.begin(Sequence(1), at(0));
        trips.measure(Sequence(1), at(trip));
        trips
    }

    #[test]
    fn a_timeout_is_the_round_trip_and_a_margin_and_doubles() {
        let mut trips = measured(20);
        assert_eq!(trips.timeout_at(), None);
        trips.wait(Some(Sequence(1)), at(100));
        trips.wait(Some(Sequence(1)), at(200));
        assert_eq!(trips.timeout_at(), Some(at(100 + 220)));
        trips.back_off();
        trips.sent_again(at(330));
        assert_eq!(trips.timeout_at(), Some(at(330 + 440)));
        for _ in 0..40 {
            trips.back_off();
        }
        trips.sent_again(at(1000));
        assert_eq!(trips.timeout_at(), Some(at(1000) + MOST));
        trips.wait(Some(Sequence(2)), at(5000));
        assert_eq!(trips.timeout_at(), Some(at(5000 + 220)));
        trips.wait(None, at(5001));
        assert_eq!(trips.timeout_at(), None);
    }

    #[test]
    fn what_was_not_measured_or_takes_long_is_left_to_smoltcp() {
        let mut trips = RoundTrip::default();
        trips.wait(Some(Sequence(1)), at(0));
        assert_eq!(trips.timeout_at(), None);
        let mut trips = measured(700);
        trips.wait(Some(Sequence(1)), at(800));
        assert_eq!(trips.timeout_at(), None);
    }

    #[test]
    fn round_trips_that_vary_make_a_timeout_longer() {
        let mut trips = measured(100);
        for (sent, trip) in [(1000, 100), (2000, 180), (3000, 60), (4000, 180)] {
            trips.begin(Sequence(9), at(sent));
            trips.measure(Sequence(8), at(sent + 1));
            trips.measure(Sequence(9), at(sent + trip));
        }
        trips.wait(Some(Sequence(9)), at(5000));
        let timeout = trips.timeout_at().expect("measured") - at(5000);
        assert!(timeout > Duration::from_millis(300), "{timeout:?}");
        assert!(trips.is_short(Duration::from_millis(100)));
        assert!(!trips.is_short(Duration::from_millis(10)));
    }
}
