//! The round-trip times of a connection, and its retransmission timeout (RFC 6298).

use core::time::Duration;

use watm_core::Instant;

/// The least margin of a timeout above the round trip, as in Linux (`TCP_RTO_MIN`). The second of
/// RFC 6298 section 2.4 is long where a round trip takes milliseconds.
const LEAST_MARGIN: Duration = Duration::from_millis(200);
/// The timeout before any measurement (RFC 6298 section 2.1).
pub(crate) const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// The same after a lost SYN (RFC 6298 section 5.7).
const FIRST_AFTER_LOSS: Duration = Duration::from_secs(3);
/// The bound of doubling the timeout (RFC 6298 section 2.5).
const MOST: Duration = Duration::from_secs(60);
/// The margin that is added to two round trips before a tail loss probe: timers and peers may be
/// late by this much.
const PROBE_MARGIN: Duration = Duration::from_millis(10);
/// The measurements in a round trip that change the estimate: more of them would forget what
/// earlier round trips took (RFC 7323 appendix G).
const MEASURED: u32 = 8;
/// The time for which the least round trip counts, as in Linux (`tcp_min_rtt_wlen`).
const LEAST_COUNTS: Duration = Duration::from_secs(300);

/// The measurements of a connection. All values are in microseconds, because there may be many.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip {
    /// The least round trip, and the time when it was measured.
    least: Option<u32>,
    least_at: Instant,
    /// The least round trip ever.
    shortest: u32,
    /// SRTT and RTTVAR of RFC 6298 section 2.
    smoothed: u32,
    variation: u32,
    /// The time of the last measurement that changed the estimate.
    measured_at: Instant,
    /// The number of timeouts in a row.
    timeouts: u8,
    /// The number of doublings in effect: none after a measurement, fewer after an acknowledgement.
    doublings: u8,
    /// True if a SYN was lost.
    lost_handshake: bool,
}

impl RoundTrip {
    /// Records a round trip. The timeout is no longer doubled: it suits the path again (RFC 6298
    /// section 5).
    pub(crate) fn measure(&mut self, trip: Duration, now: Instant) {
        self.doublings = 0;
        let trip = trip.min(MOST).as_micros() as u32;
        let Some(least) = self.least else {
            self.least = Some(trip);
            self.shortest = trip;
            (self.least_at, self.measured_at) = (now, now);
            (self.smoothed, self.variation) = (trip, trip / 2);
            return;
        };
        self.shortest = self.shortest.min(trip);
        if trip <= least || now >= self.least_at + LEAST_COUNTS {
            self.least = Some(trip);
            self.least_at = now;
        }
        if now < self.measured_at + self.smoothed() / MEASURED {
            return;
        }
        self.measured_at = now;
        self.variation = (self.variation * 3 + self.smoothed.abs_diff(trip)) / 4;
        self.smoothed = (self.smoothed * 7 + trip) / 8;
    }

    /// Records that a packet of the handshake was lost, so that its duration is unknown.
    pub(crate) fn lost_handshake(&mut self) {
        self.lost_handshake = true;
    }

    /// Returns true if a round trip was measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.least.is_some()
    }

    /// The least round trip recently.
    pub(crate) fn least(&self) -> Duration {
        Duration::from_micros(self.least.unwrap_or(0).into())
    }

    /// The least round trip ever. Nothing is acknowledged sooner than that.
    pub(crate) fn shortest(&self) -> Duration {
        Duration::from_micros(self.shortest.into())
    }

    /// The smoothed round trip (SRTT).
    pub(crate) fn smoothed(&self) -> Duration {
        Duration::from_micros(self.smoothed.into())
    }

    /// The retransmission timeout (RTO), doubled once for each of `doublings`.
    pub(crate) fn timeout(&self) -> Duration {
        let margin = LEAST_MARGIN.max(Duration::from_micros(u64::from(self.variation) * 4));
        let first = match self.lost_handshake {
            true => FIRST_AFTER_LOSS,
            false => FIRST_TIMEOUT,
        };
        let timeout = self.least.map_or(first, |_| self.smoothed() + margin);
        timeout
            .saturating_mul(1 << self.doublings.min(16))
            .min(MOST)
    }

    /// The time from the last transmission to a tail loss probe (RFC 8985 section 7.2), if it
    /// precedes the timeout and nothing has timed out yet.
    pub(crate) fn probe_after(&self) -> Option<Duration> {
        let after = self.smoothed() * 2 + PROBE_MARGIN;
        let may = self.is_measured() && self.timeouts == 0 && after < self.timeout();
        may.then_some(after)
    }

    /// The number of timeouts in a row.
    pub(crate) fn timeouts(&self) -> u32 {
        self.timeouts.into()
    }

    /// Measures the least round trip anew after a timeout, because the path may have changed.
    pub(crate) fn forget_least(&mut self) {
        self.least = self.least.map(|least| least.max(self.smoothed));
    }

    /// Doubles the timeout after it expired (RFC 6298 section 5.5).
    pub(crate) fn back_off(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
        self.doublings = self.doublings.saturating_add(1);
    }

    /// Ends a row of timeouts: something new is acknowledged. The timeout stays doubled, because
    /// the path may have become longer (Karn's algorithm). It is cut to 3 s, the timeout that RFC
    /// 6298 section 5.7 uses after a lost SYN, because the search for a narrower path takes several
    /// timeouts.
    pub(crate) fn answered(&mut self) {
        self.timeouts = 0;
        while self.doublings > 0 && self.timeout() > FIRST_AFTER_LOSS {
            self.doublings = self.doublings.min(16) - 1;
        }
    }

    /// Records the time since the last transmission of something repeated, which may be a round
    /// trip. If it is like those before, the path is hardly longer: the timeout is no longer
    /// doubled. Otherwise a peer without SACK and timestamps that loses much would keep long
    /// timeouts, because almost nothing is sent only once.
    pub(crate) fn measure_repetition(&mut self, trip: Duration) {
        let usual = self.smoothed();
        if trip.abs_diff(usual) <= usual / 8 {
            self.doublings = 0;
        }
    }

    /// Ends a row of probes of the peer's window: it opens. Their times say nothing about the path.
    pub(crate) fn window_opened(&mut self) {
        self.timeouts = 0;
        self.doublings = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::default() + Duration::from_millis(milliseconds)
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_timeout_is_the_round_trip_and_a_margin_and_doubles() {
        let mut trips = RoundTrip::default();
        assert_eq!((trips.timeout(), trips.probe_after()), (ms(1000), None));
        trips.measure(ms(20), at(0));
        assert_eq!(trips.timeout(), ms(220));
        assert_eq!(trips.probe_after(), Some(ms(50)));
        trips.back_off();
        assert_eq!((trips.timeout(), trips.probe_after()), (ms(440), None));
        for _ in 0..300 {
            trips.back_off();
        }
        assert_eq!(trips.timeout(), MOST);
        trips.answered();
        assert_eq!((trips.timeout(), trips.timeouts()), (ms(1760), 0));
        trips.measure(ms(20), at(1));
        assert_eq!(trips.timeout(), ms(220));
    }

    #[test]
    fn an_answer_in_the_usual_time_ends_doubling() {
        let mut trips = RoundTrip::default();
        trips.measure(ms(80), at(0));
        trips.back_off();
        for trip in [69, 91, 280] {
            trips.measure_repetition(ms(trip));
            assert_eq!(trips.timeout(), ms(560), "{trip}");
        }
        trips.measure_repetition(ms(89));
        assert_eq!(trips.timeout(), ms(280));
    }

    #[test]
    fn round_trips_that_vary_make_a_timeout_longer() {
        let mut trips = RoundTrip::default();
        for (sent, trip) in [(0, 100), (1000, 100), (2000, 180), (3000, 60), (4000, 180)] {
            trips.measure(ms(trip), at(sent));
        }
        assert!(trips.timeout() > ms(300), "{:?}", trips.timeout());
        assert_eq!(trips.least(), ms(60));
    }

    #[test]
    fn many_measurements_in_a_round_trip_do_not_forget_those_of_before() {
        let mut trips = RoundTrip::default();
        trips.measure(ms(100), at(0));
        for number in 0..100 {
            trips.measure(ms(200), at(100 + number));
        }
        assert!(trips.smoothed() < ms(185), "{:?}", trips.smoothed());
        // The least is taken from every one.
        trips.measure(ms(50), at(200));
        assert_eq!(trips.least(), ms(50));
        trips.measure(ms(70), at(200 + 300_000));
        assert_eq!(trips.least(), ms(70), "after a while");
    }
}
