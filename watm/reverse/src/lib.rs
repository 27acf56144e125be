//! A transport that reverses what is written at once, as the example of that name does
//! which comes with WATER.
//!
//! The bytes of every read are reversed in blocks of [`BLOCK`], which is what that example
//! reads at once. Where a read ends is up to the network, so the two ends agree on messages
//! of a block at most, each of which is answered before the next one: it is made for
//! looking at, not for carrying anything.

use watm_core::ErrorCode;
use watm_stream::{Buffer, Codec, Symmetric};

/// Bytes that are reversed together.
pub const BLOCK: usize = 1024;

/// The transport. Its configuration may be empty, or name a `remote`.
pub type Reverse = Symmetric<Mirror>;

/// Reverses blocks, in both directions.
#[derive(Debug, Default)]
pub struct Mirror;

impl Codec for Mirror {
    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        mirror(from, application);
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        mirror(from, network);
        Ok(())
    }
}

fn mirror(from: &mut Buffer, to: &mut Buffer) {
    for block in from.bytes_mut().chunks_mut(BLOCK) {
        block.reverse();
    }
    to.append(from);
}

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(watm_stream::Streams<Reverse>);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<Reverse>);
