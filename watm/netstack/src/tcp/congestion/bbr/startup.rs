//! The states Startup (section 5.3.1), which doubles the rate in each round trip until the pipe is
//! full, and Drain (section 5.3.2), which empties the queue that this makes.

use super::arithmetic::part;
use super::{Bbr, Phase, Sample, State};

/// The growth of the rate, in percent, that shows that the pipe is not full, and the number of
/// round trips without it that show that it is (section 5.3.1.2).
const GROWTH: u64 = 125;
const ROUNDS: u32 = 3;
/// The number of losses in a round trip that end Startup (`BBRStartupFullLossCnt`,
/// section 5.3.1.3).
const LOSSES: u64 = 6;
/// The number of round trips after which Drain ends anyway.
const ROUNDS_OF_DRAIN: u64 = 3;

/// The estimate of whether the pipe is full.
#[derive(Debug, Clone, Default)]
pub(super) struct Pipe {
    /// The rate to exceed (`full_bw`), and the number of round trips that did not.
    rate: u64,
    rounds: u32,
    /// True if the pipe is full since the last reset (`full_bw_now`).
    full: bool,
    /// True if it ever was (`full_bw_reached`).
    was_full: bool,
    /// The number of round trips before Drain began.
    drain_began: u64,
}

impl Pipe {
    /// Compares the rate at the start of a round trip (`CheckFullBWReached`).
    pub(super) fn check(&mut self, sample: &Sample, round_started: bool) {
        if self.full || !round_started || sample.app_limited || sample.rate == 0 {
            return;
        }
        if sample.rate >= part(self.rate, GROWTH) {
            self.reset(sample.rate);
            return;
        }
        self.rounds += 1;
        self.full = self.rounds >= ROUNDS;
        self.was_full |= self.full;
    }

    /// Begins to look for a full pipe, at `rate` (`ResetFullBW`).
    pub(super) fn reset(&mut self, rate: u64) {
        self.rate = rate;
        self.rounds = 0;
        self.full = false;
    }

    /// Records that losses show a full pipe, or that they did not.
    pub(super) fn set_was_full(&mut self, full: bool) {
        self.was_full = full;
    }

    pub(super) fn full(&self) -> bool {
        self.full
    }

    pub(super) fn was_full(&self) -> bool {
        self.was_full
    }
}

impl Bbr {
    /// Leaves Startup if the pipe is full (`CheckStartupDone`).
    pub(super) fn check_startup_done(&mut self, sample: &Sample) {
        if self.state != State::Startup {
            return;
        }
        if self.pipe.was_full {
            self.drain();
        } else if self.loses_in_startup(sample) {
            self.leave_startup();
        }
    }

    /// Leaves Startup because of losses or an echo of congestion (section 5.3.1.3).
    pub(super) fn leave_startup(&mut self) {
        self.note_undo_state();
        self.pipe.was_full = true;
        self.bounds.long = self.product().max(self.latest.delivered());
        self.drain();
    }

    /// Returns true if a round trip of a recovery lost too much (`CheckStartupHighLoss`).
    fn loses_in_startup(&self, sample: &Sample) -> bool {
        if sample.phase != Phase::Recovery || !self.latest.ended() {
            return false;
        }
        let losses = self.latest.losses();
        match self.selective {
            true => losses >= LOSSES && self.is_too_high(sample.lost, sample.sent_in_flight),
            false => losses > 0,
        }
    }

    fn drain(&mut self) {
        self.state = State::Drain;
        self.pipe.drain_began = self.rounds.count();
    }

    /// Leaves Drain if its queue is empty (`CheckDrainDone`).
    pub(super) fn check_drain_done(&mut self, sample: &Sample) {
        if self.state != State::Drain {
            return;
        }
        let drained = sample.in_flight <= self.inflight(self.bandwidth(), 100);
        if drained || self.rounds.count() > self.pipe.drain_began + ROUNDS_OF_DRAIN {
            self.go_down(sample.now, sample.total_delivered);
        }
    }
}
