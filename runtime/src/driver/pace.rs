use std::time::{Duration, Instant};

/// Calls that may follow each other as closely as they come, after a quiet time.
const BURST: u32 = 16;

/// How far calls are apart: a bucket that gains one in each interval, and loses one with each time
/// that the thread waits for something to do.
pub(super) struct Pace {
    /// When there was as much in the bucket as there is now.
    at: Instant,
    /// What is in it, as time: an interval for each call.
    credit: Duration,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace {
            at: now,
            credit: Duration::ZERO,
        }
    }

    /// There is nothing to do now: how long to do nothing then, even if something comes up.
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

    /// Calls that come so far apart, each of which takes no time: when they were made.
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
        // From then on one in each interval.
        for number in 40..100 {
            assert_eq!(made[number] - made[number - 1], INTERVAL, "{number}");
        }
        // What is as far apart as that never has to wait.
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
