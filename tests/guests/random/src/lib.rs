//! Choices of hostile modules, from a seed or from bytes. A seed makes the same choices each time. A
//! fuzzer can change one byte without the other choices.

#![no_std]

/// A sequence of choices.
pub struct Random(Source);

enum Source {
    /// SplitMix64, and the kind that most calls have.
    Seed {
        state: u64,
        favourite: u64,
    },
    Bytes(&'static [u8]),
}

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Random {
        Random(Source::Seed {
            state: seed,
            favourite: seed,
        })
    }

    /// Parses `hostile SEED`, or `hostile :` and the bytes of the choices. Returns None for other texts.
    pub fn parse(config: &'static [u8]) -> Option<Random> {
        match config.strip_prefix(b"hostile ")? {
            [b':', bytes @ ..] => Some(Random(Source::Bytes(bytes))),
            seed => {
                let seed = str::from_utf8(seed).ok()?.trim().parse().ok()?;
                Some(Random::new(seed))
            }
        }
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seed { state, .. } => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = *state;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^ (mixed >> 31)
            }
            Source::Bytes(bytes) => take(bytes, 8),
        }
    }

    /// Returns a number from 0 to one less than `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        let most = most.max(1);
        match &mut self.0 {
            Source::Seed { .. } => self.number() % most,
            Source::Bytes(bytes) => {
                let bits = u64::BITS - (most - 1).leading_zeros();
                take(bytes, bits.div_ceil(8) as usize) % most
            }
        }
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Returns one of these values.
    pub fn of<T: Copy, const COUNT: usize>(&mut self, all: [T; COUNT]) -> T {
        all[self.below(COUNT as u64) as usize]
    }

    /// Returns one of `kinds` kinds of calls. A seed prefers one kind, so that consecutive seeds press on
    /// one place after another.
    pub fn kind(&mut self, kinds: u64) -> u64 {
        let favourite = match self.0 {
            Source::Seed { favourite, .. } => Some(favourite),
            Source::Bytes(_) => None,
        };
        match favourite {
            Some(favourite) if !self.one_in(8) => favourite % kinds,
            _ => self.below(kinds),
        }
    }

    /// Returns a number of rounds: `many` for a seed, and at most 16 for bytes, which must be
    /// quick.
    pub fn rounds(&self, many: u32) -> u32 {
        match self.0 {
            Source::Seed { .. } => many,
            Source::Bytes(_) => many.min(16),
        }
    }

    /// Returns true if no choice is left. A seed has no last choice.
    pub fn is_over(&self) -> bool {
        matches!(self.0, Source::Bytes([]))
    }

    /// Returns true if the choices are bytes.
    pub fn is_of_bytes(&self) -> bool {
        matches!(self.0, Source::Bytes(_))
    }
}

/// Takes `count` bytes as a little-endian number. Missing bytes are zeros.
fn take(bytes: &mut &'static [u8], count: usize) -> u64 {
    let (first, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    first
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
