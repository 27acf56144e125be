//! Dialers for addresses that the application names.

use std::fmt;
use std::sync::Arc;

use super::builder::RoleBuilder;
use super::connection::Connection;
use super::runner::Runner;
use crate::Role;
use crate::{DatagramFlow, Destination, Error, Flow, Module, Status};
use crate::{Network, Target};
use watm_engine::job::Job;

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

/// Options of one dial.
#[derive(Clone, Default)]
pub struct DialOptions {
    config: Option<Arc<[u8]>>,
}

impl Dialer {
    /// Starts to build a dialer for this module.
    pub fn builder(module: &Module) -> RoleBuilder<Dialer> {
        RoleBuilder::new(module)
    }

    /// Connects to `host:port` (an IPv6 address in brackets), and runs the module's handshake. Must be
    /// called within a tokio runtime, which then runs the connection.
    ///
    /// Dropping the future abandons the attempt; once it is ready the connection lives on its own.
    /// Bounded by [`Limits::handshake_timeout`](crate::Limits::handshake_timeout). Errors name the
    /// cause: [`Error::Connect`], [`Error::Denied`], [`Error::Handshake`], [`Error::Trap`],
    /// [`Error::Timeout`].
    ///
    /// A component's connection is ready when it is made, or, if the module can tell, when the other
    /// end has answered; a refusal is [`Error::Refused`]. The first read reports a handshake that
    /// fails later.
    pub async fn dial(&self, address: &str) -> Result<Connection, Error> {
        self.dial_with(address, DialOptions::new()).await
    }

    /// Dials as [`dial`](Dialer::dial), with options for this connection alone. A component that
    /// refuses its configuration fails with [`Error::Config`].
    pub async fn dial_with(
        &self,
        address: &str,
        options: DialOptions,
    ) -> Result<Connection, Error> {
        let job = Job {
            target: Some(Target::tcp(address.parse()?)),
            accepted: None,
            config: options.into_config(),
        };
        Connection::of(self.runner.clone().open(job).await?)
    }

    /// Has the module carry datagrams to `host:port`, each whole, and the answers back, as described
    /// at [`Server::dial_datagrams`](crate::Server::dial_datagrams). Must be called within a tokio
    /// runtime. The flow is ready when the module has accepted it, which does not mean that anybody
    /// answers. WATER modules carry none: [`Error::NoDatagrams`].
    pub async fn dial_datagrams(&self, address: &str) -> Result<DatagramFlow, Error> {
        let target = Target {
            network: Network::Udp,
            ..Target::tcp(address.parse()?)
        };
        let job = Job {
            target: Some(target),
            accepted: None,
            config: None,
        };
        self.runner.clone().open_datagrams(job).await
    }

    /// Returns the next flow that the other end has opened and that
    /// [`accepting`](RoleBuilder::accepting) admits, as a flow of a [`Server`](crate::Server). Returns
    /// `None` once there will be none, which is at once for a WATER module. Has one caller at a time;
    /// the module runs for as long as the call waits.
    pub async fn accept(&self) -> Option<Flow> {
        self.runner.clone().accept().await
    }

    /// Has `module` make the connections from now on. Open ones continue unchanged. An error changes
    /// nothing: a module of another kind, without this role, one that refuses the configuration or
    /// fails at once, as described at [`Server::swap`](crate::Server::swap).
    pub async fn swap(&self, module: &Module) -> Result<(), Error> {
        self.runner.clone().swap(module.clone()).await
    }

    /// Replaces the module's configuration. A component applies it to its open connections too, as
    /// far as it can. A WATER module has it for later ones. On an error the old one stays in force.
    pub async fn reconfigure(&self, config: impl Into<Vec<u8>>) -> Result<(), Error> {
        self.runner.clone().reconfigure(config.into()).await
    }

    /// Returns the module's state, as [`Server::status_async`](crate::Server::status_async). A WATER
    /// module has no generations and no peers.
    pub async fn status(&self) -> Result<Status, Error> {
        self.runner.clone().status().await
    }
}

impl RoleBuilder<Dialer> {
    /// Lets the other end of a component open the flows for which `accepts` returns true, as
    /// [`ServerBuilder::accepting`](crate::ServerBuilder::accepting) describes; [`Dialer::accept`]
    /// returns them. Default: none, the module refuses all.
    pub fn accepting(
        mut self,
        accepts: impl Fn(Network, &Destination) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.accepting = Some(Arc::new(accepts));
        self
    }

    /// Starts the dialer. Fails if the module does not have this role, or if a limit is out of range.
    pub fn build(self) -> Result<Dialer, Error> {
        Ok(Dialer {
            runner: self.runner(Role::Dialer)?,
        })
    }
}

impl DialOptions {
    /// Returns the default options.
    pub fn new() -> DialOptions {
        DialOptions::default()
    }

    /// Sets the configuration for this connection, in place of the dialer's. A component then has an
    /// instance and a thread for this connection alone, which end with it;
    /// [`Limits::flows`](crate::Limits::flows) bounds how many there are at once.
    pub fn config(mut self, config: impl Into<Vec<u8>>) -> DialOptions {
        self.config = Some(config.into().into());
        self
    }

    pub(super) fn into_config(self) -> Option<Arc<[u8]>> {
        self.config
    }
}

/// Formats the options without the configuration, which may hold secrets.
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
