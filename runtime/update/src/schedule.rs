//! The timing of checks, with jitter and backoff, for `Watch`.

use std::time::Duration;

/// The delay after a first failure. It doubles with each further failure, up to the interval.
const FIRST_RETRY: Duration = Duration::from_secs(10);
/// The random deviation of each delay, as a fraction in either direction, so that hosts started
/// together do not all ask at once.
const JITTER: f64 = 0.1;

/// The schedule of checks.
#[derive(Debug)]
pub(crate) struct Schedule {
    every: Duration,
    /// Failures in a row.
    failures: u32,
}

impl Schedule {
    pub(crate) fn new(every: Duration) -> Schedule {
        Schedule { every, failures: 0 }
    }

    /// Returns the delay after a successful check of the source.
    pub(crate) fn after_success(&mut self) -> Duration {
        self.failures = 0;
        jittered(self.every)
    }

    /// Returns the delay after a failure, at least `retry_after`.
    pub(crate) fn after_failure(&mut self, retry_after: Option<Duration>) -> Duration {
        let factor = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        let backoff = FIRST_RETRY.saturating_mul(factor).min(self.every);
        let asked = retry_after.unwrap_or_default();
        // The delay never undercuts the server's request.
        jittered(backoff).max(asked + asked.mul_f64(JITTER * chance().abs()))
    }
}

fn jittered(time: Duration) -> Duration {
    time.mul_f64(1.0 + JITTER * chance())
}

/// Returns a random number from -1 to 1. Without the system's randomness it is 0, and hosts ask at
/// the same time.
fn chance() -> f64 {
    match getrandom::u32() {
        Ok(number) => f64::from(number) / f64::from(u32::MAX) * 2.0 - 1.0,
        Err(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_about(found: Duration, seconds: f64) {
        let found = found.as_secs_f64();
        assert!(
            (0.89 * seconds..1.11 * seconds).contains(&found),
            "{found} is not {seconds}"
        );
    }

    #[test]
    fn failures_back_off_up_to_the_interval_and_a_success_forgets_them() {
        let mut schedule = Schedule::new(Duration::from_secs(3600));
        for _ in 0..2 {
            for seconds in [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0] {
                assert_about(schedule.after_failure(None), seconds);
            }
            for _ in 0..100 {
                assert_about(schedule.after_failure(None), 3600.0);
            }
            assert_about(schedule.after_success(), 3600.0);
        }
    }

    #[test]
    fn a_server_is_never_asked_before_it_wants_to_be() {
        let mut schedule = Schedule::new(Duration::from_secs(60));
        let asked = Duration::from_secs(1000);
        for _ in 0..100 {
            let found = schedule.after_failure(Some(asked));
            assert!(found >= asked && found <= asked.mul_f64(1.1));
        }
        assert_about(schedule.after_failure(Some(Duration::ZERO)), 60.0);
    }

    #[test]
    fn a_short_interval_is_kept() {
        let mut schedule = Schedule::new(Duration::from_millis(50));
        assert_about(schedule.after_failure(None), 0.05);
        assert_about(schedule.after_success(), 0.05);
    }
}
