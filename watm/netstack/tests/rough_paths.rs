//! Flows over paths whose delay changes, in virtual time: every byte arrives, in at most three
//! times the time of an ideal sender. "Towards us" is from one stack to another. No TCP is quicker
//! than that sender, the kernel's included; `tests/interop/test_kernel.py` measures the kernel on
//! the paths where the stack needs most.

mod support;

use std::time::Duration;

use support::path::{Case, PATHS, SHAPES};
use support::transfer::{transfer, transfer_between};

/// The seeds for each kind of path and shape, and for shapes of many bytes.
const SEEDS: u64 = 320;
const LONG_SEEDS: u64 = 40;
/// The longest time of a case, as a multiple of the ideal sender's.
const MOST: f64 = 3.0;
/// The same for many bytes over a path with jitter, where the kernel needs 2.6 to 3.5 times as long
/// as the ideal sender: its slow start ends too early there.
const MOST_OF_LONG: f64 = 6.0;

/// The delay of acknowledgements, however short the path is.
const WAITS: Duration = Duration::from_millis(10);

/// Runs all seeds of a kind of path, and reports those that took too long.
fn check(path: usize, transfer: fn(&Case) -> Result<Duration, String>) {
    let (mut all, mut wrong) = (0, Vec::new());
    for (shape, (name, _)) in SHAPES.iter().enumerate() {
        let mut ratios = Vec::new();
        let seeds = if *name == "long" { LONG_SEEDS } else { SEEDS };
        all += seeds;
        let jitters = matches!(PATHS[path].0, "jitter" | "alternating");
        let most = match jitters && *name == "long" {
            true => MOST_OF_LONG,
            false => MOST,
        };
        for seed in 0..seeds {
            let case = Case::new(path, shape, seed);
            let ideal = case.ideal();
            match transfer(&case) {
                Ok(took) => {
                    let ratio = took.as_secs_f64() / ideal.as_secs_f64();
                    ratios.push((ratio, seed));
                    if took > ideal.mul_f64(most) + case.luck().max(WAITS) {
                        wrong.push(format!("{name}, seed {seed}: {took:?}, ideally {ideal:?}"));
                    }
                }
                Err(error) => wrong.push(format!("{name}, seed {seed}: {error}")),
            }
        }
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let (Some((middle, _)), Some((worst, seed))) =
            (ratios.get(ratios.len() / 2), ratios.last())
        {
            let path = PATHS[path].0;
            println!("{path}, {name}: median {middle:.2}, worst {worst:.2} (seed {seed})");
        }
    }
    let some: Vec<_> = wrong.iter().take(10).collect();
    assert!(
        wrong.is_empty(),
        "{} of {all} on {}: {some:#?}",
        wrong.len(),
        PATHS[path].0
    );
}

macro_rules! paths {
    ($($name:ident: $path:literal $transfer:ident,)+) => {
        $(#[test]
        fn $name() {
            check($path, $transfer);
        })+
    };
}

paths! {
    a_steady_path: 0 transfer,
    a_path_that_gets_longer: 1 transfer,
    a_path_that_gets_shorter: 2 transfer,
    a_path_that_alternates: 3 transfer,
    a_path_that_jitters: 4 transfer,
    a_path_that_stalls: 5 transfer,
    a_path_that_reorders: 6 transfer,
    a_path_that_duplicates: 7 transfer,
    a_narrow_path: 8 transfer,
    a_narrow_path_that_jitters: 9 transfer,
    a_path_that_alternates_towards_us: 3 transfer_between,
    a_path_that_jitters_towards_us: 4 transfer_between,
    a_path_that_reorders_towards_us: 6 transfer_between,
    a_path_that_duplicates_towards_us: 7 transfer_between,
}
