//! A transport that copies: what an application writes is what the network carries.
//!
//! It hides nothing. It is the measure for other transports, and it shows that all is in
//! place around them.

use watm_core::ErrorCode;
use watm_stream::{Buffer, Codec, Symmetric};

/// The transport. Its configuration may be empty, or name a `remote`.
pub type Plain = Symmetric<Copy>;

/// Changes nothing.
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

#[cfg(all(target_family = "wasm", not(feature = "water-v1")))]
watm_guest::export!(watm_stream::Streams<Plain>);

#[cfg(all(target_family = "wasm", feature = "water-v1"))]
watm_guest_v1::export!(watm_guest_v1::Relayed<Plain>);
