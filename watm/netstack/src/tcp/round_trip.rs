//! The round-trip times of a flow, and its retransmission timeout.

use core::time::Duration;

use watm_core::Instant;

use super::segment::Sequence;

/// The least margin of a timeout above the round trip, as in Linux (`TCP_RTO_MIN`). The second of
/// RFC 6298 section 2.4 is long where a round trip takes milliseconds.
const LEAST_MARGIN: Duration = Duration::from_millis(200);
/// The timeout before any measurement (RFC 6298 section 2.1).
const FIRST: Duration = Duration::from_secs(1);
/// The bound of doubling the timeout (RFC 6298 section 2.5).
const MOST: Duration = Duration::from_secs(60);

/// The margin that is added to two round trips before a tail loss probe: timers and peers may be
/// late by this much.
const PROBE_MARGIN: Duration = Duration::from_millis(10);

/// The most segments of one window that are measured.
const TIMED: usize = 8;

/// A segment under measurement.
#[derive(Debug, Clone, Copy)]
struct Timed {
    end: Sequence,
    sent: Instant,
    /// The bytes in flight with it.
    flight: u32,
}

/// A measured round trip.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// The duration in microseconds.
    pub took: u32,
    /// The end of the measured segment.
    pub end: Sequence,
    /// The bytes in flight when it was sent, itself included.
    pub flight: u32,
}

/// The measurements and timers of a flow. See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// The segments under measurement, the oldest first.
    timed: Vec<Timed>,
    /// The least round trip. All values are in microseconds, because there may be many flows.
    least: Option<u32>,
    /// SRTT and RTTVAR of RFC 6298 section 2.
    smoothed: u32,
    variation: u32,
    waiting: Option<Waiting>,
    /// The time when new bytes were last sent.
    sent_at: Instant,
}

/// A wait for an acknowledgement: the first byte, the start, and the number of timeouts.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    from: Sequence,
    since: Instant,
    doublings: u32,
}

impl RoundTrip {
    /// Records the duration of a handshake.
    pub(super) fn shook_hands(&mut self, trip: Duration) {
        self.take(trip);
    }

    /// Records that a segment was sent for the first time, as the last of `flight` bytes in flight.
    /// It is measured unless another one shortly before it is.
    pub(super) fn begin(&mut self, end: Sequence, flight: usize, now: Instant) {
        let flight = u32::try_from(flight).unwrap_or(u32::MAX);
        let due = self.timed.last().is_none_or(|last| {
            let apart = end.0.wrapping_sub(last.end.0);
            self.timed.len() < TIMED && apart > 0 && apart >= flight / TIMED as u32
        });
        self.sent_at = now;
        if due {
            let sent = now;
            self.timed.push(Timed { end, sent, flight });
        }
    }

    /// Records a retransmission of this range. Duplicates say nothing about round trips (Karn's
    /// algorithm), and the timeout of its acknowledgement begins anew.
    pub(super) fn sent_again(&mut self, from: Sequence, to: Sequence, now: Instant) {
        self.timed
            .retain(|timed| !timed.end.is_after(from) || timed.end.is_after(to));
        if let Some(waiting) = &mut self.waiting {
            waiting.since = now;
        }
    }

    /// Returns the round trip of the last measured segment that the peer `has`, if there is one.
    pub(super) fn measure(
        &mut self,
        has: impl Fn(Sequence) -> bool,
        now: Instant,
    ) -> Option<Measured> {
        let mut last = None;
        self.timed.retain(|timed| {
            let done = has(timed.end);
            if done {
                last = Some(*timed);
            }
            !done
        });
        let Timed { end, sent, flight } = last?;
        let took = self.take(now - sent);
        Some(Measured { took, end, flight })
    }

    /// Records a round trip, and returns it in microseconds.
    fn take(&mut self, trip: Duration) -> u32 {
        let trip = trip.min(MOST).as_micros() as u32;
        if let Some(least) = &mut self.least {
            *least = trip.min(*least);
            self.variation = (self.variation * 3 + self.smoothed.abs_diff(trip)) / 4;
            self.smoothed = (self.smoothed * 7 + trip) / 8;
        } else {
            self.least = Some(trip);
            self.variation = trip / 2;
            self.smoothed = trip;
        }
        trip
    }

    /// The least round trip measured.
    pub(super) fn least(&self) -> Duration {
        Duration::from_micros(self.least.unwrap_or(0).into())
    }

    /// The smoothed round trip (SRTT).
    pub(super) fn smoothed(&self) -> Duration {
        Duration::from_micros(self.smoothed.into())
    }

    /// Set the first unacknowledged byte. Call it after each turn.
    pub(super) fn wait(&mut self, from: Option<Sequence>, now: Instant) {
        if from != self.waiting.map(|waiting| waiting.from) {
            self.waiting = from.map(|from| Waiting {
                from,
                since: now,
                doublings: 0,
            });
        }
    }

    /// The time of the retransmission.
    pub(super) fn timeout_at(&self) -> Option<Instant> {
        let waiting = self.waiting?;
        let margin = LEAST_MARGIN.max(Duration::from_micros(u64::from(self.variation) * 4));
        let timeout = self.least.map_or(FIRST, |_| self.smoothed() + margin);
        let doubled = timeout.saturating_mul(1 << waiting.doublings.min(16));
        Some(waiting.since + doubled.min(MOST))
    }

    /// The time of a tail loss probe (RFC 8985 section 7.2), if it precedes the timeout and nothing
    /// has timed out yet.
    pub(super) fn probe_at(&self) -> Option<Instant> {
        let waiting = self.waiting.filter(|waiting| waiting.doublings == 0)?;
        let since = waiting.since.max(self.sent_at);
        let at = since + self.smoothed() * 2 + PROBE_MARGIN;
        (self.least.is_some() && at < self.timeout_at()?).then_some(at)
    }

    /// The number of timeouts in a row.
    pub(super) fn timeouts(&self) -> u32 {
        self.waiting.map_or(0, |waiting| waiting.doublings)
    }

    /// Doubles the timeout after it expired (RFC 6298 section 5.5). The path may have changed, so
    /// that its least round trip is measured anew.
    pub(super) fn back_off(&mut self) {
        self.least = self.least.map(|least| least.max(self.smoothed));
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
        trips.begin(Sequence(1), 1, at(0));
        trips.measure(|end| end == Sequence(1), at(trip));
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
        trips.sent_again(Sequence(0), Sequence(1), at(330));
        assert_eq!(trips.timeout_at(), Some(at(330 + 440)));
        for _ in 0..40 {
            trips.back_off();
        }
        trips.sent_again(Sequence(0), Sequence(1), at(1000));
        assert_eq!(trips.timeout_at(), Some(at(1000) + MOST));
        trips.wait(Some(Sequence(2)), at(5000));
        assert_eq!(trips.timeout_at(), Some(at(5000 + 220)));
        trips.wait(None, at(5001));
        assert_eq!(trips.timeout_at(), None);
    }

    #[test]
    fn what_was_not_measured_has_a_second() {
        let mut trips = RoundTrip::default();
        trips.wait(Some(Sequence(1)), at(0));
        assert_eq!(trips.timeout_at(), Some(at(1000)));
    }

    #[test]
    fn round_trips_that_vary_make_a_timeout_longer() {
        let mut trips = measured(100);
        for (sent, trip) in [(1000, 100), (2000, 180), (3000, 60), (4000, 180)] {
            trips.begin(Sequence(9), 1, at(sent));
            trips.measure(|_| false, at(sent + 1));
            trips.measure(|_| true, at(sent + trip));
        }
        trips.wait(Some(Sequence(9)), at(5000));
        let timeout = trips.timeout_at().expect("measured") - at(5000);
        assert!(timeout > Duration::from_millis(300), "{timeout:?}");
    }
}
