//! A transport that copies: the network carries the bytes that an application writes.
//!
//! It hides nothing. It is the baseline for other transports, and a check of everything around
//! them.

mod about;

use watm_core::ErrorCode;
use watm_stream::{Buffer, Codec, Symmetric};

/// The transport. Its configuration may be empty, or name a `remote`.
pub type Plain = Symmetric<Copy>;

/// Copies bytes unchanged.
#[derive(Debug, Default)]
pub struct Copy;

impl Codec for Copy {
    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        application.append(from);
        Ok(())
    }

    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        network.append(from);
        Ok(())
    }
}

pub use about::ABOUT;

watm_schema::about!(ABOUT);

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(watm_stream::Streams<Plain>);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<Plain>);
