//! The random numbers by which hostile modules choose calls: the same seed makes the same choices.

#![no_std]

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to one less than `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        self.number() % most.max(1)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Returns one of these values.
    pub fn of<T: Copy, const COUNT: usize>(&mut self, all: [T; COUNT]) -> T {
        all[self.below(COUNT as u64) as usize]
    }
}
