//! Any transport, for one connection. The stream that it accepts or connects is the network's, and
//! its first flow, or its dialled one, is the application's.

mod imports;
mod port;

use std::time::Duration;

use wasip1::Errno;
use watm_core::{ConfigError, Instant, Level, StartOptions, Token, Transport, Wakeup};
use watm_stream::{End, Needs, Progress, Read, Ready};

use self::imports::{Imports, World};
use self::port::Port;
use crate::carrier::{Carrier, Connect, Linger, Session, errno, refused};
use crate::descriptor::{Descriptor, negative};
use crate::{env, poll};

/// The level of printed records. WATER hosts keep them for debugging.
const LOG_LEVEL: Level = Level::Debug;

/// The time for the other end to close, once both directions are done.
const FAREWELL: Duration = Duration::from_secs(1);

/// The reads in one turn while leaving, and their bytes, which are discarded.
const FAREWELL_READS: usize = 8;
const FAREWELL_BYTES: usize = 16 << 10;

/// A [`Transport`] in a module.
pub struct Hosted<T> {
    /// The transport. `None` once it has its connection.
    transport: Option<T>,
    world: World,
}

impl<T: Transport> Carrier for Hosted<T> {
    type Session = Hosting<T>;

    fn configure(config: &[u8]) -> Result<Self, ConfigError> {
        let options = StartOptions {
            config: config.to_vec(),
            log_level: LOG_LEVEL,
            generation: 0,
            predecessor: None,
        };
        let world = World::default();
        let transport = T::start(options, &mut imports(&world))?;
        Ok(Hosted {
            transport: Some(transport),
            world,
        })
    }

    fn dial(
        &mut self,
        connect: Connect,
        application: Descriptor,
    ) -> Result<Hosting<T>, (i32, Descriptor)> {
        let Some(transport) = &mut self.transport else {
            return Err((negative(wasip1::ERRNO_BUSY), application));
        };
        let port = Port::new(application);
        self.world.borrow_mut().connect = Some(connect);
        let dialled = transport.dial(None, port.stream(), &mut imports(&self.world));
        let mut world = self.world.borrow_mut();
        // Connecting is allowed once, during the dial.
        world.connect = None;
        match (dialled, &world.network) {
            (Ok(token), Some(network)) => {
                port.set_token(token);
                let streams = (network.descriptor(), port.descriptor());
                world.application = Some(port);
                drop(world);
                Ok(self.session(streams))
            }
            (Ok(_), None) => Err((negative(wasip1::ERRNO_NOTCONN), port.descriptor())),
            (Err(reason), _) => {
                // The host's errno takes precedence.
                let number = world.failure.take().unwrap_or_else(|| refused(reason));
                Err((number, port.descriptor()))
            }
        }
    }

    fn accept(&mut self, application: Descriptor) -> Result<Hosting<T>, i32> {
        if self.transport.is_none() {
            return Err(negative(wasip1::ERRNO_BUSY));
        }
        if self.world.borrow().listener.is_none() {
            return Err(negative(wasip1::ERRNO_NOTSUP));
        }
        let network = env::accept()?;
        let streams = (network.again(), application.again());
        let mut world = self.world.borrow_mut();
        world.waiting = Some(network);
        world.offered = Some(application);
        drop(world);
        Ok(self.session(streams))
    }
}

impl<T> Hosted<T> {
    fn session(&mut self, streams: (Descriptor, Descriptor)) -> Hosting<T> {
        Hosting {
            transport: self.transport.take().expect("looked at before"),
            world: self.world.clone(),
            streams,
            wakeup: Wakeup::Again,
            cancelled: false,
            farewell: None,
        }
    }
}

/// A transport with its connection.
pub struct Hosting<T> {
    transport: T,
    world: World,
    /// The network's stream and the application's.
    streams: (Descriptor, Descriptor),
    wakeup: Wakeup,
    /// True if the host has cancelled, and the transport does not know it yet.
    cancelled: bool,
    /// The time to leave at the latest, once both directions are done.
    farewell: Option<Instant>,
}

impl<T: Transport> Session for Hosting<T> {
    fn run(&mut self, mut ready: Ready) -> Result<Progress, Errno> {
        if let Some(until) = self.farewell {
            return Ok(self.leave(until));
        }
        ready.application |= std::mem::take(&mut self.cancelled);
        let tokens = self.tokens(ready);
        self.wakeup = self.transport.process(&tokens, &mut imports(&self.world));
        self.progress()
    }

    fn needs(&self) -> Needs {
        if self.farewell.is_some() {
            return Needs {
                network_read: true,
                ..Needs::default()
            };
        }
        let world = self.world.borrow();
        let needs = |port: &Option<Port>| port.as_ref().map_or((false, false), Port::needs);
        let (network_read, network_write) = needs(&world.network);
        let (application_read, application_write) = needs(&world.application);
        Needs {
            network_read,
            network_write,
            application_read,
            application_write,
        }
    }

    fn deadline(&self) -> Option<u64> {
        if let Some(until) = self.farewell {
            return Some(until.0);
        }
        match self.wakeup {
            Wakeup::Again => Some(0),
            Wakeup::At(at) => Some(at.0),
            Wakeup::OnReady | Wakeup::Finished => None,
        }
    }

    fn streams(&self) -> (&Descriptor, &Descriptor) {
        (&self.streams.0, &self.streams.1)
    }

    fn cancel(&mut self) {
        if let Some(application) = &mut self.world.borrow_mut().application {
            application.abandon();
        }
        self.cancelled = true;
        self.wakeup = Wakeup::Again;
    }

    fn linger(&self) -> Linger {
        Linger {
            needs: self.needs(),
            // The other end has still to acknowledge the written data.
            waits: true,
        }
    }

    fn hang_up(&mut self) {
        self.streams.0.again().hang_up();
    }
}

impl<T: Transport> Hosting<T> {
    fn tokens(&mut self, ready: Ready) -> Vec<Token> {
        let mut world = self.world.borrow_mut();
        let mut tokens = Vec::new();
        if world.waiting.is_some() {
            tokens.extend(world.listener);
        }
        if ready.network {
            tokens.extend(world.network.as_mut().map(|port| port.wake()));
        }
        if ready.application {
            tokens.extend(world.application.as_mut().map(|port| port.wake()));
        }
        tokens
    }

    /// Derives the state of the connection from its two streams.
    fn progress(&mut self) -> Result<Progress, Errno> {
        let world = self.world.borrow();
        let network = world.network.as_ref();
        let released = world.application.as_ref().and_then(Port::released);
        let unsent = network.is_some_and(|port| port.needs().1);
        match released {
            Some(_) if unsent => return Ok(Progress::Waiting),
            Some(Err(reason)) => return Err(self.failure().unwrap_or_else(|| errno(&reason))),
            Some(Ok(())) => {}
            None => {
                let busy = match self.wakeup {
                    Wakeup::Again => true,
                    Wakeup::At(at) => at <= now(),
                    Wakeup::OnReady | Wakeup::Finished => false,
                };
                let over = network.is_some_and(Port::is_over);
                let reading = world
                    .application
                    .as_ref()
                    .is_some_and(|port| port.needs().1);
                if over && !reading && !busy {
                    // The network is gone, and with it the remaining data.
                    return Err(self.failure().unwrap_or(wasip1::ERRNO_CONNRESET));
                }
                return Ok(match busy {
                    true => Progress::Again,
                    false => Progress::Waiting,
                });
            }
        }
        drop(world);
        // A reset would take away data that the other end has still to read.
        let _ = End::finish(&mut self.streams.0);
        let until = now() + FAREWELL;
        self.farewell = Some(until);
        Ok(self.leave(until))
    }

    /// Wait for the other end to close.
    fn leave(&mut self, until: Instant) -> Progress {
        let mut rest = Vec::new();
        for _ in 0..FAREWELL_READS {
            if now() >= until {
                return Progress::Done;
            }
            rest.clear();
            match End::read(&mut self.streams.0, &mut rest, FAREWELL_BYTES) {
                Ok(Read::Short) => return Progress::Waiting,
                Ok(Read::More) => {}
                Ok(Read::End) | Err(_) => return Progress::Done,
            }
        }
        Progress::Again
    }

    fn failure(&self) -> Option<Errno> {
        let world = self.world.borrow();
        let ports = [&world.network, &world.application];
        ports.into_iter().flatten().find_map(Port::failure)
    }
}

fn now() -> Instant {
    Instant(poll::now())
}

fn imports(world: &World) -> Imports {
    Imports {
        world: world.clone(),
        now: now(),
    }
}
