//! The builder of dialers, listeners and relays, which the application calls.

use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::component::ComponentRunner;
use super::runner::{Runner, runner};
use crate::Role;
use crate::{Capture, Error, Keys, Limits, Module, ModuleKind};
use watm_engine::hub::Accepting;
use watm_engine::job::{OuterSocket, Settings};
use watm_engine::log::subscribed_level;
use watm_net::connect::Connect;
use watm_net::quota::Quota;
use watm_policy::access::{Access, MAX_LOOKUPS};
use watm_policy::reach::Reach;

/// Options for using a module as a [`Dialer`](crate::Dialer), a [`FixedDialer`](crate::FixedDialer), a
/// [`Listener`](crate::Listener) or a [`Relay`](crate::Relay). Methods chain by value; each role has a last
/// call of its own.
#[must_use = "nothing happens before the last call"]
pub struct RoleBuilder<R> {
    pub(super) module: Module,
    config: Option<Vec<u8>>,
    sockets: Vec<(String, OuterSocket)>,
    listens: Option<SocketAddr>,
    drain: Option<Duration>,
    reach: Reach,
    pub(super) limits: Limits,
    name: Option<String>,
    log_level: Option<tracing::Level>,
    connector: Option<Arc<dyn Connect>>,
    keys: Keys,
    capture: Option<Capture>,
    pub(super) accepting: Option<Accepting>,
    /// The arguments of a program.
    arguments: Option<Vec<String>>,
    role: PhantomData<fn() -> R>,
}

impl<R> RoleBuilder<R> {
    pub(super) fn new(module: &Module) -> RoleBuilder<R> {
        RoleBuilder {
            module: module.clone(),
            config: None,
            sockets: Vec::new(),
            listens: None,
            drain: None,
            reach: Reach::none(),
            limits: Limits::for_connections_of(module.info().kind),
            name: None,
            log_level: None,
            connector: None,
            keys: Keys::new(),
            capture: None,
            accepting: None,
            arguments: None,
            role: PhantomData,
        }
    }

    /// Sets the configuration, in the module's own format: `/conf/watm.cfg` for a WATER module of v1,
    /// `pull_config` for one of v0. Default: none, which is not the same as an empty one.
    pub fn config(mut self, config: impl Into<Vec<u8>>) -> Self {
        self.config = Some(config.into());
        self
    }

    /// Grants a component a datagram socket bound to `address`, as
    /// [`ServerBuilder::udp`](crate::ServerBuilder::udp) does. It may send to the addresses of its
    /// [`reach`](Self::reach). Modules use the label `listen`, also those that only dial. An instance for
    /// one connection has a socket of its own, so that a port other than 0 serves one at a time. Default:
    /// none.
    pub fn udp(mut self, label: &str, address: SocketAddr) -> Self {
        self.sockets
            .push((label.to_owned(), OuterSocket::Bound(address)));
        self
    }

    /// Grants a component a datagram socket that the [`connector`](Self::connector) carries. The datagrams
    /// to and from one address are one flow of the connector ([`Wire::datagrams`](crate::Wire::datagrams)),
    /// opened by the first datagram. Nobody else can send to it. This runs a tunnel through another one.
    /// Default: none.
    pub fn datagrams(mut self, label: &str) -> Self {
        self.sockets.push((label.to_owned(), OuterSocket::Carried));
        self
    }

    /// Sets how long open connections may last after another module replaces this one; then they are reset,
    /// as [`SwapOptions::drain`](crate::SwapOptions::drain) describes. Default: no limit.
    pub fn drain(mut self, longest: Duration) -> Self {
        self.drain = Some(longest);
        self
    }

    /// Sets the destinations that the module may reach, beyond the address that it is given. Default: none.
    pub fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Bounds what each instance of the module may use. Default: [`Limits::for_connections_of`] the module.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the name in errors and log records. Default: the module's name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets the least level of the module's own records; what a WATER module prints has DEBUG. Default: the
    /// level that the `tracing` subscriber lets through now.
    pub fn log_level(mut self, level: tracing::Level) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Makes the module's connections with `connector`, in place of the host's own TCP and UDP.
    pub fn connector(mut self, connector: impl Connect) -> Self {
        self.connector = Some(Arc::new(connector));
        self
    }

    /// Sets the private keys that a component may sign with, as
    /// [`ServerBuilder::keys`](crate::ServerBuilder::keys).
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = keys;
        self
    }

    /// Writes copies of the packets and the keys of a component's tunnels to files, as
    /// [`ServerBuilder::capture`](crate::ServerBuilder::capture).
    pub fn capture(mut self, capture: Option<Capture>) -> Self {
        self.capture = capture;
        self
    }

    /// Sets the arguments of a program of WASI that listens, as
    /// [`ServerBuilder::arguments`](crate::ServerBuilder::arguments).
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = String>) -> Self {
        self.arguments = Some(arguments.into_iter().collect());
        self
    }

    pub(super) fn runner(self, role: Role) -> Result<Arc<dyn Runner>, Error> {
        let (module, settings) = self.settled();
        runner(&module, role, settings)
    }

    /// Starts a component with the socket that it listens on.
    pub(super) fn listening(self, listener: StdListener) -> Result<Arc<ComponentRunner>, Error> {
        let arguments = self.arguments.clone();
        let (module, settings) = self.settled();
        module.check_granted(&settings.name, [])?;
        settings.limits.check()?;
        ComponentRunner::listening(&module, settings, listener, arguments).map(Arc::new)
    }

    /// Returns the access for the host's own connections, in a component's place.
    pub(super) fn access(&self) -> Access {
        Access {
            name: self.shown_name(),
            reach: Reach::none(),
            connector: self.connector.clone(),
            connect_timeout: self.limits.connect_timeout,
            counters: Arc::default(),
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }

    /// Notes the address that connections come in at, for the module's record.
    pub(super) fn listening_on(mut self, listener: &StdListener) -> Self {
        self.listens = listener.local_addr().ok();
        self
    }

    pub(super) fn is_component(&self) -> bool {
        self.module.info().kind == ModuleKind::Component
    }

    pub(super) fn is_program(&self) -> bool {
        self.module.info().kind == ModuleKind::Program
    }

    pub(super) fn shown_name(&self) -> String {
        let name = self.name.as_deref();
        name.unwrap_or(self.module.name()).to_owned()
    }

    pub(super) fn settled(self) -> (Module, Settings) {
        let limits = self
            .module
            .granted()
            .limits(self.module.info().kind, self.limits.clone());
        // A component's places are for instances with a configuration of their own; one more instance has
        // the configuration of all others.
        let places = match self.is_component() {
            true => limits
                .flows
                .min(self.module.granted().instances().saturating_sub(1)),
            false => limits.flows,
        };
        let settings = Settings {
            name: self.shown_name(),
            config: self.config,
            sockets: self.sockets,
            listens: self.listens,
            drain: self.drain,
            reach: self.reach,
            connector: self.connector,
            keys: self.keys,
            capture: self.capture,
            accepting: self.accepting,
            log_level: self.log_level.unwrap_or_else(subscribed_level),
            counters: Arc::default(),
            flows: Quota::new(places),
            descriptors: Quota::new(limits.descriptors),
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            limits,
        };
        (self.module, settings)
    }
}
