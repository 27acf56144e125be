//! The least round trip, and the state ProbeRTT that measures it with a short queue (sections 5.3.4
//! and 5.5.7).

use core::time::Duration;

use watm_core::Instant;

use super::{Bbr, Sample, State};

/// The time for which the least round trip is remembered (`MinRTTFilterLen`).
const REMEMBERED: Duration = Duration::from_secs(10);
/// The time after which it is measured again (`ProbeRTTInterval`).
const INTERVAL: Duration = Duration::from_secs(5);
/// The least time of a measurement (`ProbeRTTDuration`).
const DURATION: Duration = Duration::from_millis(200);

/// The round trips of a connection.
#[derive(Debug, Clone)]
pub(super) struct RoundTrips {
    /// The least one (`min_rtt`), and the time of its measurement.
    least: Option<(Duration, Instant)>,
    /// The least one since the last probe, and its time (`probe_rtt_min_delay`,
    /// `probe_rtt_min_stamp`).
    recent: Option<Duration>,
    recent_at: Instant,
    /// True if that one is too old (`probe_rtt_expired`).
    expired: bool,
    /// The earliest end of ProbeRTT, once little is in flight (`probe_rtt_done_stamp`).
    done_at: Option<Instant>,
    /// True if a round trip has passed since (`probe_rtt_round_done`).
    round_done: bool,
    /// The deliveries at the begin of the last probe, and those that end it. The probe slowed the
    /// segments sent between them, as if an application limited it.
    slowed: Option<(u64, u64)>,
    /// True if the connection sends again after an idle time (`idle_restart`).
    restarts: bool,
}

impl RoundTrips {
    pub(super) fn new(now: Instant, measured: Option<Duration>) -> Self {
        RoundTrips {
            least: measured.map(|measured| (measured, now)),
            recent: measured,
            recent_at: now,
            expired: false,
            done_at: None,
            round_done: false,
            slowed: None,
            restarts: false,
        }
    }

    /// The least round trip, if one was measured.
    pub(super) fn least(&self) -> Option<Duration> {
        self.least.map(|(least, _)| least)
    }

    /// Takes over a round trip (`UpdateMinRTT`).
    pub(super) fn update(&mut self, sample: &Sample) {
        self.expired = sample.now > self.recent_at + INTERVAL;
        let Some(measured) = sample.round_trip else {
            return;
        };
        if self.expired || self.recent.is_none_or(|recent| measured < recent) {
            self.recent = Some(measured);
            self.recent_at = sample.now;
        }
        let recent = self.recent.unwrap_or(measured);
        let keeps =
            |(least, at): (Duration, Instant)| recent >= least && sample.now <= at + REMEMBERED;
        if !self.least.is_some_and(keeps) {
            self.least = Some((recent, self.recent_at));
        }
    }

    /// Returns true if a segment was slowed by a probe. `delivered` are the bytes delivered when it
    /// was sent.
    pub(super) fn slowed(&self, delivered: u64) -> bool {
        self.slowed
            .is_some_and(|(from, until)| (from..=until).contains(&delivered))
    }

    /// Marks everything in flight as slowed by the probe (`MarkConnectionAppLimited`).
    fn slow(&mut self, sample: &Sample) {
        let until = sample.total_delivered.saturating_add(sample.in_flight);
        let from = self.slowed.map_or(sample.total_delivered, |(from, _)| from);
        self.slowed = Some((from, until));
    }
}

impl Bbr {
    /// Begins, continues or ends ProbeRTT (`CheckProbeRTT`).
    pub(super) fn check_round_trip_probe(&mut self, sample: &Sample) {
        let trips = &self.round_trips;
        if self.state != State::ProbeRoundTrip && trips.expired && !trips.restarts {
            self.begin_round_trip_probe(sample);
        }
        if self.state == State::ProbeRoundTrip {
            self.continue_round_trip_probe(sample);
        }
        if sample.newly_delivered > 0 {
            self.round_trips.restarts = false;
        }
    }

    fn begin_round_trip_probe(&mut self, sample: &Sample) {
        self.save_window();
        self.state = State::ProbeRoundTrip;
        self.round_trips.done_at = None;
        self.round_trips.slowed = None;
        self.cycle.stop();
        self.rounds.begin(sample.total_delivered);
    }

    /// Waits until little is in flight, and then for a while (`HandleProbeRTT`).
    fn continue_round_trip_probe(&mut self, sample: &Sample) {
        self.round_trips.slow(sample);
        if self.round_trips.done_at.is_some() {
            self.round_trips.round_done |= self.rounds.started();
            if self.round_trips.round_done {
                self.check_round_trip_probe_done(sample.now, sample.total_delivered);
            }
        } else if sample.in_flight <= self.window_of_probe() {
            self.round_trips.done_at = Some(sample.now + DURATION);
            self.round_trips.round_done = false;
            self.rounds.begin(sample.total_delivered);
        }
    }

    /// Ends ProbeRTT if its time is over (`CheckProbeRTTDone`, section 5.3.4.4).
    fn check_round_trip_probe_done(&mut self, now: Instant, total_delivered: u64) {
        if self.round_trips.done_at.is_none_or(|done| now <= done) {
            return;
        }
        self.round_trips.recent_at = now;
        self.control.restore_window();
        self.bounds.reset_short_term();
        if self.pipe.was_full() {
            self.cruise(now, total_delivered);
        } else {
            self.state = State::Startup;
        }
    }

    /// Sends again after an idle time (section 5.4.1), which empties queues as well as a probe.
    pub(super) fn restart(&mut self, now: Instant) {
        self.round_trips.restarts = true;
        self.aggregation.begin(now);
        if self.state.is_of_cycle() {
            self.pace(100);
        } else if self.state == State::ProbeRoundTrip {
            self.check_round_trip_probe_done(now, self.rounds.delivered());
        }
    }
}
