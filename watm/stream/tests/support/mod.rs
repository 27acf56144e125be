//! Two streams around a relay, codecs to put between them, and a host around the whole.
#![allow(dead_code, unused_imports)] // every test file uses a part of it

mod codecs;
pub mod host;
mod wire;

pub use codecs::{Asking, AskingTransport, Copy, Echo, Framed, FramedTransport, UntilZero};
pub use wire::Wire;

/// SplitMix64, the source of every random choice in the tests.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
