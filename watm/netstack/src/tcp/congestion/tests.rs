//! The algorithms on a simulated path: alone with random losses, and beside each other.

use core::time::Duration;

use super::Algorithm;
use super::simulation::{Path, Simulation, Work};

const SECOND: Duration = Duration::from_secs(1);
const MEGABIT: u64 = 1_000_000;

/// A path of some megabits per second and milliseconds, whose queue holds what fills the path.
fn path(megabits: u64, milliseconds: u64) -> Path {
    Path {
        rate: megabits * MEGABIT,
        round_trip: Duration::from_millis(milliseconds),
        queue: 100,
        loss: 0,
        late: Duration::ZERO,
    }
}

/// Runs one flow, and returns its work after the first seconds.
fn alone(algorithm: Algorithm, path: Path, seed: u64) -> Work {
    let mut simulation = Simulation::new(path, seed);
    simulation.add(algorithm, Duration::ZERO);
    simulation.run(2 * SECOND);
    simulation.run(8 * SECOND)[0]
}

/// Runs a flow, and another one that joins it, and checks that each has between half and twice its
/// share, once they had the time to find it.
fn check_shares(first: Algorithm, second: Algorithm, path: Path) {
    let mut simulation = Simulation::new(path, 3);
    simulation.add(first, Duration::ZERO);
    simulation.add(second, 2 * SECOND);
    simulation.run(40 * SECOND);
    let works = simulation.run(60 * SECOND);
    let shares: Vec<u64> = works
        .iter()
        .map(|work| work.rate * 200 / path.rate)
        .collect();
    assert!(
        shares.iter().all(|share| (50..=200).contains(share)),
        "{first:?} and {second:?} have {shares:?} percent of their share of {path:?}"
    );
    assert!(shares.iter().sum::<u64>() > 180, "{shares:?}");
}

#[test]
fn bbr_fills_a_path_that_loses_one_segment_in_a_hundred() {
    let lossy = Path {
        loss: 100,
        ..path(190, 20)
    };
    for seed in [1, 2] {
        let rate = alone(Algorithm::Bbr, lossy, seed).rate;
        assert!(rate >= 170 * MEGABIT, "{rate}");
    }
}

#[test]
fn cubic_uses_a_path_that_loses_one_segment_in_a_hundred() {
    let lossy = Path {
        loss: 100,
        ..path(190, 20)
    };
    for seed in 1..=50 {
        let rate = at_first(lossy, seed);
        assert!(rate >= 120 * MEGABIT, "{rate} with seed {seed}");
    }
}

/// Round trips that are long because the ends are busy do not turn random losses into congestion.
#[test]
fn cubic_uses_a_lossy_path_whose_ends_are_late() {
    let lossy = Path {
        loss: 100,
        late: Duration::from_millis(8),
        ..path(190, 20)
    };
    let mut rates = Vec::from_iter((1..=31).map(|seed| at_first(lossy, seed)));
    rates.sort_unstable();
    let median = rates[rates.len() / 2];
    assert!(median >= 100 * MEGABIT, "{median}");
}

/// Runs one flow of CUBIC. Returns its rate from 1 to 4 s, too early to make up for a slow start that
/// ended early.
fn at_first(path: Path, seed: u64) -> u64 {
    let mut simulation = Simulation::new(path, seed * 7919);
    simulation.add(Algorithm::Cubic, Duration::ZERO);
    simulation.run(SECOND);
    simulation.run(3 * SECOND)[0].rate
}

#[test]
fn bbr_fills_a_path_without_losses() {
    for path in [path(100, 20), path(20, 100), path(2, 50)] {
        let work = alone(Algorithm::Bbr, path, 1);
        assert!(work.rate >= path.rate * 9 / 10, "{work:?} of {path:?}");
        assert!(work.loss < 300, "{work:?} of {path:?}");
    }
}

#[test]
fn two_flows_of_bbr_share_a_path() {
    check_shares(Algorithm::Bbr, Algorithm::Bbr, path(40, 20));
    check_shares(Algorithm::Bbr, Algorithm::Bbr, path(40, 100));
}

#[test]
fn bbr_and_cubic_share_a_short_path() {
    check_shares(Algorithm::Bbr, Algorithm::Cubic, path(40, 20));
    check_shares(Algorithm::Cubic, Algorithm::Bbr, path(40, 20));
}

#[test]
fn bbr_and_cubic_share_a_long_path() {
    check_shares(Algorithm::Bbr, Algorithm::Cubic, path(40, 100));
    check_shares(Algorithm::Cubic, Algorithm::Bbr, path(40, 100));
}

/// draft-ietf-ccwg-bbr-06, test cases: the bandwidth grows, and shrinks, to a tenth of it.
#[test]
fn bbr_follows_a_changing_bandwidth() {
    let slow = path(10, 20);
    let fast = path(100, 20);
    let mut simulation = Simulation::new(slow, 1);
    simulation.add(Algorithm::Bbr, Duration::ZERO);
    simulation.run(5 * SECOND);
    simulation.set_path(fast);
    simulation.run(8 * SECOND);
    let rate = simulation.run(2 * SECOND)[0].rate;
    assert!(rate >= 80 * MEGABIT, "{rate}");
    simulation.set_path(slow);
    simulation.run(8 * SECOND);
    let work = simulation.run(4 * SECOND)[0];
    assert!(work.rate >= 8 * MEGABIT && work.loss < 200, "{work:?}");
}

/// A path whose queue is short, so that a probe loses much.
fn short_queue(megabits: u64, milliseconds: u64) -> Path {
    Path {
        queue: 50,
        ..path(megabits, milliseconds)
    }
}

/// Runs a flow of BBR for 40 s, and calls `watch` with its state in each hundredth of a second.
fn watch(path: Path, mut watch: impl FnMut(&str)) {
    let mut simulation = Simulation::new(path, 3);
    simulation.add(Algorithm::Bbr, Duration::ZERO);
    for _ in 0..4000 {
        simulation.run(SECOND / 100);
        watch(&simulation.state(0));
    }
}

/// draft-ietf-ccwg-bbr-06 section 5.3.3.8: a probe that lost too much delays the next one, but not
/// for longer than its wait. ProbeRTT does not begin the wait again.
#[test]
fn bbr_probes_again_after_a_probe_that_lost_much() {
    for (megabits, milliseconds) in [(20, 60), (10, 100)] {
        let (mut since, mut longest) = (0, 0);
        watch(short_queue(megabits, milliseconds), |state| {
            let probes = state.contains("state: Refill");
            since = if probes { 0 } else { since + 1 };
            longest = longest.max(since);
        });
        assert!(longest < 1300, "{longest} hundredths of a second");
    }
}

/// draft-ietf-ccwg-bbr-06 section 5.3.3.6: the probe after one that lost too much ends at the bound
/// that this has set, before anything is lost. The next one goes beyond it.
#[test]
fn bbr_probes_with_caution_after_a_probe_that_lost_much() {
    let mut cautious = Vec::new();
    watch(short_queue(20, 60), |state| {
        let is_cautious = state.contains("cautious: true");
        if cautious.last() != Some(&is_cautious) {
            cautious.push(is_cautious);
        }
    });
    assert!(cautious.len() > 4, "{cautious:?}");
}
