//! The content of every transfer, the same as in `tests/wgclient/pattern`.

use std::sync::LazyLock;

const PERIOD: usize = 65521;
/// The longest piece in bytes.
pub const LONGEST: usize = 2 * PERIOD;

/// Three periods: any piece of up to two of them, at any phase, is one slice.
static REPEATED: LazyLock<Vec<u8>> = LazyLock::new(|| block().repeat(3));

fn block() -> Vec<u8> {
    let mut block = Vec::with_capacity(PERIOD + 8);
    let mut state = 0x9E37_79B9_7F4A_7C15_u64; // xorshift64*
    while block.len() < PERIOD {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        block.extend(state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    block.truncate(PERIOD);
    block
}

/// The content from `offset` on, up to `size` bytes, at most [`LONGEST`].
pub fn at(offset: u64, size: usize) -> &'static [u8] {
    let start = (offset % PERIOD as u64) as usize;
    &REPEATED[start..start + size.min(LONGEST)]
}
