//! Stream transports with the same codec at both ends, such as `plain` and `reverse`.

use std::marker::PhantomData;
use std::net::SocketAddr;

use watm_core::{ConfigError, Destination, ErrorCode};

use crate::{Codec, Settings, StreamTransport};

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
        let mut settings = Settings::parse(config)?;
        let remote = settings.take_destination("remote")?;
        settings.finish()?;
        Ok(Symmetric {
            remote,
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
