//! The pace of a module's calls, for modules that ask for an interval between them. `run` asks
//! before it waits.

use std::time::{Duration, Instant};

/// The number of calls that may follow each other at once after a quiet time.
const BURST: u32 = 16;

/// A token bucket for calls: it gains one in each interval, and loses one each time that the thread
/// waits for something to do.
pub(super) struct Pace {
    /// The time for which `credit` is right.
    at: Instant,
    /// The contents of the bucket, as time: an interval for each call.
    credit: Duration,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace {
            at: now,
            credit: Duration::ZERO,
        }
    }

    /// Returns how long to pause now that there is nothing to do, even if something comes up.
    pub(super) fn pause(&mut self, now: Instant, interval: Duration) -> Duration {
        let passed = now.saturating_duration_since(self.at);
        let credit = (self.credit + passed).min(interval * BURST);
        let pause = interval.saturating_sub(credit);
        self.at = now + pause;
        self.credit = credit.saturating_sub(interval);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_micros(600);

    /// Returns when calls are made that come `apart` from each other, and each of which takes no
    /// time.
    fn calls(pace: &mut Pace, begin: Instant, apart: Duration, count: u32) -> Vec<Duration> {
        let mut free = begin;
        (0..count)
            .map(|number| {
                let call = (begin + apart * number).max(free);
                free = call + pace.pause(call, INTERVAL);
                call - begin
            })
            .collect()
    }

    #[test]
    fn only_what_comes_densely_for_a_while_has_to_wait() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        let later = begin + Duration::from_secs(1);
        let apart = Duration::from_micros(100);
        let made = calls(&mut pace, later, apart, 100);
        let waited = |number: usize| made[number] - apart * number as u32;
        assert!((0..=BURST as usize).all(|number| waited(number).is_zero()));
        // After the burst there is one call in each interval.
        for number in 40..100 {
            assert_eq!(made[number] - made[number - 1], INTERVAL, "{number}");
        }
        // Calls that are an interval apart never have to wait.
        let mut pace = Pace::new(begin);
        let made = calls(&mut pace, later, INTERVAL, 1000);
        assert_eq!(made[999], INTERVAL * 999);
    }

    #[test]
    fn without_an_interval_nothing_waits() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin);
        assert!((0..100).all(|_| pace.pause(begin, Duration::ZERO).is_zero()));
    }
}
