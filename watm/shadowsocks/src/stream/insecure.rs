//! The first chunk in each direction, as gfw-report's patch of shadowsocks-rust (their commit
//! d1cf917) sends it: with enough ones or zeros added to make a censor's count of them unusual, and
//! all bits shuffled by the password. Used by `chunk` and `codec`.
//!
//! This is insecure. The lengths and payloads of a direction are sealed under one key with the same
//! nonces: an observer learns the difference of a length and the beginning of a payload, and can
//! forge both. The order of the bits is the same for all connections. The number of added bytes is
//! trusted before anything is authenticated; here it is at least compared with the actual length.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use rand_seeder::SipHasher;

use super::chunk::{LONGEST_2017, SEALED_LENGTH};
use crate::cipher::{self, Key, TAG};

/// The length in bytes of the trailing count of added bytes.
const COUNT: usize = 4;

/// The shuffling of one connection's first chunks, and the length of the bits before them.
pub struct Shuffle {
    key: Key,
    /// The number of bits before the payload, half of which are ones.
    before: usize,
}

impl Shuffle {
    /// The longest payload in bytes, so that the additions fit.
    pub const LONGEST_PAYLOAD: usize = 0x2f00;

    /// Makes a shuffle with this key, behind a salt of the same length.
    pub fn new(key: Key) -> Shuffle {
        Shuffle {
            before: 8 * (key.bytes().len() + SEALED_LENGTH),
            key,
        }
    }

    /// Encodes a sealed payload for sending.
    pub fn encode(&self, mut sealed: Vec<u8>) -> Vec<u8> {
        let ones: usize = sealed.iter().map(|byte| byte.count_ones() as usize).sum();
        let zeros = 8 * sealed.len() - ones;
        // The patch counts all preceding bits as ones, and as zeros too.
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

    /// Decodes the sealed payload. `None` if it claims more added bytes than there are.
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

    /// The position of each bit of this many bytes.
    fn order(&self, bytes: usize) -> Vec<u32> {
        // The other end is a 64-bit machine, whose slices hash as a length of 64 bits and their
        // bytes.
        let mut hasher = SipHasher::new();
        std::hash::Hasher::write_u64(&mut hasher, self.key.bytes().len() as u64);
        std::hash::Hasher::write(&mut hasher, self.key.bytes());
        let mut numbers = Pcg64::from_rng(hasher.into_rng()).expect("it does not fail");
        let mut order: Vec<u32> = (0..bytes as u32 * 8).collect();
        order.shuffle(&mut numbers);
        order
    }
}
