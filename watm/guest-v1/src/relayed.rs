//! A stream transport: bytes between two descriptors, through a codec.

use std::time::Duration;

use wasip1::Errno;
use watm_core::{ConfigError, Instant};
use watm_stream::{Codec, End, Limits, Needs, Progress, Ready, Relay, StreamTransport};

use crate::carrier::{Carrier, Connect, Linger, Session, errno, refused};
use crate::descriptor::{Descriptor, negative};
use crate::{config, env, poll};

/// A [`StreamTransport`] in a module.
pub struct Relayed<T>(T);

impl<T: StreamTransport> Carrier for Relayed<T> {
    type Session = Relaying<T::Codec>;

    fn configure(config: &[u8]) -> Result<Self, ConfigError> {
        let transport = T::configure(config)?;
        for warning in transport.warnings() {
            eprintln!("{}: {warning}", config::PATH);
        }
        Ok(Relayed(transport))
    }

    fn dial(
        &mut self,
        connect: Connect,
        application: Descriptor,
    ) -> Result<Relaying<T::Codec>, (i32, Descriptor)> {
        match self.connect(connect) {
            // The host limits the time of connecting.
            Ok((codec, network)) => Ok(self.relaying(codec, network, application, None)),
            Err(number) => Err((number, application)),
        }
    }

    fn accept(&mut self, application: Descriptor) -> Result<Relaying<T::Codec>, i32> {
        let codec = self.0.accept(None).map_err(refused)?;
        let handshake = Some(self.0.handshake_timeout());
        Ok(self.relaying(codec, env::accept()?, application, handshake))
    }
}

impl<T: StreamTransport> Relayed<T> {
    fn relaying(
        &self,
        codec: T::Codec,
        network: Descriptor,
        application: Descriptor,
        handshake: Option<Duration>,
    ) -> Relaying<T::Codec> {
        let now = Instant(poll::now());
        Relaying {
            relay: Relay::new(codec),
            network,
            application,
            limits: self.0.limits(),
            handshake,
            since: now,
            active: now,
        }
    }

    fn connect(&self, connect: Connect) -> Result<(T::Codec, Descriptor), i32> {
        let remote = match connect {
            Connect::Caller => None,
            Connect::Configured => Some(self.0.outer(None).ok_or_else(|| {
                eprintln!(
                    "{}: remote: missing; there is no address to dial",
                    config::PATH
                );
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
    limits: Limits,
    /// The time limit of the handshake.
    handshake: Option<Duration>,
    since: Instant,
    /// The time of the last read or write that moved bytes.
    active: Instant,
}

impl<C: Codec> Relaying<C> {
    /// The time at which a limit is exceeded, unless bytes move before.
    fn over(&self) -> Option<Instant> {
        if !self.relay.established() {
            return self.handshake.map(|handshake| self.since + handshake);
        }
        let idle = self.limits.idle.map(|idle| self.active + idle);
        let lifetime = self.limits.lifetime.map(|lifetime| self.since + lifetime);
        idle.into_iter().chain(lifetime).min()
    }
}

impl<C: Codec> Session for Relaying<C> {
    fn run(&mut self, ready: Ready) -> Result<Progress, Errno> {
        let now = Instant(poll::now());
        if ready != Ready::default() {
            self.active = now;
        }
        if self.over().is_some_and(|over| over <= now) {
            self.hang_up();
            return Err(wasip1::ERRNO_TIMEDOUT);
        }
        self.relay
            .run(ready, &mut self.network, &mut self.application)
            .map_err(|reason| {
                if self.relay.has_said_last() {
                    // A failure means that it is gone.
                    let _ = self.network.finish();
                }
                let failure = self.network.failure().or(self.application.failure());
                failure.unwrap_or_else(|| {
                    // An errno does not tell why a codec refuses data.
                    eprintln!("{reason}");
                    errno(&reason)
                })
            })
    }

    fn needs(&self) -> Needs {
        self.relay.needs()
    }

    fn deadline(&self) -> Option<u64> {
        self.over().map(|over| over.0)
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
            // Data that the application has not written yet will not follow.
            waits: needs.network_write,
        }
    }

    fn hang_up(&mut self) {
        let _ = self.relay.hang_up(&mut self.network);
    }
}
