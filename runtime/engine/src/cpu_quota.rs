//! The CPU quota of a module: its share of a core. Component instances and WATER guests spend it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A bucket of CPU time that fills at a share of one core. A module that overdraws it has to wait,
/// so that over time it gets its share and no more. Clones are the same bucket: instances of one
/// module share it, and a restarted one continues with the contents that the former one left.
///
/// The default is no limit.
#[derive(Debug, Clone, Default)]
pub struct CpuQuota(Option<Arc<Mutex<Bucket>>>);

#[derive(Debug)]
struct Bucket {
    permille: u32,
    /// The nanoseconds in the bucket; negative when it is overdrawn.
    left: i64,
    filled: Instant,
}

/// The most CPU time after a rest: as much as a batch of handshakes takes, and too little for other
/// modules to notice.
const BURST: Duration = Duration::from_millis(100);

/// The longest rest after one call: clients that wait for the module have given up by then.
const LONGEST_REST: Duration = Duration::from_secs(60);

impl CpuQuota {
    /// Makes a bucket of this many thousandths of a core. `None` for no limit.
    pub fn new(permille: Option<u32>) -> CpuQuota {
        CpuQuota(permille.map(|permille| Arc::new(Mutex::new(Bucket::new(permille)))))
    }

    /// Takes the nanoseconds that have been used until now.
    pub fn spend(&self, spent: u64) {
        if let Some(mut bucket) = self.bucket() {
            bucket.fill(Instant::now());
            bucket.left = bucket.left.saturating_sub_unsigned(spent);
        }
    }

    /// Returns the time at which the bucket is no longer empty, if it is empty now.
    pub fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.bucket()?.rests_until(now)
    }

    /// Returns the CPU time that one call may take: at most `limit`, and at most what the share
    /// gives in a minute. A longer call is stopped there, rather than run and then waited for: at a
    /// thousandth of a core, a second would cost a rest of a quarter of an hour.
    pub fn longest_call(&self, limit: Duration) -> Duration {
        match self.bucket() {
            Some(bucket) => limit.min((LONGEST_REST / 1000).saturating_mul(bucket.permille)),
            None => limit,
        }
    }

    fn bucket(&self) -> Option<MutexGuard<'_, Bucket>> {
        let bucket = self.0.as_ref()?;
        Some(bucket.lock().expect("no panic under this lock"))
    }
}

impl Bucket {
    fn new(permille: u32) -> Bucket {
        Bucket {
            permille: permille.max(1),
            left: BURST.as_nanos() as i64,
            filled: Instant::now(),
        }
    }

    fn rests_until(&mut self, now: Instant) -> Option<Instant> {
        if self.left >= 0 {
            return None;
        }
        self.fill(now);
        let missing = match self.left {
            0.. => return None,
            left => left.unsigned_abs(),
        };
        let rest = missing.saturating_mul(1000) / u64::from(self.permille);
        Some(now + Duration::from_nanos(rest))
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled);
        // The bucket holds the burst at most, however much time has passed.
        let passed = passed.as_nanos().min(1 << 50) as i64;
        let filled = passed.saturating_mul(self.permille.into()) / 1000;
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
        let quota = CpuQuota::new(Some(250));
        let begin = Instant::now();
        assert_eq!(quota.rests_until(begin), None);
        // The burst, and 100 ms more, used by two clones.
        quota.spend(50_000_000);
        quota.clone().spend(150_000_000);
        let now = Instant::now();
        let until = quota.rests_until(now).expect("it has to rest");
        let rest = until - now;
        let expected = Duration::from_millis(390)..=Duration::from_millis(401);
        assert!(expected.contains(&rest), "{rest:?}");
        assert_eq!(quota.rests_until(until + Duration::from_micros(1)), None);
    }

    #[test]
    fn without_a_share_there_is_no_rest() {
        let quota = CpuQuota::new(None);
        quota.spend(u64::MAX);
        assert_eq!(quota.rests_until(Instant::now()), None);
    }

    #[test]
    fn no_call_costs_a_rest_of_more_than_a_minute() {
        let second = Duration::from_secs(1);
        for (permille, expected) in [
            (0, Duration::from_millis(60)),
            (1, Duration::from_millis(60)),
            (10, Duration::from_millis(600)),
            (17, second),
            (u32::MAX, second),
        ] {
            let quota = CpuQuota::new(Some(permille));
            let call = quota.longest_call(second);
            assert_eq!(call, expected, "{permille}");
            let now = Instant::now();
            quota.spend((BURST + call).as_nanos() as u64);
            let rest = quota.rests_until(now).expect("it has to rest") - now;
            assert!(rest <= LONGEST_REST, "{permille}: {rest:?}");
        }
        assert_eq!(CpuQuota::default().longest_call(second), second);
    }
}
