//! Pacing: a sender with a rate spreads its transmissions over the round trip.

use core::time::Duration;

use watm_core::Instant;

/// The time whose bytes may leave at once after a pause, so that late timers cost no throughput.
const SLACK: Duration = Duration::from_millis(2);

/// The next transmission of a connection.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    next: Instant,
}

impl Pacer {
    /// The time when a transmission may leave, unless that is past.
    pub(crate) fn waits_until(&self, now: Instant) -> Option<Instant> {
        (self.next > now).then_some(self.next)
    }

    /// Records a transmission of `bytes` bytes at `rate` bytes per second. `burst` bytes may leave
    /// at once after a pause.
    pub(crate) fn sent(&mut self, bytes: usize, rate: u64, burst: usize, now: Instant) {
        let time = |bytes: usize| {
            let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(rate.max(1));
            u64::try_from(nanos).unwrap_or(u64::MAX)
        };
        let slack = time(burst).max(SLACK.as_nanos() as u64);
        let earliest = Instant(now.0.saturating_sub(slack));
        // Transmissions that did not wait for the rate leave no debt: many of them would add up.
        let due = self.next.max(earliest).min(now);
        self.next = Instant(due.0.saturating_add(time(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let mut pacer = Pacer::default();
        let start = Instant(1_000_000_000);
        // A megabyte a second; the bytes of 2 ms at once.
        let mut sent = 0;
        while pacer.waits_until(start).is_none() {
            pacer.sent(1000, 1_000_000, 0, start);
            sent += 1;
        }
        assert_eq!(sent, 3);
        assert_eq!(
            pacer.waits_until(start),
            Some(start + Duration::from_millis(1))
        );
        let mut now = start;
        for _ in 0..100 {
            now = pacer.waits_until(now).unwrap_or(now);
            pacer.sent(1000, 1_000_000, 0, now);
        }
        assert_eq!(now, start + Duration::from_millis(100));
        // A larger burst after a pause.
        let later = now + Duration::from_secs(9);
        let mut sent = 0;
        while pacer.waits_until(later).is_none() {
            pacer.sent(1000, 1_000_000, 10_000, later);
            sent += 1;
        }
        assert_eq!(sent, 11);
    }
}
