//! Summaries of durations.

use std::time::Duration;

use serde_derive::Serialize;

/// A summary in microseconds, with percentiles by nearest rank. All are 0 without samples.
#[derive(Default, Serialize)]
pub struct Summary {
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl Summary {
    pub fn of(mut samples: Vec<Duration>) -> Self {
        if samples.is_empty() {
            return Self::default();
        }
        samples.sort_unstable();
        let rank = |percent: usize| {
            let index = (samples.len() * percent).div_ceil(100).saturating_sub(1);
            samples[index].as_nanos() as f64 / 1e3
        };
        Self {
            p50_us: rank(50),
            p99_us: rank(99),
            max_us: rank(100),
        }
    }
}
