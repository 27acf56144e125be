//! The outputs of BBR (section 5.6): pacing rate, send quantum and window, from the model and the
//! state.

use core::time::Duration;

use super::arithmetic::{part, rate, volume};
use super::{Bbr, LEAST_SEGMENTS, Sample, Start, State};
use crate::tcp::congestion::initial_window;

/// The part of the bandwidth at which to pace, in percent: a little less than all of it keeps
/// queues short (`PacingMarginPercent`, section 2.5).
const PACED: u64 = 99;
/// The gain of the pacing rate in Startup, in percent (section 2.5).
const STARTUP_GAIN: u64 = 277;
/// The round trip for the first pacing rate, if none was measured (section 5.6.2).
const NOMINAL: Duration = Duration::from_millis(1);
/// The time of pacing whose bytes leave at once, and the bounds of their number (section 5.6.3).
const QUANTUM: Duration = Duration::from_millis(1);
const LEAST_QUANTUM: u64 = 2;
const MOST_QUANTUM: u64 = 64 << 10;
/// The number of quanta that hosts hold back, to handle them at once (section 5.5.8.1).
const QUANTA: u64 = 3;
/// The segments beyond a multiple of the bandwidth's product that Up may send (section 5.6.4.2).
const SEGMENTS_OF_UP: u64 = 2;

/// The outputs.
#[derive(Debug, Clone)]
pub(super) struct Control {
    window: u64,
    /// The window before a recovery or ProbeRTT (`prior_cwnd`).
    saved: u64,
    pacing_rate: u64,
    /// True if a round trip was measured: until then, the pacing rate is a guess.
    measured: bool,
}

impl Control {
    /// Makes the outputs of a new connection (`InitPacingRate`, sections 5.6.2 and 5.6.4.1). The
    /// window is a segment if the handshake lost a packet (RFC 5681 section 3.1).
    pub(super) fn new(segment: u64, start: &Start) -> Self {
        let window = initial_window(segment as usize) as u64;
        let round_trip = start.round_trip;
        Control {
            window: if start.lost_handshake {
                segment
            } else {
                window
            },
            saved: 0,
            pacing_rate: first_rate(window, round_trip.unwrap_or(NOMINAL)),
            measured: round_trip.is_some(),
        }
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    pub(super) fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// The bytes that leave at once.
    pub(super) fn quantum(&self, segment: u64) -> u64 {
        let least = LEAST_QUANTUM.saturating_mul(segment);
        volume(self.pacing_rate, QUANTUM)
            .min(MOST_QUANTUM)
            .max(least)
    }

    /// Restores the saved window (`RestoreCwnd`, section 5.6.4.4).
    pub(super) fn restore_window(&mut self) {
        self.window = self.window.max(self.saved);
    }

    /// Shrinks the window to a segment, after a timeout (section 5.6.4.4).
    pub(super) fn collapse(&mut self, segment: u64) {
        self.window = segment;
    }
}

fn first_rate(window: u64, round_trip: Duration) -> u64 {
    part(rate(window, round_trip), STARTUP_GAIN)
}

impl State {
    /// The pacing rate relative to the bandwidth, in percent (section 5.6.1).
    fn pacing_gain(self) -> u64 {
        match self {
            State::Startup => STARTUP_GAIN,
            State::Drain => 50,
            State::Down => 90,
            State::Cruise | State::Refill | State::ProbeRoundTrip => 100,
            State::Up => 125,
        }
    }

    /// The window relative to what fills the path, in percent (section 5.6.1).
    fn window_gain(self) -> u64 {
        match self {
            State::Up => 225,
            State::ProbeRoundTrip => 50,
            _ => 200,
        }
    }
}

impl Bbr {
    /// The rate that the path bears (`bw`, section 2.9.1).
    pub(super) fn bandwidth(&self) -> u64 {
        self.bandwidth.most().min(self.bounds.rate)
    }

    /// The bytes that fill the path (`bdp`, section 2.9.2).
    pub(super) fn product(&self) -> u64 {
        self.product_at(self.bandwidth(), 100)
    }

    /// The bytes to have in flight, unless losses shrank the window (`TargetInflight`,
    /// section 5.3.3.8.3).
    pub(super) fn target(&self) -> u64 {
        self.product().min(self.control.window)
    }

    /// The bytes that fill the path at `bandwidth`, times `gain` percent (`BDPMultiple`,
    /// section 5.6.4.2).
    fn product_at(&self, bandwidth: u64, gain: u64) -> u64 {
        match self.round_trips.least() {
            Some(least) => part(volume(bandwidth, least), gain),
            None => self.initial_window(),
        }
    }

    fn initial_window(&self) -> u64 {
        initial_window(self.segment as usize) as u64
    }

    /// The bytes in flight for `bandwidth` times `gain` percent (`Inflight`).
    pub(super) fn inflight(&self, bandwidth: u64, gain: u64) -> u64 {
        self.with_quanta(self.product_at(bandwidth, gain))
    }

    /// Adds what hosts hold back (`QuantizationBudget`).
    fn with_quanta(&self, inflight: u64) -> u64 {
        let quanta = self.control.quantum(self.segment).saturating_mul(QUANTA);
        let inflight = inflight.max(quanta).max(self.least_window());
        match self.state {
            State::Up => inflight.saturating_add(self.segment.saturating_mul(SEGMENTS_OF_UP)),
            _ => inflight,
        }
    }

    /// The least window, which keeps a delayed acknowledgement and its segments on the path
    /// (section 5.6.4.3).
    fn least_window(&self) -> u64 {
        LEAST_SEGMENTS.saturating_mul(self.segment)
    }

    /// The window of ProbeRTT (`ProbeRTTCwnd`, section 5.6.4.5).
    pub(super) fn window_of_probe(&self) -> u64 {
        let gain = State::ProbeRoundTrip.window_gain();
        self.product_at(self.bandwidth(), gain)
            .max(self.least_window())
    }

    /// Updates the outputs (`UpdateControlParameters`, section 5.2.3).
    pub(super) fn update_control(&mut self, sample: &Sample) {
        if let (false, Some(trip)) = (self.control.measured, sample.round_trip) {
            self.control.measured = true;
            self.control.pacing_rate = first_rate(self.initial_window(), trip);
        }
        self.pace(self.state.pacing_gain());
        self.update_window(sample);
    }

    /// Paces at `gain` percent of the bandwidth. Startup only accelerates
    /// (`SetPacingRateWithGain`, section 5.6.2).
    pub(super) fn pace(&mut self, gain: u64) {
        let rate = part(part(self.bandwidth(), gain), PACED).max(self.segment);
        if self.pipe.was_full() || rate > self.control.pacing_rate {
            self.control.pacing_rate = rate;
        }
    }

    /// Saves the window, unless it is already cut (`SaveCwnd`, section 5.6.4.4).
    pub(super) fn save_window(&mut self) {
        let cut = self.recovers || self.state == State::ProbeRoundTrip;
        let least = if cut { self.control.saved } else { 0 };
        self.control.saved = self.control.window.max(least);
    }

    /// The window, without the cut of a recovery in progress.
    pub(super) fn window_before_recovery(&self) -> u64 {
        let before = if self.recovers { self.control.saved } else { 0 };
        self.control.window.max(before)
    }

    /// Grows the window to what the model wants, or shrinks it (`SetCwnd`, section 5.6.4.6).
    fn update_window(&mut self, sample: &Sample) {
        let wanted = self.product_at(self.bandwidth(), self.state.window_gain());
        let wanted = self.with_quanta(wanted.saturating_add(self.aggregation.most()));
        let grown = self.control.window.saturating_add(sample.newly_delivered);
        if self.pipe.was_full() {
            self.control.window = grown.min(wanted);
        } else if self.control.window < wanted || sample.total_delivered < self.initial_window() {
            self.control.window = grown;
        }
        let least = self.least_window();
        self.control.window = self.control.window.max(least).min(self.cap().max(least));
    }

    /// The most that losses and ProbeRTT leave of the window (`BoundCwndForProbeRTT` and
    /// `BoundCwndForModel`, sections 5.6.4.5 and 5.6.4.7).
    fn cap(&self) -> u64 {
        let cap = match self.state {
            State::Startup | State::Drain => return self.bounds.short,
            State::Down | State::Refill | State::Up => self.bounds.long,
            State::Cruise => self.bound_with_headroom(),
            State::ProbeRoundTrip => {
                let headroom = self.bound_with_headroom();
                headroom.min(self.window_of_probe())
            }
        };
        cap.min(self.bounds.short)
    }
}
