//! BBRv3 (draft-ietf-ccwg-bbr-06): a model of the path, of its bandwidth and its least round trip,
//! sets the pacing rate and the window. Losses bound the model, but a single loss does not shrink
//! the window. Sections in these files are those of the draft.
//!
//! | file | content |
//! |---|---|
//! | `arithmetic` | products of rates, times and percentages; random numbers |
//! | `rounds` | round trips, counted in packets (section 5.5.1) |
//! | `bandwidth` | the bandwidth, and the signals of the last round trip (5.5.2, 5.5.10.3) |
//! | `aggregation` | acknowledgements that arrive together (5.5.9) |
//! | `bounds` | the bounds that losses set (5.5.10), and their return (5.5.11) |
//! | `startup` | the states Startup and Drain (5.3.1, 5.3.2) |
//! | `probe_bandwidth` | the cycle of ProbeBW (5.3.3) |
//! | `probe_round_trip` | the least round trip, and ProbeRTT (5.3.4) |
//! | `control` | pacing rate, send quantum and window (5.6) |
//!
//! It differs from the draft in some points:
//!
//! - Losses lower the short-term bounds only if they come with a queue, or are more than the
//!   tolerated share. A path such as a radio link loses segments without being full, and each of
//!   them would slow down a flow until its next probe.
//! - The tolerated share allows for chance, as few segments lose more than their share now and
//!   then.
//! - After a probe that lost too much, the next one waits four times as long, and Cruise leaves as
//!   much room as CUBIC does, if the path stays full. Flows of Reno and CUBIC beside it need this
//!   time and room to grow, if the path holds many segments.
//! - Losses in Down do not lower the rate because of a queue: both are those of the probe before
//!   it.
//! - An echo of congestion counts as congestion. The draft leaves this open.
//!
//! All arithmetic is on integers and saturates.

mod aggregation;
mod arithmetic;
mod bandwidth;
mod bounds;
mod control;
mod probe_bandwidth;
mod probe_round_trip;
mod rounds;
mod startup;
#[cfg(test)]
mod tests;

use core::time::Duration;

use watm_core::Instant;

use super::{Ack, Congestion, IdleRestart, Loss, Phase, Recovery, Sent, Start, Timeout, Undo};
use aggregation::Aggregation;
use arithmetic::Random;
use bandwidth::{Bandwidth, Latest};
use bounds::{Before, Bounds};
use control::Control;
use probe_bandwidth::Cycle;
use probe_round_trip::RoundTrips;
use rounds::Rounds;
use startup::Pipe;

/// The share of lost bytes in a round trip, in percent, that the algorithm tolerates while it
/// probes for bandwidth (`LossThresh`, section 2.8).
const TOLERATED_LOSS: u64 = 2;
/// The part of a bound that remains after a round trip with losses, in percent (`Beta`,
/// section 2.8).
const BETA: u64 = 70;
/// The part of a bound that remains after an echo of congestion, in percent. The draft leaves the
/// response to ECN open (section 3.7). This one is that of RFC 8511 section 3.
const BETA_OF_ECHO: u64 = 85;
/// The least window in segments (`MinPipeCwnd`, section 2.8).
const LEAST_SEGMENTS: u64 = 4;
/// The value of a bound that is not set.
const UNBOUNDED: u64 = u64::MAX;

/// The state of the algorithm. Sizes are in bytes, rates in bytes per second.
#[derive(Debug, Clone)]
pub(crate) struct Bbr {
    /// The bytes of a full segment (C.SMSS).
    segment: u64,
    /// True if the peer acknowledges selectively, so that more than one loss in a round trip is
    /// noticed (C.has_selective_acks).
    selective: bool,
    random: Random,
    state: State,
    rounds: Rounds,
    pipe: Pipe,
    bandwidth: Bandwidth,
    latest: Latest,
    bounds: Bounds,
    cycle: Cycle,
    round_trips: RoundTrips,
    aggregation: Aggregation,
    control: Control,
    /// True in a recovery, of either kind.
    recovers: bool,
    /// The state before the first loss of the last recovery.
    before: Option<Box<Before>>,
}

/// A state of the state machine (section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRoundTrip,
}

/// An acknowledgement with a sample of the delivery rate (RS of section 2.3).
#[derive(Debug, Clone, Copy)]
struct Sample {
    now: Instant,
    /// The rate, or 0 if there is no valid one.
    rate: u64,
    /// The bytes delivered since the newest delivered segment was sent (RS.delivered).
    delivered: u64,
    /// The bytes that this acknowledgement delivered (RS.newly_acked).
    newly_delivered: u64,
    /// The bytes delivered when that segment was sent, and now (P.delivered, C.delivered).
    prior_delivered: u64,
    total_delivered: u64,
    /// The bytes in flight when it was sent, and the bytes lost since.
    sent_in_flight: u64,
    lost: u64,
    in_flight: u64,
    app_limited: bool,
    window_limited: bool,
    round_trip: Option<Duration>,
    phase: Phase,
}

impl State {
    /// Returns true for the states of the cycle ProbeBW (section 5.3.3).
    fn is_of_cycle(self) -> bool {
        matches!(
            self,
            State::Down | State::Cruise | State::Refill | State::Up
        )
    }

    /// Returns true for the states that look for more bandwidth (`IsProbingBW`,
    /// section 5.5.10.3).
    fn accelerates(self) -> bool {
        matches!(self, State::Startup | State::Refill | State::Up)
    }
}

impl Bbr {
    /// Makes the state of a new connection (section 5.2.1).
    pub(super) fn new(start: &Start) -> Self {
        let segment = (start.segment as u64).max(1);
        Bbr {
            segment,
            selective: start.selective,
            random: Random::new(start.seed),
            state: State::Startup,
            rounds: Rounds::default(),
            pipe: Pipe::default(),
            bandwidth: Bandwidth::default(),
            latest: Latest::default(),
            bounds: Bounds::default(),
            cycle: Cycle::new(start.now),
            round_trips: RoundTrips::new(start.now, start.round_trip),
            aggregation: Aggregation::new(start.now),
            control: Control::new(segment, start),
            recovers: false,
            before: None,
        }
    }

    /// Reads the sample of an acknowledgement. Samples of ProbeRTT count as limited by the
    /// application (section 5.3.4.3).
    fn sample(&self, ack: &Ack) -> Option<Sample> {
        let rate = ack.rate?;
        Some(Sample {
            now: ack.now,
            rate: rate.rate.unwrap_or(0),
            delivered: rate.delivered,
            newly_delivered: ack.delivered as u64,
            prior_delivered: rate.prior_delivered,
            total_delivered: ack.total_delivered,
            sent_in_flight: rate.sent_in_flight as u64,
            lost: rate.lost,
            in_flight: ack.in_flight as u64,
            app_limited: rate.app_limited || self.round_trips.slowed(rate.prior_delivered),
            window_limited: ack.window_limited,
            round_trip: ack.round_trip,
            phase: ack.phase,
        })
    }

    /// Updates the model and the state machine (`UpdateModelAndState`, section 5.2.3).
    fn update_model(&mut self, sample: &Sample) {
        self.latest.update(sample);
        self.rounds.update(sample);
        self.cycle.count_round(self.rounds.started());
        self.bandwidth.update(sample);
        self.adapt_short_term();
        self.update_aggregation(sample);
        self.pipe.check(sample, self.rounds.started());
        self.check_startup_done(sample);
        self.check_drain_done(sample);
        self.advance_cycle(sample);
        self.round_trips.update(sample);
        self.check_round_trip_probe(sample);
        self.latest.advance(sample);
    }

    /// Handles an echo of congestion as a loss that shows that too much is in flight. The
    /// connection reports one for each window of data (RFC 3168 section 6.1.2). The draft wants a
    /// response, and defines none (section 3.7).
    fn on_echo(&mut self, sample: &Sample) {
        if self.state == State::Startup {
            self.leave_startup();
        } else if self.cycle.is_sampled() {
            self.handle_too_high(sample);
        } else {
            self.lower_short_term(BETA_OF_ECHO);
        }
    }
}

impl Congestion for Bbr {
    fn window(&self) -> usize {
        let window = self.control.window().max(self.segment);
        usize::try_from(window).unwrap_or(usize::MAX)
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.control.pacing_rate())
    }

    fn send_quantum(&self) -> usize {
        usize::try_from(self.control.quantum(self.segment)).unwrap_or(usize::MAX)
    }

    fn set_segment(&mut self, segment: usize) {
        self.segment = (segment as u64).max(1);
    }

    fn on_idle_restart(&mut self, restart: &IdleRestart) {
        if restart.app_limited {
            self.restart(restart.now);
        }
    }

    fn on_send(&mut self, _: &Sent) {}

    fn on_ack(&mut self, ack: &Ack) {
        let Some(sample) = self.sample(ack) else {
            return;
        };
        self.update_model(&sample);
        if ack.congestion_echoed {
            self.on_echo(&sample);
        }
        self.update_control(&sample);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.note_loss(loss.total_delivered);
        self.latest.count_loss(loss.bytes as u64, loss.now);
        self.check_probe_loss(loss);
    }

    fn on_recovery(&mut self, recovery: &Recovery) {
        self.note_loss(recovery.total_delivered);
        self.recovers = true;
    }

    /// Restores the window of before the recovery (section 5.6.4.4). The model bounds it in
    /// [`on_ack`](Congestion::on_ack).
    fn on_recovery_end(&mut self, _: Instant) {
        self.control.restore_window();
        self.end_recovery();
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.note_loss(timeout.total_delivered);
        self.latest
            .count_loss(timeout.in_flight as u64, timeout.now);
        self.save_window();
        self.recovers = true;
        self.check_probe_timeout(timeout);
        self.control.collapse(self.segment);
    }

    fn on_undo(&mut self, _: &Undo) {
        self.recovers = false;
        self.control.restore_window();
        if let Some(before) = self.before.take() {
            self.restore(&before);
        }
    }
}
