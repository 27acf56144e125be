//! Round trips, counted in packets (section 5.5.1): one begins with a transmission and ends when it
//! is acknowledged. The state machine of BBR counts them.

use super::Sample;

/// The round trips of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    count: u64,
    /// The deliveries at the begin of the one in progress (`next_round_delivered`).
    until: u64,
    /// True if the last acknowledgement began one (`round_start`).
    started: bool,
    /// The bytes delivered by then (C.delivered).
    delivered: u64,
}

impl Rounds {
    /// Counts the round trip that `sample` ends, if it does (`UpdateRound`).
    pub(super) fn update(&mut self, sample: &Sample) {
        self.delivered = sample.total_delivered;
        self.started = sample.prior_delivered >= self.until;
        if self.started {
            self.begin(sample.total_delivered);
            self.count += 1;
        }
    }

    /// Begins a round trip now (`StartRound`).
    pub(super) fn begin(&mut self, total_delivered: u64) {
        self.until = total_delivered;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The bytes delivered by the last acknowledgement.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn started(&self) -> bool {
        self.started
    }
}
