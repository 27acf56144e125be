//! NAME: carries a stream over another one, with its bytes masked. A starting point: put your own
//! protocol in place of `Mask`.

use watm_core::ErrorCode;
use watm_schema::about::{About, Format, TCP};
use watm_stream::{Buffer, Codec, SYMMETRIC, Symmetric};

/// The transport. Its configuration may be empty, or name a `remote` to dial.
pub type Transport = Symmetric<Mask>;

/// Adds a number to each byte on its way out, another one each time, and subtracts it on its way in.
#[derive(Debug, Default)]
pub struct Mask {
    inward: u8,
    outward: u8,
}

/// The difference of two numbers in a row.
const STEP: u8 = 7;

impl Codec for Mask {
    /// Takes bytes of the network, and appends those for the application. An answer to the other end,
    /// such as one of a handshake, goes to `_network`.
    fn inward(
        &mut self,
        from: &mut Buffer,
        application: &mut Buffer,
        _network: &mut Buffer,
    ) -> Result<(), ErrorCode> {
        for byte in from.bytes_mut() {
            self.inward = self.inward.wrapping_add(STEP);
            *byte = byte.wrapping_sub(self.inward);
        }
        application.append(from);
        Ok(())
    }

    /// Takes bytes of the application, and appends those for the network.
    fn outward(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<(), ErrorCode> {
        for byte in from.bytes_mut() {
            self.outward = self.outward.wrapping_add(STEP);
            *byte = byte.wrapping_add(self.outward);
        }
        network.append(from);
        Ok(())
    }
}

/// The description of the module, by which hosts name it and check its options.
pub const ABOUT: About = About {
    name: "NAME",
    title: "NAME",
    summary: "Carries a stream over another one, with its bytes masked.",
    accepts: true,
    dials: true,
    sockets: TCP,
    destinations: false,
    alone: false,
    port: None,
    client: None,
    steer: &[],
    formats: &[Format {
        name: "toml",
        tables: &[("NAME", &SYMMETRIC)],
    }],
};

watm_schema::about!(ABOUT);

#[cfg(target_family = "wasm")]
watm_guest::export!(watm_stream::Streams<Transport>);
