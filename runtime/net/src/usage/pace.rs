//! The CPU use of a module, sampled whenever its usage is read.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time that CPU use is averaged over.
const SPAN: Duration = Duration::from_secs(10);

/// The recent CPU use, from two samples.
pub(super) struct Pace(Mutex<[Look; 2]>);

/// A sample: its time, and the nanoseconds of CPU time until then.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    used: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        let look = Look {
            at: Instant::now(),
            used: 0,
        };
        Pace(Mutex::new([look; 2]))
    }
}

impl Pace {
    /// Returns the thousandths of a core in use, averaged since the older of two samples that are
    /// at least ten seconds apart, or since the start.
    pub(super) fn permille(&self, used: u64) -> u32 {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        advance(&mut looks, Instant::now(), used)
    }
}

fn advance(looks: &mut [Look; 2], now: Instant, used: u64) -> u32 {
    if now.saturating_duration_since(looks[1].at) >= SPAN {
        *looks = [looks[1], Look { at: now, used }];
    }
    let since = looks[0];
    let passed = now.saturating_duration_since(since.at).as_nanos().max(1);
    let permille = u128::from(used.saturating_sub(since.used)) * 1000 / passed;
    u32::try_from(permille).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_last_seconds() {
        let start = Instant::now();
        let mut looks = [Look { at: start, used: 0 }; 2];
        let mut look = |seconds, milliseconds: u64| {
            let at = start + Duration::from_secs(seconds);
            advance(&mut looks, at, milliseconds * 1_000_000)
        };
        assert_eq!(look(2, 1000), 500);
        assert_eq!(look(10, 1000), 100);
        // The average is from the start, until there is another sample to begin from.
        assert_eq!(look(19, 1900), 100);
        assert_eq!(look(20, 1000 + 500), 50);
        assert_eq!(look(30, 1500), 0);
        assert_eq!(look(40, 6500), 500);
    }
}
