//! Acknowledgements that arrive together (section 5.5.9): the window grows by the bytes that arrive
//! beyond the expected ones, so that the connection sends on in the silence that follows.

use watm_core::Instant;

use super::arithmetic::volume;
use super::{Bbr, Sample};

/// The number of round trips after which the older half of the window of a filter is forgotten,
/// before and after the pipe is full. Together the halves are `ExtraAckedFilterLen`.
const ROUNDS_OF_STARTUP: u64 = 1;
const ROUNDS: u64 = 5;

/// The excess of acknowledged bytes.
#[derive(Debug, Clone)]
pub(super) struct Aggregation {
    /// The begin of the interval, and the bytes delivered in it.
    since: Instant,
    delivered: u64,
    /// The most excess bytes in the current half of the filter's window, and in the one before.
    current: u64,
    before: u64,
    /// The round trips of the current half.
    rounds: u64,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Aggregation {
            since: now,
            delivered: 0,
            current: 0,
            before: 0,
            rounds: 0,
        }
    }

    /// Begins an interval.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since = now;
        self.delivered = 0;
    }

    /// The most excess bytes of the last round trips (`extra_acked`).
    pub(super) fn most(&self) -> u64 {
        self.current.max(self.before)
    }

    /// Adds delivered bytes, and returns the excess over `bandwidth` in this interval.
    fn add(&mut self, bytes: u64, bandwidth: u64, now: Instant) -> u64 {
        let mut expected = volume(bandwidth, now - self.since);
        if self.delivered <= expected {
            self.begin(now);
            expected = 0;
        }
        self.delivered = self.delivered.saturating_add(bytes);
        self.delivered.saturating_sub(expected)
    }

    /// Counts a round trip, and forgets old ones.
    fn count_round(&mut self, kept: u64) {
        self.rounds += 1;
        if self.rounds >= kept {
            self.rounds = 0;
            self.before = std::mem::take(&mut self.current);
        }
    }
}

impl Bbr {
    /// Measures the excess of an acknowledgement (`UpdateACKAggregation`).
    pub(super) fn update_aggregation(&mut self, sample: &Sample) {
        if self.rounds.started() {
            let kept = match self.pipe.was_full() {
                true => ROUNDS,
                false => ROUNDS_OF_STARTUP,
            };
            self.aggregation.count_round(kept);
        }
        let bandwidth = self.bandwidth();
        let bytes = sample.newly_delivered;
        let excess = self.aggregation.add(bytes, bandwidth, sample.now);
        let excess = excess.min(self.control.window());
        self.aggregation.current = self.aggregation.current.max(excess);
    }
}
