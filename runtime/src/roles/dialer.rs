use std::fmt;
use std::sync::Arc;

use super::builder::RoleBuilder;
use super::connection::Connection;
use super::role::Role;
use super::runner::{Job, Runner};
use super::target::{Network, Target, parse_destination};
use crate::{DatagramFlow, Destination, Error, Flow, Module, Status};

/// Dials through a module, to addresses that the application names. Clones share everything.
///
/// ```no_run
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use watm_runtime::{Dialer, Engine, EngineConfig};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let module = Engine::new(EngineConfig::default())?.load_file("plain.wasm")?;
/// let dialer = Dialer::builder(&module).config("secret").build()?;
/// let mut connection = dialer.dial("example.com:443").await?;
/// connection.write_all(b"hello").await?;
/// connection.shutdown().await?;
/// let mut answer = Vec::new();
/// connection.read_to_end(&mut answer).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Dialer {
    runner: Arc<dyn Runner>,
}

/// What one dial has of its own.
#[derive(Clone, Default)]
pub struct DialOptions {
    config: Option<Arc<[u8]>>,
}

impl Dialer {
    /// Begin to describe a dialer for this module.
    pub fn builder(module: &Module) -> RoleBuilder<Dialer> {
        RoleBuilder::new(module)
    }

    /// Connect to `host:port` (an IPv6 address in brackets), and have the module do its
    /// handshake. Within a tokio runtime, which then runs the connection.
    ///
    /// Dropping the future gives up; once it is ready the connection lives by itself. Bounded
    /// by [`Limits::handshake_timeout`](crate::Limits::handshake_timeout). Errors name the
    /// cause: [`Error::Connect`], [`Error::Denied`], [`Error::Handshake`], [`Error::Trap`],
    /// [`Error::Timeout`].
    ///
    /// A component's connection is ready when it is made, or, where the module can tell, when the
    /// other end has answered: one that refuses is [`Error::Refused`]. What a handshake comes to
    /// later is told by the first read.
    pub async fn dial(&self, address: &str) -> Result<Connection, Error> {
        self.dial_with(address, DialOptions::new()).await
    }

    /// As [`dial`](Dialer::dial), with options for this connection alone. What a component
    /// says of a configuration that it refuses is [`Error::Config`].
    pub async fn dial_with(
        &self,
        address: &str,
        options: DialOptions,
    ) -> Result<Connection, Error> {
        let job = Job {
            target: Some(Target::tcp(parse_destination(address)?)),
            accepted: None,
            config: options.into_config(),
        };
        Connection::of(self.runner.clone().open(job).await?)
    }

    /// Have the module carry datagrams to `host:port`, each whole, and the answers back, as
    /// [`Server::dial_datagrams`](crate::Server::dial_datagrams) says. Within a tokio runtime. The
    /// flow is ready when the module has taken it on; whether anybody answers it does not tell.
    /// WATER modules carry none: [`Error::NoDatagrams`].
    pub async fn dial_datagrams(&self, address: &str) -> Result<DatagramFlow, Error> {
        let target = Target {
            network: Network::Udp,
            ..Target::tcp(parse_destination(address)?)
        };
        let job = Job {
            target: Some(target),
            accepted: None,
            config: None,
        };
        self.runner.clone().open_datagrams(job).await
    }

    /// The next flow that somebody at the other end has opened, which
    /// [`accepting`](RoleBuilder::accepting) admits, as that of a [`Server`](crate::Server). `None`
    /// once there will be none, which is at once for a WATER module. For one caller at a time; the
    /// module runs for as long as somebody waits here.
    pub async fn accept(&self) -> Option<Flow> {
        self.runner.clone().accept().await
    }

    /// Have `module` make the connections from now on. Open ones stay as they are. On every error
    /// nothing changes: a module of another kind, without this role, or that refuses the
    /// configuration or fails at once, as [`Server::swap`](crate::Server::swap) says.
    pub async fn swap(&self, module: &Module) -> Result<(), Error> {
        self.runner.clone().swap(module.clone()).await
    }

    /// How the module is doing, as [`Server::status_async`](crate::Server::status_async) says. A WATER
    /// module has no generations and no peers.
    pub async fn status(&self) -> Result<Status, Error> {
        self.runner.clone().status().await
    }
}

impl RoleBuilder<Dialer> {
    /// Let the other end of a component open flows, those for which this says yes, as
    /// [`ServerBuilder::accepting`](crate::ServerBuilder::accepting) has it; they come out of
    /// [`Dialer::accept`]. Default: none, the module refuses all.
    pub fn accepting(
        mut self,
        accepts: impl Fn(Network, &Destination) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.accepting = Some(Arc::new(accepts));
        self
    }

    /// Fails if the module has not this role, or if a limit is out of range.
    pub fn build(self) -> Result<Dialer, Error> {
        Ok(Dialer {
            runner: self.runner(Role::Dialer)?,
        })
    }
}

impl DialOptions {
    /// None.
    pub fn new() -> DialOptions {
        DialOptions::default()
    }

    /// The configuration for this connection, in the place of the dialer's. A component then
    /// has an instance and a thread for this connection alone, which end with it;
    /// [`Limits::flows`](crate::Limits::flows) bounds how many there are at once.
    pub fn config(mut self, config: impl Into<Vec<u8>>) -> DialOptions {
        self.config = Some(config.into().into());
        self
    }

    pub(super) fn into_config(self) -> Option<Arc<[u8]>> {
        self.config
    }
}

/// Without the configuration, which may hold secrets.
impl fmt::Debug for DialOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialOptions").finish_non_exhaustive()
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}
