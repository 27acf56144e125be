//! Runs a model, and holds what models have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The number of times that a thread may be stopped in the middle of something, in one order. Two
/// find most faults, and each more takes several times as long.
const PREEMPTIONS: usize = 3;

/// Orders of one model. More would take longer than a test may.
const MOST_ORDERS: u64 = 2_000_000;

/// Run a model in every order; panics in one in which something does not hold.
pub(crate) fn explore(name: &str, model: fn()) {
    let begin = Instant::now();
    let orders = Arc::new(AtomicU64::new(0));
    let counted = orders.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 20_000;
    println!("{name} …");
    builder.check(move || {
        let order = counted.fetch_add(1, Ordering::Relaxed);
        assert!(order < MOST_ORDERS, "the model is too large");
        model();
    });
    let orders = orders.load(Ordering::Relaxed);
    println!(
        "{name}: {orders} orders, {:.1} s",
        begin.elapsed().as_secs_f32()
    );
}
