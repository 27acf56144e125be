//! The estimate of the path's bandwidth (sections 5.5.2 to 5.5.6), and the signals of the last
//! round trip (section 5.5.10.3). The other files of BBR read them.

use core::time::Duration;

use watm_core::Instant;

use super::super::queueing;
use super::Sample;

/// The estimate of the bandwidth: the highest rate in the current cycle and the one before
/// (`max_bw`).
#[derive(Debug, Clone, Default)]
pub(super) struct Bandwidth {
    before: u64,
    current: u64,
}

/// The signals of the round trip in progress. Its losses delimit it: it begins with the first one.
#[derive(Debug, Clone, Default)]
pub(super) struct Latest {
    /// The highest rate, and the most bytes delivered (`bw_latest`, `inflight_latest`).
    rate: u64,
    delivered: u64,
    /// The deliveries at its begin (`loss_round_delivered`).
    until: u64,
    /// True if the last acknowledgement ended it (`loss_round_start`).
    ended: bool,
    /// True if something was lost in it (`is_loss_in_round`), and the bytes.
    lost: bool,
    lost_bytes: u64,
    /// The quickest measurement since its first loss.
    quickest: Option<Duration>,
    /// The number of times at which losses were noticed in it, and the last one.
    losses: u64,
    lost_at: Option<Instant>,
}

impl Bandwidth {
    /// Takes over a rate. One that the application limited only counts if it is higher
    /// (section 5.5.4).
    pub(super) fn update(&mut self, sample: &Sample) {
        if sample.rate >= self.most() || !sample.app_limited {
            self.current = self.current.max(sample.rate);
        }
    }

    /// Ends a cycle, and forgets the one before it, unless nothing was measured (section 5.5.6).
    pub(super) fn advance(&mut self) {
        if self.current > 0 {
            self.before = std::mem::take(&mut self.current);
        }
    }

    /// The highest rate in bytes per second; 0 before the first sample.
    pub(super) fn most(&self) -> u64 {
        self.before.max(self.current)
    }
}

impl Latest {
    /// Takes over a sample (`UpdateLatestDeliverySignals`).
    pub(super) fn update(&mut self, sample: &Sample) {
        self.rate = self.rate.max(sample.rate);
        self.delivered = self.delivered.max(sample.delivered);
        self.quickest = earlier(self.quickest, sample.round_trip);
        self.ended = sample.prior_delivered >= self.until;
        if self.ended {
            self.until = sample.total_delivered;
        }
    }

    /// Begins the next round trip with `sample`, if one ended (`AdvanceLatestDeliverySignals`).
    pub(super) fn advance(&mut self, sample: &Sample) {
        if self.ended {
            self.rate = sample.rate;
            self.delivered = sample.delivered;
            self.losses = 0;
            self.lost_bytes = 0;
        }
    }

    /// Forgets the round trip (`ResetCongestionSignals`).
    pub(super) fn reset(&mut self) {
        self.lost = false;
        self.rate = 0;
        self.delivered = 0;
    }

    /// Records a loss. The first one begins a round trip (`NoteLoss`, section 5.5.10.2).
    pub(super) fn note_loss(&mut self, total_delivered: u64) {
        if !std::mem::replace(&mut self.lost, true) {
            self.until = total_delivered;
            self.quickest = None;
            self.lost_bytes = 0;
            self.losses = 0;
        }
    }

    /// Counts lost bytes, and the times at which losses were noticed: all losses of an
    /// acknowledgement are one.
    pub(super) fn count_loss(&mut self, bytes: u64, now: Instant) {
        self.lost_bytes = self.lost_bytes.saturating_add(bytes);
        if self.lost_at.replace(now) != Some(now) {
            self.losses += 1;
        }
    }

    /// Returns true if something was lost in the round trip that just ended, and forgets it.
    pub(super) fn take_lost(&mut self) -> bool {
        self.ended && std::mem::take(&mut self.lost)
    }

    /// Forgets the losses of the round trip, because they were none.
    pub(super) fn forget_losses(&mut self) {
        self.lost = false;
    }

    /// Returns true if every segment since the loss waited in a queue, on a path whose least round
    /// trip is `least`.
    pub(super) fn waited(&self, least: Option<Duration>) -> bool {
        let measured = self.quickest.zip(least);
        measured.is_none_or(|(quickest, least)| queueing::waited(quickest, least))
    }

    pub(super) fn lost_bytes(&self) -> u64 {
        self.lost_bytes
    }

    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}
