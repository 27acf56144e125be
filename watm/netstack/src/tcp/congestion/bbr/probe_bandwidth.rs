//! The cycle ProbeBW (section 5.3.3): Down empties the queue, Cruise keeps the rate, Refill fills
//! the pipe, and Up looks for more bandwidth.

use core::time::Duration;

use watm_core::Instant;

use super::arithmetic::Random;
use super::{Bbr, LEAST_SEGMENTS, Sample, State, UNBOUNDED};

/// The least time between probes, and the range of the random time added to it (`T_bbr`,
/// section 5.3.3.8.2).
const WAIT: Duration = Duration::from_secs(2);
const MORE_WAIT: Duration = Duration::from_secs(1);
/// The most round trips between probes, so that flows of Reno and CUBIC with the same window lose
/// as often as alone (`T_reno_bound`, section 5.3.3.8.2).
const MOST_ROUNDS: u64 = 63;
/// The time between probes after one that lost too much, relative to that after others.
const PATIENCE: u32 = 4;
/// The number of doublings after which the growth of the bound stays the same.
const MOST_DOUBLINGS: u32 = 30;

/// The cycle in progress.
#[derive(Debug, Clone)]
pub(super) struct Cycle {
    feedback: Feedback,
    /// True if acknowledgements are those of segments sent by a probe (`is_bw_probe_sample`).
    sampled: bool,
    /// The begin of the cycle, and the time from it to the next probe (`cycle_stamp`,
    /// `bw_probe_wait`).
    began: Instant,
    wait: Duration,
    /// The round trips since the last probe (`rounds_since_probe_up`).
    rounds: u64,
    /// True if the last probe put too much in flight (`prev_probe_too_high`).
    too_high: bool,
    /// True if the last probe ended early, because the one before it put too much in flight
    /// (`prev_probe_precautionary`).
    cautious: bool,
    /// The growth of the long-term bound: the bytes acknowledged since it last grew, those for
    /// which it grows by a segment, and the number of its doublings (`bw_probe_up_acked`,
    /// `probe_up_acked_per_inc`, `bw_probe_up_rounds`).
    delivered: u64,
    delivered_per_segment: u64,
    doublings: u32,
}

/// The meaning of acknowledgements (`ack_phase`, section 2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feedback {
    /// Nothing probes.
    None,
    /// Segments that refill the pipe are on their way.
    Refilling,
    /// A probe began, and is not acknowledged yet.
    Starting,
    /// A probe is acknowledged.
    Probing,
    /// A probe ended, and is still acknowledged.
    Stopping,
}

impl Cycle {
    pub(super) fn new(now: Instant) -> Self {
        Cycle {
            feedback: Feedback::None,
            sampled: false,
            began: now,
            wait: Duration::ZERO,
            rounds: 0,
            too_high: false,
            cautious: false,
            delivered: 0,
            delivered_per_segment: UNBOUNDED,
            doublings: 0,
        }
    }

    pub(super) fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Counts a round trip if one began.
    pub(super) fn count_round(&mut self, began: bool) {
        self.rounds += u64::from(began);
    }

    /// Ends a probe, whose acknowledgements still arrive.
    pub(super) fn stop(&mut self) {
        self.feedback = Feedback::Stopping;
    }

    /// Records that the probe put too much in flight. The rest of its losses do not count.
    pub(super) fn note_too_high(&mut self) {
        self.too_high = true;
        self.sampled = false;
    }

    /// Chooses the time of the next probe (`PickProbeWait`).
    fn begin(&mut self, now: Instant, random: &mut Random) {
        self.began = now;
        self.rounds = random.below(2);
        let more = random.below(u64::try_from(MORE_WAIT.as_nanos()).unwrap_or(0));
        self.wait = (WAIT + Duration::from_nanos(more)) * self.patience();
        self.delivered_per_segment = UNBOUNDED;
        self.stop();
    }

    /// Continues after ProbeRTT. After a lossy probe the long wait goes on. A new one might never
    /// end, because it may exceed the time between two ProbeRTTs.
    fn resume(&mut self, now: Instant, random: &mut Random) {
        if self.lost_much() {
            self.stop();
        } else {
            self.begin(now, random);
        }
    }

    /// Returns true if the last probe that was not cautious lost too much: it met other flows, or
    /// filled a short queue, and flows of Reno and CUBIC lose with it.
    pub(super) fn lost_much(&self) -> bool {
        self.too_high || self.cautious
    }

    /// The time to the next probe, relative to the usual one.
    fn patience(&self) -> u32 {
        if self.lost_much() { PATIENCE } else { 1 }
    }

    /// Doubles the growth of the bound for the next round trip (`RaiseInflightLongtermSlope`).
    pub(super) fn double(&mut self, window: u64, segment: u64) {
        self.delivered_per_segment = (window >> self.doublings).max(segment);
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    /// Adds acknowledged bytes, and returns the number of segments by which the bound grows.
    pub(super) fn grow(&mut self, bytes: u64) -> u64 {
        self.delivered = self.delivered.saturating_add(bytes);
        let segments = self.delivered / self.delivered_per_segment.max(1);
        self.delivered -= segments * self.delivered_per_segment.max(1);
        segments
    }
}

impl Bbr {
    /// Begins a cycle with Down (`StartProbeBW_DOWN`, section 5.3.3.9).
    pub(super) fn go_down(&mut self, now: Instant, total_delivered: u64) {
        self.latest.reset();
        self.cycle.begin(now, &mut self.random);
        self.rounds.begin(total_delivered);
        self.state = State::Down;
    }

    /// Goes on with Cruise after ProbeRTT: little is in flight, so that there is no queue to empty
    /// (section 5.3.4.4).
    pub(super) fn cruise(&mut self, now: Instant, total_delivered: u64) {
        self.latest.reset();
        self.cycle.resume(now, &mut self.random);
        self.rounds.begin(total_delivered);
        self.state = State::Cruise;
    }

    /// Fills the pipe before a probe (`StartProbeBW_REFILL`).
    pub(super) fn refill(&mut self, total_delivered: u64) {
        self.bounds.reset_short_term();
        self.cycle.doublings = 0;
        self.cycle.delivered = 0;
        self.cycle.cautious = false;
        self.cycle.feedback = Feedback::Refilling;
        self.rounds.begin(total_delivered);
        self.state = State::Refill;
    }

    /// Probes for more bandwidth (`StartProbeBW_UP`).
    fn go_up(&mut self, sample: &Sample) {
        self.cycle.sampled = true;
        self.cycle.feedback = Feedback::Starting;
        self.rounds.begin(sample.total_delivered);
        self.pipe.reset(sample.rate);
        self.state = State::Up;
        self.cycle.double(self.control.window(), self.segment);
    }

    /// Advances the cycle (`UpdateProbeBWCyclePhase`).
    pub(super) fn advance_cycle(&mut self, sample: &Sample) {
        if !self.pipe.was_full() || self.adapt_long_term(sample) {
            return;
        }
        match self.state {
            State::Down | State::Cruise if self.is_time_to_probe(sample.now) => {
                self.refill(sample.total_delivered);
            }
            State::Down if self.is_drained(sample) => self.state = State::Cruise,
            State::Refill if self.rounds.started() => self.go_up(sample),
            State::Up => self.check_up_done(sample),
            _ => {}
        }
    }

    /// Ends Up, if it is time to, without too many losses so far.
    fn check_up_done(&mut self, sample: &Sample) {
        if self.is_time_to_go_down(sample) {
            self.cycle.too_high = false;
            self.go_down(sample.now, sample.total_delivered);
        }
    }

    /// Returns true if it is time to probe: after a random time, or after the number of round trips
    /// in which Reno would fill the pipe (`IsTimeToProbeBW`).
    fn is_time_to_probe(&self, now: Instant) -> bool {
        let segments = (self.target() / self.segment).max(LEAST_SEGMENTS);
        let rounds = segments.min(MOST_ROUNDS) * u64::from(self.cycle.patience());
        now > self.cycle.began + self.cycle.wait || self.cycle.rounds >= rounds
    }

    /// Returns true if Down has emptied the queue, and left room for others (`IsTimeToCruise`).
    fn is_drained(&self, sample: &Sample) -> bool {
        sample.in_flight <= self.bound_with_headroom()
            && sample.in_flight <= self.inflight(self.bandwidth.most(), 100)
    }

    /// Returns true if the pipe is full, or if a cautious probe has reached the bound
    /// (`IsTimeToGoDown`).
    fn is_time_to_go_down(&mut self, sample: &Sample) -> bool {
        if self.cycle.too_high && self.reaches_bound(sample) {
            self.cycle.cautious = true;
            return true;
        }
        if self.is_limited_by_bound(sample) {
            self.pipe.reset(sample.rate);
            return false;
        }
        self.pipe.full()
    }

    /// Returns true if a full segment more than was in flight, before this acknowledgement, would
    /// exceed the long-term bound. The window never exceeds it.
    fn reaches_bound(&self, sample: &Sample) -> bool {
        let before = sample.in_flight.saturating_add(sample.newly_delivered);
        before.saturating_add(self.segment) > self.bounds.long
    }

    /// Returns true if the long-term bound limits what is in flight.
    fn is_limited_by_bound(&self, sample: &Sample) -> bool {
        sample.window_limited && self.control.window() >= self.bounds.long
    }

    /// Follows the feedback of the probe, and raises the long-term bound while losses are few
    /// (`AdaptLongTermModel`). Returns true if the cycle has advanced.
    fn adapt_long_term(&mut self, sample: &Sample) -> bool {
        if self.rounds.started() && self.end_round_of_feedback(sample) {
            return true;
        }
        let too_high = self.is_too_high(sample.lost, sample.sent_in_flight);
        if self.bounds.long == UNBOUNDED || too_high {
            return false;
        }
        self.bounds.long = self.bounds.long.max(sample.sent_in_flight);
        if self.state == State::Up {
            self.raise_bound(sample);
        }
        false
    }

    /// Advances the meaning of acknowledgements at the start of a round trip. Returns true if the
    /// cycle has advanced: a cautious probe that succeeded is repeated without the caution
    /// (section 5.3.3.6).
    fn end_round_of_feedback(&mut self, sample: &Sample) -> bool {
        match self.cycle.feedback {
            Feedback::Starting => self.cycle.feedback = Feedback::Probing,
            Feedback::Stopping => {
                self.cycle.sampled = false;
                self.cycle.feedback = Feedback::None;
                return self.end_probe(sample);
            }
            _ => {}
        }
        false
    }

    /// Ends a probe, after its last acknowledgement.
    fn end_probe(&mut self, sample: &Sample) -> bool {
        if !self.state.is_of_cycle() {
            return false;
        }
        if !sample.app_limited {
            self.bandwidth.advance();
        }
        let again = self.cycle.cautious && !self.cycle.too_high;
        if again {
            self.refill(sample.total_delivered);
        }
        again
    }

    /// Raises the long-term bound while it limits what is in flight
    /// (`ProbeInflightLongtermUpward`).
    fn raise_bound(&mut self, sample: &Sample) {
        if !self.is_limited_by_bound(sample) {
            return;
        }
        let segments = self.cycle.grow(sample.newly_delivered);
        let more = segments.saturating_mul(self.segment);
        self.bounds.long = self.bounds.long.saturating_add(more);
        if self.rounds.started() {
            self.cycle.double(self.control.window(), self.segment);
        }
    }
}
