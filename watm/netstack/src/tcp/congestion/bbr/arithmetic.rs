//! Products of rates, times and percentages, and random numbers, for the other files of BBR.

use core::time::Duration;

/// The nanoseconds of a second.
const SECOND: u128 = 1_000_000_000;

/// Returns `percent` percent of `value`, rounded down.
pub(super) fn part(value: u64, percent: u64) -> u64 {
    narrow(u128::from(value) * u128::from(percent) / 100)
}

/// Returns the bytes that pass at `rate` bytes per second in `time`.
pub(super) fn volume(rate: u64, time: Duration) -> u64 {
    narrow(u128::from(rate).saturating_mul(time.as_nanos()) / SECOND)
}

/// Returns the rate, in bytes per second, at which `bytes` pass in `time`.
pub(super) fn rate(bytes: u64, time: Duration) -> u64 {
    narrow(u128::from(bytes) * SECOND / time.as_nanos().max(1))
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// A sequence of random numbers (SplitMix64). They spread the probes of flows, and guard no secret.
#[derive(Debug, Clone, Copy)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns a number below `end`, or 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        narrow((u128::from(mixed) * u128::from(end)) >> 64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_saturate() {
        assert_eq!(part(200, 70), 140);
        assert_eq!(part(u64::MAX, 277), u64::MAX);
        assert_eq!(volume(1000, Duration::from_millis(1500)), 1500);
        assert_eq!(volume(u64::MAX, Duration::MAX), u64::MAX);
        assert_eq!(rate(1500, Duration::from_millis(1500)), 1000);
        assert_eq!(rate(u64::MAX, Duration::ZERO), u64::MAX);
    }

    #[test]
    fn random_numbers_fill_their_range() {
        let mut random = Random::new(7);
        let drawn: Vec<u64> = (0..1000).map(|_| random.below(10)).collect();
        assert!((0..10).all(|digit| drawn.contains(&digit)));
        assert!(drawn.iter().all(|&digit| digit < 10));
        assert_eq!(random.below(0), 0);
    }
}
