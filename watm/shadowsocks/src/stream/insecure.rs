//! The first chunk in each direction, as gfw-report's patch of shadowsocks-rust (their commit
//! d1cf917) sends it: with as many ones or zeros more as make a censor's count of them unusual,
//! and all bits mixed by the password.
//!
//! It is insecure. A direction's lengths and payloads are sealed under one key with the same
//! nonces, so that whoever sees them learns the difference of a length and the beginning of a
//! payload, and can forge both; the order of the bits is the same for all connections; and how
//! much was added is believed before anything is authenticated. Here that number is at least
//! compared with what there is.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use rand_seeder::SipHasher;

use super::chunk::{LONGEST_2017, SEALED_LENGTH};
use crate::cipher::{self, Key, TAG};

/// Bytes at the end, which say how many were added before them.
const COUNT: usize = 4;

/// How the bits of one connection's first chunks are mixed, and what goes before them.
pub struct Shuffle {
    key: Key,
    /// Bits before the payload, half of which are ones.
    before: usize,
}

impl Shuffle {
    /// The longest payload, so that what is added fits.
    pub const LONGEST_PAYLOAD: usize = 0x2f00;

    /// With this key, behind a salt of the same length.
    pub fn new(key: Key) -> Shuffle {
        Shuffle {
            before: 8 * (key.bytes().len() + SEALED_LENGTH),
            key,
        }
    }

    /// What is sent in the place of a sealed payload.
    pub fn encode(&self, mut sealed: Vec<u8>) -> Vec<u8> {
        let ones: usize = sealed.iter().map(|byte| byte.count_ones() as usize).sum();
        let zeros = 8 * sealed.len() - ones;
        // The patch counts both kinds of the bits before as if all were of that kind.
        let (ones, zeros) = (ones + self.before, zeros + self.before);
        let ratio = ones as f32 / zeros as f32;
        let mut added = 0;
        if ratio > 0.7 && ratio < 1.4 {
            let tenth = cipher::random_below(1 << 16) as f32 / (1 << 16) as f32 / 10.0;
            let (bits, byte) = match ones <= zeros {
                true => ((ones as f32 / (0.6 + tenth)) as usize - zeros, 0),
                false => ((zeros as f32 * (1.4 + tenth)) as usize - ones, 0xff),
            };
            added = (bits / 8 + 1).min(LONGEST_2017 - COUNT - sealed.len());
            sealed.resize(sealed.len() + added, byte);
        }
        sealed.extend_from_slice(&(added as u32).to_be_bytes());
        let mut mixed = vec![0; sealed.len()];
        for (place, index) in self.order(sealed.len()).into_iter().enumerate() {
            let bit = sealed[place / 8] >> (place % 8) & 1;
            mixed[index as usize / 8] |= bit << (index % 8);
        }
        mixed
    }

    /// The sealed payload, in the place of what came; `None` if it says that more was added
    /// than there is.
    pub fn decode<'a>(&self, mixed: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let mut sealed = vec![0; mixed.len()];
        for (place, index) in self.order(mixed.len()).into_iter().enumerate() {
            let bit = mixed[index as usize / 8] >> (index % 8) & 1;
            sealed[place / 8] |= bit << (place % 8);
        }
        let (rest, count) = sealed.split_last_chunk::<COUNT>()?;
        let added = usize::try_from(u32::from_be_bytes(*count)).ok()?;
        let length = rest
            .len()
            .checked_sub(added)
            .filter(|&length| length >= TAG)?;
        mixed[..length].copy_from_slice(&rest[..length]);
        Some(&mut mixed[..length])
    }

    /// Where each bit of so many bytes goes.
    fn order(&self, bytes: usize) -> Vec<u32> {
        // The other end is a 64-bit machine, whose vectors hash as a length of 64 bits and
        // their bytes.
        let mut hasher = SipHasher::new();
        std::hash::Hasher::write_u64(&mut hasher, self.key.bytes().len() as u64);
        std::hash::Hasher::write(&mut hasher, self.key.bytes());
        let mut numbers = Pcg64::from_rng(hasher.into_rng()).expect("it does not fail");
        let mut order: Vec<u32> = (0..bytes as u32 * 8).collect();
        order.shuffle(&mut numbers);
        order
    }
}
