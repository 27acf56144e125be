//! A transport that reverses the bytes of each write, like the example of that name in WATER.
//!
//! The bytes of every read are reversed in blocks of [`BLOCK`], which is the size of that example's
//! reads. The network decides where a read ends, so that the two ends understand each other only
//! with messages of at most one block, each answered before the next one. The transport is for
//! demonstration, not for use.

mod about;

use watm_core::ErrorCode;
use watm_stream::{Buffer, Codec, Symmetric};

/// The number of bytes that are reversed together.
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

pub use about::ABOUT;

watm_schema::about!(ABOUT);

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(watm_stream::Streams<Reverse>);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<Reverse>);
