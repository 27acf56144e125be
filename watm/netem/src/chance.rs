//! Chances that follow from a seed. Used by `lane`.

use std::f64::consts::{SQRT_2, TAU};

/// A generator of numbers (SplitMix64), and the last normal number.
pub(crate) struct Chance {
    state: u64,
    last: f64,
}

impl Chance {
    /// Makes the chances of one lane, which differ for each of the numbers.
    pub(crate) fn of(seed: u64, rule: u64, direction: u64, peer: u64) -> Chance {
        let mut chance = Chance {
            state: seed,
            last: 0.0,
        };
        for number in [rule, direction, peer] {
            chance.state = chance.next() ^ number;
        }
        chance.last = chance.normal();
        chance
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to below 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true with this chance.
    pub(crate) fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.unit() < chance
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f64) as usize
    }

    /// Returns a standard normal number (Box-Muller).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    /// Returns a standard normal number with this correlation to the one before.
    pub(crate) fn correlated(&mut self, correlation: f64) -> f64 {
        let fresh = self.normal();
        self.last = correlation * self.last + (1.0 - correlation * correlation).sqrt() * fresh;
        self.last
    }
}

/// Returns the share of normal numbers below this one, so that normal numbers become even ones. The
/// error is below 2e-7 (Abramowitz and Stegun, 7.1.26).
pub(crate) fn share_below(number: f64) -> f64 {
    let x = number.abs() / SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let sum = terms.iter().fold(0.0, |sum, term| (sum + term) * t);
    let error = 1.0 - sum * (-x * x).exp();
    match number < 0.0 {
        true => (1.0 - error) / 2.0,
        false => (1.0 + error) / 2.0,
    }
}
