//! A module's share of a core.

use std::time::{Duration, Instant};

/// A bucket of CPU time that fills at a share of one core. What is used beyond it has to be
/// waited for, so that over time a module has its share and no more.
#[derive(Debug)]
pub(crate) struct Share {
    permille: Option<u32>,
    /// Nanoseconds that are there; below 0, what has been used in advance.
    left: i64,
    filled: Instant,
}

/// What may be used at once after a rest: as much as a batch of handshakes takes, and too little
/// for anybody else to notice.
const BURST: Duration = Duration::from_millis(100);

impl Share {
    /// `None`: without a bound.
    pub(crate) fn new(permille: Option<u32>) -> Share {
        Share {
            permille,
            left: BURST.as_nanos() as i64,
            filled: Instant::now(),
        }
    }

    /// So much has been used, until now.
    pub(crate) fn spend(&mut self, spent: u64) {
        if self.permille.is_none() {
            return;
        }
        self.fill(Instant::now());
        self.left = self.left.saturating_sub_unsigned(spent);
    }

    /// When there is something to use again, if there is nothing now.
    pub(crate) fn rests_until(&mut self, now: Instant) -> Option<Instant> {
        let permille = u64::from(self.permille?.max(1));
        if self.left >= 0 {
            return None;
        }
        self.fill(now);
        match self.left {
            0.. => None,
            left => Some(
                now + Duration::from_nanos(left.unsigned_abs().saturating_mul(1000) / permille),
            ),
        }
    }

    fn fill(&mut self, now: Instant) {
        let permille = i64::from(self.permille.unwrap_or_default());
        let passed = now.saturating_duration_since(self.filled);
        // More than the burst is not kept, whatever the time.
        let passed = passed.as_nanos().min(1 << 50) as i64;
        let filled = passed.saturating_mul(permille) / 1000;
        self.left = self
            .left
            .saturating_add(filled)
            .min(BURST.as_nanos() as i64);
        self.filled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_beyond_the_share_is_waited_for() {
        let mut share = Share::new(Some(250));
        let now = share.filled;
        assert_eq!(share.rests_until(now), None);
        // The burst, and 100 ms more.
        share.spend(200_000_000);
        let until = share.rests_until(share.filled).expect("it has to rest");
        let rest = until - share.filled;
        let expected = Duration::from_millis(390)..=Duration::from_millis(401);
        assert!(expected.contains(&rest), "{rest:?}");
        assert_eq!(share.rests_until(until + Duration::from_micros(1)), None);
    }

    #[test]
    fn without_a_share_there_is_no_rest() {
        let mut share = Share::new(None);
        share.spend(u64::MAX);
        assert_eq!(share.rests_until(Instant::now()), None);
    }
}
