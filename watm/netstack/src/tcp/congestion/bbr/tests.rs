//! Tests of each state and bound, with acknowledgements made up for them.

use super::arithmetic::volume;
use super::*;
use crate::tcp::congestion::RateSample;

/// The bytes of a segment.
const SEGMENT: u64 = 1000;
/// The rate of the path in bytes per second, and its round trip. They make a product of 100
/// segments.
const RATE: u64 = 10_000_000;
const TRIP: Duration = Duration::from_millis(10);
const PRODUCT: u64 = 100 * SEGMENT;
const QUEUED: Duration = Duration::from_millis(18);

/// A connection, whose acknowledgements each end a round trip.
struct Flow {
    bbr: Bbr,
    now: Instant,
    delivered: u64,
    lost: u64,
    phase: Phase,
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy)]
struct Shape {
    rate: u64,
    trip: Duration,
    in_flight: u64,
    lost: u64,
    /// True if it begins a round trip.
    begins: bool,
    app_limited: bool,
    window_limited: bool,
    echo: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            rate: RATE,
            trip: TRIP,
            in_flight: PRODUCT,
            lost: 0,
            begins: true,
            app_limited: false,
            window_limited: false,
            echo: false,
        }
    }
}

impl Flow {
    fn new(selective: bool) -> Self {
        let start = Start {
            now: Instant::default(),
            segment: SEGMENT as usize,
            round_trip: Some(TRIP),
            lost_handshake: false,
            selective,
            seed: 1,
        };
        Flow {
            bbr: Bbr::new(&start),
            now: start.now,
            delivered: 0,
            lost: 0,
            phase: Phase::Open,
        }
    }

    /// A flow that has left Startup and Drain, at `RATE`.
    fn steady() -> Self {
        let mut flow = Flow::new(true);
        flow.rounds(5);
        assert_eq!(flow.bbr.state, State::Cruise);
        flow
    }

    /// A flow that probes for bandwidth.
    fn probing() -> Self {
        let mut flow = Flow::steady();
        flow.now = flow.now + Duration::from_secs(3);
        flow.rounds(2);
        assert_eq!(flow.bbr.state, State::Up);
        flow
    }

    fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.ack(Shape::default());
        }
    }

    fn ack(&mut self, shape: Shape) {
        let bytes = volume(shape.rate, shape.trip);
        let prior = self.delivered;
        self.now = self.now + shape.trip;
        self.delivered += bytes;
        self.bbr.on_ack(&Ack {
            now: self.now,
            delivered: bytes as usize,
            acknowledged: bytes as usize,
            in_flight: shape.in_flight as usize,
            total_delivered: self.delivered,
            round_trip: Some(shape.trip),
            smoothed: shape.trip,
            least: TRIP,
            rate: Some(RateSample {
                delivered: bytes,
                rate: Some(shape.rate),
                app_limited: shape.app_limited,
                prior_delivered: if shape.begins { prior } else { 0 },
                sent_in_flight: shape.in_flight as usize,
                lost: shape.lost,
            }),
            phase: self.phase,
            window_limited: shape.window_limited,
            most_in_flight: shape.in_flight as usize,
            congestion_echoed: shape.echo,
        });
    }

    /// Loses segments one after the other, of `in_flight` bytes.
    fn lose(&mut self, segments: u64, in_flight: u64) {
        for since in 1..=segments {
            self.now = self.now + Duration::from_micros(1);
            self.lost += SEGMENT;
            self.bbr.on_loss(&Loss {
                now: self.now,
                bytes: SEGMENT as usize,
                sent_in_flight: in_flight as usize,
                lost_since_sent: since * SEGMENT,
                total_delivered: self.delivered,
                app_limited: false,
                window_limited: false,
            });
        }
    }

    fn recover(&mut self) {
        self.phase = Phase::Recovery;
        self.bbr.on_recovery(&Recovery {
            total_delivered: self.delivered,
        });
    }

    fn end_recovery(&mut self) {
        self.phase = Phase::Open;
        self.bbr.on_recovery_end(self.now);
    }

    fn undo(&mut self) {
        self.phase = Phase::Open;
        self.bbr.on_undo(&Undo {
            not_lost: SEGMENT as usize,
        });
    }

    fn time_out(&mut self, app_limited: bool) {
        self.phase = Phase::Timeout;
        self.bbr.on_timeout(&Timeout {
            now: self.now,
            in_flight: PRODUCT as usize,
            in_a_row: 1,
            total_delivered: self.delivered,
            app_limited,
            window_limited: false,
        });
    }

    fn restart(&mut self, idle: Duration) {
        self.now = self.now + idle;
        self.bbr.on_idle_restart(&IdleRestart {
            now: self.now,
            idle,
            app_limited: true,
        });
    }

    fn window(&self) -> u64 {
        self.bbr.window() as u64
    }

    fn pacing(&self) -> u64 {
        self.bbr.pacing_rate().unwrap()
    }
}

#[test]
fn the_first_rate_doubles_the_initial_window() {
    let flow = Flow::new(true);
    assert_eq!(flow.window(), 10 * SEGMENT);
    // 10 segments in 10 ms, times 2.77.
    assert_eq!(flow.pacing(), 2_770_000);
}

#[test]
fn the_first_measured_round_trip_corrects_the_first_rate() {
    let mut flow = Flow::new(true);
    flow.bbr = Bbr::new(&Start {
        now: flow.now,
        segment: SEGMENT as usize,
        round_trip: None,
        lost_handshake: false,
        selective: true,
        seed: 1,
    });
    assert_eq!(flow.pacing(), 27_700_000);
    flow.ack(Shape {
        rate: 100_000,
        app_limited: true,
        ..Shape::default()
    });
    assert_eq!(flow.pacing(), 2_770_000);
}

#[test]
fn startup_paces_at_a_multiple_of_the_bandwidth() {
    let mut flow = Flow::new(true);
    flow.ack(Shape {
        rate: 4_000_000,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.state, State::Startup);
    assert_eq!(flow.pacing(), 4_000_000 * 277 / 100 * 99 / 100);
    assert_eq!(flow.window(), 50 * SEGMENT);
}

#[test]
fn startup_ends_when_the_rate_stays_the_same() {
    let mut flow = Flow::new(true);
    for rate in [1, 2, 4, 8].map(|factor| factor * RATE) {
        flow.ack(Shape {
            rate,
            in_flight: 1 << 30,
            ..Shape::default()
        });
    }
    let same = Shape {
        rate: 9 * RATE,
        in_flight: 1 << 30,
        ..Shape::default()
    };
    flow.ack(same);
    flow.ack(same);
    assert_eq!(flow.bbr.state, State::Startup);
    flow.ack(same);
    assert_eq!(flow.bbr.state, State::Drain);
    assert_eq!(flow.pacing(), 9 * RATE / 2 * 99 / 100);
}

#[test]
fn startup_goes_on_while_the_application_limits_it() {
    let mut flow = Flow::new(true);
    for _ in 0..50 {
        flow.ack(Shape {
            app_limited: true,
            ..Shape::default()
        });
    }
    assert_eq!(flow.bbr.state, State::Startup);
}

#[test]
fn many_losses_end_startup() {
    let mut flow = Flow::new(true);
    flow.ack(Shape::default());
    flow.lose(6, PRODUCT);
    flow.recover();
    let much = Shape {
        lost: 10 * SEGMENT,
        in_flight: 2 * PRODUCT,
        rate: RATE / 2,
        ..Shape::default()
    };
    flow.ack(much);
    assert_eq!(flow.bbr.state, State::Drain);
    assert_eq!(flow.bbr.bounds.long, PRODUCT);
    // They were only late.
    flow.undo();
    assert_eq!(flow.bbr.state, State::Startup);
    assert_eq!(flow.bbr.bounds.long, UNBOUNDED);
}

#[test]
fn few_losses_do_not_end_startup() {
    for (losses, lost) in [(5, 10 * SEGMENT), (6, 4 * SEGMENT)] {
        let mut flow = Flow::new(true);
        flow.ack(Shape::default());
        flow.lose(losses, PRODUCT);
        flow.recover();
        flow.ack(Shape {
            lost,
            ..Shape::default()
        });
        assert_eq!(flow.bbr.state, State::Startup);
    }
}

#[test]
fn one_loss_ends_startup_without_selective_acknowledgements() {
    let mut flow = Flow::new(false);
    flow.ack(Shape::default());
    flow.lose(1, PRODUCT);
    flow.recover();
    flow.ack(Shape {
        in_flight: 2 * PRODUCT,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.state, State::Drain);
}

#[test]
fn an_echo_of_congestion_ends_startup() {
    let mut flow = Flow::new(true);
    flow.ack(Shape {
        echo: true,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.state, State::Drain);
}

#[test]
fn drain_ends_with_the_queue_or_after_some_round_trips() {
    let mut flow = Flow::new(true);
    let full = Shape {
        in_flight: 2 * PRODUCT,
        ..Shape::default()
    };
    for _ in 0..4 {
        flow.ack(full);
    }
    assert_eq!(flow.bbr.state, State::Drain);
    let mut patient = Flow {
        bbr: flow.bbr.clone(),
        ..flow
    };
    patient.rounds(1);
    assert_eq!(patient.bbr.state, State::Cruise);
    for _ in 0..3 {
        flow.ack(full);
        assert_eq!(flow.bbr.state, State::Drain);
    }
    flow.ack(full);
    assert_eq!(flow.bbr.state, State::Down);
    assert_eq!(flow.pacing(), RATE * 90 / 100 * 99 / 100);
}

#[test]
fn cruise_paces_a_little_below_the_bandwidth() {
    let flow = Flow::steady();
    assert_eq!(flow.pacing(), RATE * 99 / 100);
    assert_eq!(flow.bbr.product(), PRODUCT);
    // Twice the product, and the bytes that arrived beyond the expected ones.
    assert!((2 * PRODUCT..=3 * PRODUCT).contains(&flow.window()));
}

#[test]
fn a_probe_follows_some_seconds_or_round_trips_later() {
    // 63 round trips of 10 ms are less than 2 s.
    let mut flow = Flow::steady();
    let began = flow.now;
    while flow.bbr.state == State::Cruise {
        flow.rounds(1);
    }
    assert_eq!(flow.bbr.state, State::Refill);
    assert!(flow.now - began <= 63 * TRIP);
    // Reno would grow a small window in as many round trips as it has segments.
    let mut slow = Flow::new(true);
    let few = Shape {
        rate: RATE / 10,
        in_flight: 10 * SEGMENT,
        ..Shape::default()
    };
    for _ in 0..5 {
        slow.ack(few);
    }
    let began = slow.now;
    while slow.bbr.state == State::Cruise {
        slow.ack(few);
    }
    assert!((8 * TRIP..=10 * TRIP).contains(&(slow.now - began)));
}

#[test]
fn a_probe_fills_the_pipe_and_accelerates() {
    let mut flow = Flow::steady();
    flow.now = flow.now + Duration::from_secs(3);
    flow.bbr.bounds.short = 50 * SEGMENT;
    flow.bbr.bounds.rate = RATE / 2;
    flow.rounds(1);
    assert_eq!(flow.bbr.state, State::Refill);
    assert_eq!(flow.bbr.bounds.short, UNBOUNDED);
    assert_eq!(flow.pacing(), RATE * 99 / 100);
    flow.rounds(1);
    assert_eq!(flow.bbr.state, State::Up);
    assert_eq!(flow.pacing(), RATE * 125 / 100 * 99 / 100);
    // It grows on with a growing rate, and ends without it.
    flow.ack(Shape {
        rate: RATE * 13 / 10,
        ..Shape::default()
    });
    for _ in 0..2 {
        flow.ack(Shape {
            rate: RATE * 14 / 10,
            in_flight: 4 * PRODUCT,
            ..Shape::default()
        });
        assert_eq!(flow.bbr.state, State::Up);
    }
    flow.ack(Shape {
        rate: RATE * 14 / 10,
        in_flight: 4 * PRODUCT,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.state, State::Down);
    assert_eq!(flow.bbr.bandwidth(), RATE * 14 / 10);
}

#[test]
fn a_probe_goes_on_while_the_application_limits_it() {
    let mut flow = Flow::probing();
    for _ in 0..20 {
        flow.ack(Shape {
            app_limited: true,
            ..Shape::default()
        });
    }
    assert_eq!(flow.bbr.state, State::Up);
}

#[test]
fn many_losses_end_a_probe_and_bound_what_is_in_flight() {
    let mut flow = Flow::probing();
    // 2 % of 150 segments are 3, and chance adds 3.
    flow.lose(6, 150 * SEGMENT);
    assert_eq!(flow.bbr.state, State::Up);
    flow.lose(7, 150 * SEGMENT);
    assert_eq!(flow.bbr.state, State::Down);
    assert_eq!(flow.bbr.bounds.long, 149 * SEGMENT);
    // Down lasts until there is room for others.
    flow.ack(Shape {
        in_flight: 130 * SEGMENT,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.state, State::Down);
    flow.rounds(1);
    assert_eq!(flow.bbr.state, State::Cruise);
    assert_eq!(flow.window(), 149 * SEGMENT * 70 / 100);
    // They were only late: the probe begins again.
    flow.undo();
    assert_eq!(flow.bbr.state, State::Refill);
    assert_eq!(flow.bbr.bounds.long, UNBOUNDED);
}

#[test]
fn a_bound_is_at_least_a_share_of_the_target() {
    let mut flow = Flow::probing();
    flow.lose(9, 20 * SEGMENT);
    assert_eq!(flow.bbr.bounds.long, 70 * SEGMENT);
}

#[test]
fn the_probe_after_a_high_one_waits_and_is_cautious() {
    let mut flow = Flow::probing();
    flow.lose(7, 150 * SEGMENT);
    assert_eq!(flow.bbr.bounds.long, 149 * SEGMENT);
    // The window was full, until this acknowledgement of 100 segments.
    let full = Shape {
        in_flight: 49 * SEGMENT,
        ..Shape::default()
    };
    let less = Shape {
        in_flight: 40 * SEGMENT,
        ..Shape::default()
    };
    let began = flow.now;
    while flow.bbr.state != State::Refill {
        flow.ack(less);
    }
    assert!(flow.now - began > 63 * TRIP * 3);
    flow.ack(less);
    assert_eq!(flow.bbr.state, State::Up);
    assert_eq!(flow.window(), 149 * SEGMENT);
    flow.ack(less);
    assert_eq!(flow.bbr.state, State::Up);
    flow.ack(full);
    assert_eq!(flow.bbr.state, State::Down);
    // Nothing was lost, so that the next one follows at once.
    flow.rounds(1);
    assert_eq!(flow.bbr.state, State::Refill);
    flow.rounds(1);
    flow.ack(full);
    assert_eq!(flow.bbr.state, State::Up);
}

#[test]
fn the_long_term_bound_grows_twice_as_fast_in_each_round_trip() {
    let window = 64 * SEGMENT;
    let mut cycle = Cycle::new(Instant::default());
    let grown: Vec<u64> = (0..8)
        .map(|_| {
            cycle.double(window, SEGMENT);
            (0..64).map(|_| cycle.grow(SEGMENT)).sum()
        })
        .collect();
    assert_eq!(grown, [1, 2, 4, 8, 16, 32, 64, 64]);
}

#[test]
fn the_long_term_bound_grows_while_it_limits_a_probe() {
    let mut flow = Flow::probing();
    flow.bbr.bounds.long = flow.window();
    let bound = flow.bbr.bounds.long;
    flow.rounds(1);
    assert_eq!(flow.bbr.bounds.long, bound);
    flow.ack(Shape {
        rate: 4 * RATE,
        window_limited: true,
        ..Shape::default()
    });
    assert!(flow.bbr.bounds.long > bound);
    // More was in flight, and was not lost.
    flow.ack(Shape {
        in_flight: 2 * bound,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.bounds.long, 2 * bound);
}

#[test]
fn losses_beside_a_queue_lower_the_short_term_bounds() {
    let mut flow = Flow::steady();
    let window = flow.window();
    let queued = Shape {
        rate: RATE / 2,
        trip: QUEUED,
        ..Shape::default()
    };
    flow.ack(queued);
    flow.lose(1, PRODUCT);
    flow.recover();
    flow.ack(queued);
    assert_eq!(flow.bbr.bounds.rate, RATE * 70 / 100);
    assert!(flow.bbr.bounds.short < window);
    assert_eq!(flow.pacing(), RATE * 70 / 100 * 99 / 100);
    // The rate that arrives is safe.
    let faster = Shape {
        rate: RATE * 6 / 10,
        ..queued
    };
    flow.ack(faster);
    flow.lose(1, PRODUCT);
    flow.ack(faster);
    assert_eq!(flow.bbr.bounds.rate, RATE * 6 / 10);
}

#[test]
fn few_losses_without_a_queue_lower_nothing() {
    let mut flow = Flow::steady();
    flow.lose(4, PRODUCT);
    flow.recover();
    flow.rounds(2);
    assert_eq!(flow.bbr.bounds.rate, UNBOUNDED);
    flow.lose(9, PRODUCT);
    flow.rounds(2);
    assert_eq!(flow.bbr.bounds.rate, RATE);
    assert!(flow.bbr.bounds.short < UNBOUNDED);
}

#[test]
fn an_echo_of_congestion_lowers_the_bounds_or_ends_a_probe() {
    let mut flow = Flow::steady();
    flow.bbr.latest.reset();
    flow.ack(Shape {
        rate: RATE / 2,
        echo: true,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.bounds.rate, RATE * 85 / 100);
    let mut flow = Flow::probing();
    flow.ack(Shape {
        echo: true,
        in_flight: 150 * SEGMENT,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.state, State::Down);
    assert_eq!(flow.bbr.bounds.long, 150 * SEGMENT);
}

#[test]
fn an_echo_is_no_loss_of_the_recovery_before_it() {
    let mut flow = Flow::steady();
    flow.lose(1, PRODUCT);
    flow.recover();
    flow.rounds(1);
    flow.end_recovery();
    flow.now = flow.now + Duration::from_secs(3);
    flow.rounds(2);
    assert_eq!(flow.bbr.state, State::Up);
    flow.ack(Shape {
        echo: true,
        in_flight: 150 * SEGMENT,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.state, State::Down);
    flow.undo();
    assert_eq!(flow.bbr.state, State::Down);
}

#[test]
fn the_bandwidth_is_that_of_two_cycles() {
    let mut bandwidth = Bandwidth::default();
    let flow = Flow::steady();
    let sample = |rate, app_limited| Sample {
        rate,
        app_limited,
        ..probe_of(&flow)
    };
    bandwidth.update(&sample(100, false));
    bandwidth.update(&sample(90, false));
    bandwidth.update(&sample(80, true));
    assert_eq!(bandwidth.most(), 100);
    bandwidth.update(&sample(120, true));
    assert_eq!(bandwidth.most(), 120);
    bandwidth.advance();
    bandwidth.update(&sample(50, false));
    assert_eq!(bandwidth.most(), 120);
    bandwidth.advance();
    assert_eq!(bandwidth.most(), 50);
    // A cycle without a measurement does not count.
    bandwidth.advance();
    bandwidth.advance();
    assert_eq!(bandwidth.most(), 50);
}

/// A sample to change.
fn probe_of(flow: &Flow) -> Sample {
    Sample {
        now: flow.now,
        rate: RATE,
        delivered: PRODUCT,
        newly_delivered: SEGMENT,
        prior_delivered: 0,
        total_delivered: flow.delivered,
        sent_in_flight: PRODUCT,
        lost: 0,
        in_flight: PRODUCT,
        app_limited: false,
        window_limited: false,
        round_trip: Some(TRIP),
        phase: Phase::Open,
    }
}

#[test]
fn acknowledgements_that_arrive_together_widen_the_window() {
    let mut aggregation = Aggregation::new(Instant::default());
    let at = |milliseconds| Instant::default() + Duration::from_millis(milliseconds);
    // 10 segments each 10 ms, 40 of them at once.
    let mut flow = Flow::steady();
    let before = flow.bbr.aggregation.most();
    flow.bbr.aggregation.begin(flow.now);
    for _ in 0..4 {
        flow.bbr.update_aggregation(&Sample {
            newly_delivered: 50 * SEGMENT,
            ..probe_of(&flow)
        });
    }
    assert!(flow.bbr.aggregation.most() >= before.max(190 * SEGMENT));
    aggregation.begin(at(0));
    flow.bbr.aggregation = aggregation;
    // Ten round trips later they are forgotten.
    flow.rounds(12);
    assert!(flow.bbr.aggregation.most() <= PRODUCT);
}

#[test]
fn the_least_round_trip_is_measured_again_with_little_in_flight() {
    let mut flow = Flow::steady();
    let longer = Shape {
        trip: TRIP * 11 / 10,
        ..Shape::default()
    };
    let began = flow.now;
    while flow.bbr.state != State::ProbeRoundTrip {
        flow.ack(longer);
        assert!(flow.now - began < Duration::from_secs(6));
    }
    assert!(flow.now - began > Duration::from_millis(4900));
    assert_eq!(flow.window(), PRODUCT / 2);
    let bandwidth = flow.bbr.bandwidth();
    let began = flow.now;
    // Half of the rate arrives now, which does not count.
    let little = Shape {
        rate: RATE / 2,
        in_flight: PRODUCT / 2,
        trip: TRIP,
        ..Shape::default()
    };
    while flow.bbr.state == State::ProbeRoundTrip {
        flow.ack(little);
        assert!(flow.now - began < Duration::from_millis(300));
    }
    assert!(flow.now - began > Duration::from_millis(200));
    assert_eq!(flow.bbr.state, State::Cruise);
    assert_eq!(flow.bbr.bandwidth(), bandwidth);
    assert!(flow.window() >= PRODUCT);
    flow.ack(little);
    assert_eq!(flow.bbr.bandwidth(), bandwidth);
}

#[test]
fn a_probe_of_the_round_trip_returns_to_startup() {
    let mut flow = Flow::new(true);
    let limited = Shape {
        app_limited: true,
        trip: TRIP * 2,
        in_flight: 4 * SEGMENT,
        ..Shape::default()
    };
    let mut probed = false;
    for _ in 0..300 {
        flow.ack(limited);
        probed |= flow.bbr.state == State::ProbeRoundTrip;
    }
    assert!(probed);
    assert_eq!(flow.bbr.state, State::Startup);
}

#[test]
fn an_idle_time_replaces_a_probe_of_the_round_trip() {
    let mut flow = Flow::steady();
    flow.bbr.pace(125);
    flow.restart(Duration::from_secs(8));
    assert_eq!(flow.pacing(), RATE * 99 / 100);
    flow.ack(Shape {
        trip: TRIP * 2,
        ..Shape::default()
    });
    assert_ne!(flow.bbr.state, State::ProbeRoundTrip);
}

#[test]
fn an_idle_time_ends_a_probe_of_the_round_trip() {
    let mut flow = Flow::steady();
    while flow.bbr.state != State::ProbeRoundTrip {
        flow.ack(Shape {
            trip: TRIP * 11 / 10,
            in_flight: 20 * SEGMENT,
            ..Shape::default()
        });
    }
    flow.restart(Duration::from_secs(1));
    assert_eq!(flow.bbr.state, State::Cruise);
    assert!(flow.window() >= PRODUCT);
}

#[test]
fn a_longer_round_trip_counts_after_ten_seconds() {
    let mut flow = Flow::steady();
    let began = flow.now;
    let longer = Shape {
        trip: TRIP * 3,
        in_flight: 10 * SEGMENT,
        ..Shape::default()
    };
    while flow.bbr.round_trips.least() == Some(TRIP) {
        flow.ack(longer);
        assert!(flow.now - began < Duration::from_secs(11));
    }
    assert!(flow.now - began > Duration::from_millis(9900));
    assert_eq!(flow.bbr.round_trips.least(), Some(TRIP * 3));
}

#[test]
fn a_timeout_leaves_a_segment_and_the_end_of_recovery_restores_the_window() {
    let mut flow = Flow::steady();
    let window = flow.window();
    flow.time_out(false);
    assert_eq!(flow.window(), SEGMENT);
    flow.ack(Shape {
        rate: SEGMENT * 100,
        ..Shape::default()
    });
    assert_eq!(flow.window(), 4 * SEGMENT);
    flow.end_recovery();
    assert_eq!(flow.window(), window);
    flow.time_out(false);
    flow.undo();
    assert_eq!(flow.window(), window);
}

#[test]
fn a_timeout_ends_a_probe() {
    // Pacing limits Up, and not the window.
    let mut flow = Flow::probing();
    flow.time_out(false);
    assert_eq!(flow.bbr.state, State::Down);
    assert_eq!(flow.bbr.bounds.long, 70 * SEGMENT);
    let mut limited = Flow::probing();
    limited.time_out(true);
    assert_eq!(limited.bbr.state, State::Down);
    assert_eq!(limited.bbr.bounds.long, UNBOUNDED);
}

#[test]
fn a_timeout_lowers_the_short_term_bounds() {
    let mut flow = Flow::steady();
    flow.bbr.latest.reset();
    let window = flow.window();
    flow.time_out(false);
    flow.ack(Shape {
        rate: RATE / 2,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.bounds.rate, RATE * 70 / 100);
    assert_eq!(flow.bbr.bounds.short, window * 70 / 100);
    flow.undo();
    assert_eq!(flow.bbr.bounds.short, UNBOUNDED);
    assert_eq!(flow.window(), window);
    // Losses that were none do not add to later ones.
    flow.lose(1, PRODUCT);
    assert_eq!(flow.bbr.latest.lost_bytes(), SEGMENT);
}

#[test]
fn a_spurious_recovery_restores_the_bounds() {
    let mut flow = Flow::steady();
    let queued = Shape {
        rate: RATE / 2,
        trip: QUEUED,
        ..Shape::default()
    };
    flow.ack(queued);
    flow.lose(1, PRODUCT);
    flow.recover();
    flow.ack(queued);
    assert!(flow.bbr.bounds.rate < RATE);
    flow.undo();
    assert_eq!(flow.bbr.bounds.rate, UNBOUNDED);
    assert_eq!(flow.bbr.bounds.short, UNBOUNDED);
    assert_eq!(flow.bbr.state, State::Cruise);
}

#[test]
fn a_recovery_is_undone_until_another_one_begins() {
    let mut flow = Flow::probing();
    flow.lose(7, 150 * SEGMENT);
    flow.recover();
    flow.end_recovery();
    let mut late = Flow {
        bbr: flow.bbr.clone(),
        ..flow
    };
    late.undo();
    assert_eq!(late.bbr.bounds.long, UNBOUNDED);
    assert_eq!(late.bbr.state, State::Refill);
    flow.lose(1, 100 * SEGMENT);
    flow.recover();
    flow.undo();
    assert_eq!(flow.bbr.bounds.long, 149 * SEGMENT);
    assert_eq!(flow.bbr.state, State::Down);
    // A second one has nothing to take back.
    flow.undo();
    assert_eq!(flow.bbr.bounds.long, 149 * SEGMENT);
}

#[test]
fn a_quantum_is_a_millisecond_within_bounds() {
    let mut flow = Flow::steady();
    assert_eq!(flow.bbr.send_quantum(), 9900);
    flow.ack(Shape {
        rate: RATE * 100,
        ..Shape::default()
    });
    assert_eq!(flow.bbr.send_quantum(), 64 << 10);
    let mut slow = Flow::new(true);
    slow.bbr.set_segment(5000);
    assert_eq!(slow.bbr.send_quantum(), 10_000);
    slow.bbr.set_segment(0);
    assert_eq!(slow.bbr.send_quantum(), 2770);
}

#[test]
fn a_small_path_keeps_four_segments_in_flight() {
    let mut flow = Flow::new(true);
    let slow = Shape {
        rate: 50_000,
        in_flight: 0,
        ..Shape::default()
    };
    for _ in 0..20 {
        flow.ack(slow);
        assert!(flow.window() >= 4 * SEGMENT);
    }
    while flow.bbr.state != State::Cruise {
        flow.ack(slow);
    }
    assert_eq!(flow.pacing(), 49_500);
    assert!(flow.window() <= 10 * SEGMENT, "{}", flow.window());
}

/// Numbers of a sequence, for random acknowledgements.
struct Draw(Random);

impl Draw {
    /// A number with a random number of bits, at most `bits`.
    fn number(&mut self, bits: u64) -> u64 {
        let kept = self.0.below(bits + 1) as u32;
        let number = self.0.below(u64::MAX);
        number.checked_shr(64 - kept).unwrap_or(0)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    fn time(&mut self) -> Duration {
        Duration::from_nanos(self.number(36))
    }
}

/// Checks what the connection relies on.
fn check(bbr: &Bbr, segment: u64) {
    let rate = bbr.pacing_rate().unwrap();
    assert!(bbr.window() as u64 >= segment && rate > 0, "{bbr:?}");
    let quantum = bbr.send_quantum() as u64;
    assert!(quantum >= 2 * segment && quantum <= (64 << 10).max(2 * segment));
}

/// Makes random calls in a legal order: totals grow, and times do not run backwards.
fn call_at_random(seed: u64) {
    let mut draw = Draw(Random::new(seed));
    let mut flow = Flow::new(draw.chance(90));
    let mut segment = SEGMENT;
    for _ in 0..2000 {
        flow.now = flow.now + draw.time();
        let in_flight = draw.number(31);
        match draw.0.below(20) {
            0 => flow.lose(1 + draw.0.below(5), in_flight.max(6 * SEGMENT)),
            1 => flow.recover(),
            2 => flow.end_recovery(),
            3 => flow.undo(),
            4 if draw.chance(20) => flow.time_out(draw.chance(50)),
            5 => flow.restart(draw.time()),
            6 if draw.chance(10) => {
                segment = 500 + draw.0.below(65_000);
                flow.bbr.set_segment(segment as usize);
            }
            _ => flow.ack(Shape {
                rate: draw.number(36),
                trip: Duration::from_nanos(draw.number(33).max(1000)),
                in_flight,
                lost: draw.number(20),
                begins: draw.chance(50),
                app_limited: draw.chance(20),
                window_limited: draw.chance(50),
                echo: draw.chance(5),
            }),
        }
        check(&flow.bbr, segment);
    }
    flow.end_recovery();
    flow.ack(Shape::default());
    assert!(flow.window() >= 4 * segment, "{:?}", flow.bbr);
    check(&flow.bbr, segment);
}

#[test]
fn random_calls_leave_a_usable_window_and_rate() {
    for seed in 0..200 {
        call_at_random(seed);
    }
}

#[test]
fn impossible_numbers_do_not_panic() {
    let mut draw = Draw(Random::new(9));
    for _ in 0..500 {
        let mut flow = Flow::new(draw.chance(90));
        for _ in 0..100 {
            let trip = Duration::from_nanos(draw.number(63));
            let now = Instant(draw.number(64));
            flow.bbr.on_loss(&Loss {
                now,
                bytes: draw.number(31) as usize,
                sent_in_flight: draw.number(31) as usize,
                lost_since_sent: draw.number(64),
                total_delivered: draw.number(64),
                app_limited: draw.chance(50),
                window_limited: draw.chance(50),
            });
            flow.bbr.on_ack(&Ack {
                now,
                delivered: draw.number(31) as usize,
                acknowledged: 0,
                in_flight: draw.number(31) as usize,
                total_delivered: draw.number(64),
                round_trip: draw.chance(80).then_some(trip),
                smoothed: trip,
                least: trip,
                rate: draw.chance(90).then(|| RateSample {
                    delivered: draw.number(64),
                    rate: Some(draw.number(64)),
                    app_limited: draw.chance(20),
                    prior_delivered: draw.number(64),
                    sent_in_flight: draw.number(31) as usize,
                    lost: draw.number(64),
                }),
                phase: Phase::Recovery,
                window_limited: draw.chance(50),
                most_in_flight: 0,
                congestion_echoed: draw.chance(10),
            });
            check(&flow.bbr, SEGMENT);
        }
    }
}
