//! Conversations over bad networks, in virtual time: loss alone and in bursts, reordering,
//! repetition, damage, delays and MTUs that change, bottlenecks, applications that pause, small
//! windows. Every byte is right, no live flow is without a timer, and everything ends.
//!
//! `NETWORK_SEED=N` runs one seed, and prints its packets. `NETWORK_HOURS=N` runs seeds until that
//! much virtual time has passed.

mod support;

use std::env;
use std::panic::catch_unwind;
use std::time::Duration;

use support::conversation::{Conversation, Other};

/// The seeds of a test.
const SEEDS: u64 = 120;

/// The value of an environment variable that holds a number.
fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is no number")),
    )
}

/// The outcome of one seed. A panic is a failure too.
fn outcome(seed: u64, other: Other) -> Result<Duration, String> {
    let run = || {
        let mut conversation = Conversation::new(seed, other);
        conversation.traces = env::var_os("NETWORK_SEED").is_some();
        conversation.run()
    };
    catch_unwind(run).unwrap_or_else(|_| Err(format!("seed {seed} with {other:?} panicked")))
}

fn check(other: Other) {
    let limit = number("NETWORK_HOURS").map(|hours| Duration::from_secs(hours * 3600));
    let one = number("NETWORK_SEED");
    let mut passed = Duration::ZERO;
    let mut failures = Vec::new();
    let mut count = 0;
    for seed in one.unwrap_or(0).. {
        let done = match limit {
            Some(limit) => passed >= limit,
            None => seed >= SEEDS,
        };
        if count > 0 && (done || one.is_some()) {
            break;
        }
        count += 1;
        match outcome(seed, other) {
            Ok(length) => passed += length,
            Err(failure) => failures.push(failure),
        }
        if failures.len() == 10 {
            break;
        }
    }
    println!(
        "{count} conversations, {} virtual hours",
        passed.as_secs() / 3600
    );
    assert!(
        failures.is_empty(),
        "{} of {count} fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn two_stacks() {
    check(Other::Stack);
}

#[test]
fn a_peer_that_accepts() {
    check(Other::Accepts);
}

#[test]
fn a_peer_that_dials() {
    check(Other::Dials);
}
