//! A stream transport: bytes from one descriptor to the other, through a codec.

use wasip1::Errno;
use watm_core::ConfigError;
use watm_stream::{Codec, Needs, Progress, Ready, Relay, StreamTransport};

use crate::carrier::{Carrier, Connect, Linger, Session, errno, refused};
use crate::descriptor::{Descriptor, negative};
use crate::{config, env};

/// A [`StreamTransport`] in a module.
pub struct Relayed<T>(T);

impl<T: StreamTransport> Carrier for Relayed<T> {
    type Session = Relaying<T::Codec>;

    fn configure(config: &[u8]) -> Result<Self, ConfigError> {
        T::configure(config).map(Relayed)
    }

    fn dial(
        &mut self,
        connect: Connect,
        application: Descriptor,
    ) -> Result<Relaying<T::Codec>, (i32, Descriptor)> {
        match self.connect(connect) {
            Ok((codec, network)) => Ok(Relaying::new(codec, network, application)),
            Err(number) => Err((number, application)),
        }
    }

    fn accept(&mut self, application: Descriptor) -> Result<Relaying<T::Codec>, i32> {
        let codec = self.0.accept(None).map_err(refused)?;
        Ok(Relaying::new(codec, env::accept()?, application))
    }
}

impl<T: StreamTransport> Relayed<T> {
    fn connect(&self, connect: Connect) -> Result<(T::Codec, Descriptor), i32> {
        let remote = match connect {
            Connect::Caller => None,
            Connect::Configured => Some(self.0.outer(None).ok_or_else(|| {
                eprintln!("{}: remote: there is none to dial", config::PATH);
                negative(wasip1::ERRNO_DESTADDRREQ)
            })?),
        };
        let codec = self.0.dial(None).map_err(refused)?;
        let network = match remote {
            None => env::dial_fixed()?,
            Some(remote) => env::dial(&remote.to_string())?,
        };
        Ok((codec, network))
    }
}

/// A [`Relay`] between two descriptors.
pub struct Relaying<C> {
    relay: Relay<C>,
    network: Descriptor,
    application: Descriptor,
}

impl<C: Codec> Relaying<C> {
    fn new(codec: C, network: Descriptor, application: Descriptor) -> Self {
        Relaying {
            relay: Relay::new(codec),
            network,
            application,
        }
    }
}

impl<C: Codec> Session for Relaying<C> {
    fn run(&mut self, ready: Ready) -> Result<Progress, Errno> {
        self.relay
            .run(ready, &mut self.network, &mut self.application)
            .map_err(|reason| {
                let failure = self.network.failure().or(self.application.failure());
                failure.unwrap_or_else(|| errno(&reason))
            })
    }

    fn needs(&self) -> Needs {
        self.relay.needs()
    }

    fn deadline(&self) -> Option<u64> {
        None
    }

    fn streams(&self) -> (&Descriptor, &Descriptor) {
        (&self.network, &self.application)
    }

    fn linger(&self) -> Linger {
        let needs = self.relay.needs();
        Linger {
            needs: Needs {
                network_write: needs.network_write,
                application_read: needs.application_read,
                ..Needs::default()
            },
            // What the application has not written yet will not come.
            patience: if needs.network_write { u64::MAX } else { 0 },
        }
    }

    fn hang_up(&mut self) {
        let _ = self.relay.hang_up(&mut self.network);
    }
}
