//! The wait between restarts of a module. The driver and programs ask for it after each failure.

use std::time::{Duration, Instant};

/// The first wait after a failure, short enough for a client to retry into.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait: one that a person watching would still wait for.
const LONGEST: Duration = Duration::from_secs(10);
/// The uptime of a healthy instance; a failure after it counts as the first one again.
pub(crate) const HEALTHY: Duration = Duration::from_secs(60);

/// The wait before the next instance: it doubles with each failure.
pub(crate) struct Backoff {
    next: Duration,
    started: Instant,
}

impl Backoff {
    pub(crate) fn new(now: Instant) -> Backoff {
        Backoff {
            next: FIRST,
            started: now,
        }
    }

    /// Notes that an instance has started.
    pub(crate) fn started(&mut self, now: Instant) {
        self.started = now;
    }

    /// Notes that it failed, and returns how long to wait.
    pub(crate) fn failed(&mut self, now: Instant) -> Duration {
        if now.duration_since(self.started) >= HEALTHY {
            self.next = FIRST;
        }
        let wait = self.next;
        self.next = (self.next * 2).min(LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_begin_anew_after_health() {
        let begin = Instant::now();
        let mut backoff = Backoff::new(begin);
        let waits: Vec<u128> = (0..9).map(|_| backoff.failed(begin).as_millis()).collect();
        assert_eq!(
            waits,
            [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
        );
        backoff.started(begin);
        assert_eq!(backoff.failed(begin + Duration::from_secs(59)), LONGEST);
        assert_eq!(backoff.failed(begin + Duration::from_secs(60)), FIRST);
    }
}
