//! Stream transports with the same codec at both ends, such as `plain` and `reverse`.

use std::marker::PhantomData;
use std::net::SocketAddr;

use watm_core::{ConfigError, Destination, ErrorCode};
use watm_schema::{Described, Field, fields};

use crate::{Codec, REMOTE, Settings, StreamTransport};

/// The configuration of a [`Symmetric`] transport.
pub const SYMMETRIC: [Described; 1] = [REMOTE];

static FIELDS: [Field; 1] = fields(&SYMMETRIC);

/// A transport whose two ends use the same codec and no configuration of it. The configuration may
/// name the address to dial when the caller names none: `remote = "host:port"`.
#[derive(Debug)]
pub struct Symmetric<C> {
    remote: Option<Destination>,
    codec: PhantomData<fn() -> C>,
}

impl<C: Codec + Default> StreamTransport for Symmetric<C> {
    type Codec = C;

    fn configure(config: &[u8]) -> Result<Self, ConfigError> {
        let mut settings = Settings::parse(config, &FIELDS)?;
        Ok(Symmetric {
            remote: settings.take_parsed("remote")?,
            codec: PhantomData,
        })
    }

    fn accept(&self, _remote: Option<SocketAddr>) -> Result<C, ErrorCode> {
        Ok(C::default())
    }

    fn dial(&self, _destination: Option<&Destination>) -> Result<C, ErrorCode> {
        Ok(C::default())
    }

    fn outer(&self, destination: Option<&Destination>) -> Option<Destination> {
        destination.or(self.remote.as_ref()).cloned()
    }
}
