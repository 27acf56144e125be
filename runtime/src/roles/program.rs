//! Programs: components for WASI 0.2 that listen and connect themselves.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::builder::RoleBuilder;
use super::runner::check_role;
use crate::incoming;
use crate::program::{Running, check_module};
use crate::seal::SocketKind;
use crate::{Destination, Error, Module, Network, Role, Used};
use watm_engine::job::{OuterSocket, Settings};
use watm_engine::{Subject, UsageRecord};
use watm_net::counters::Counters;
use watm_net::quota::Quota;
use watm_wasi::{Options, Ports, Start};

/// The label of the sockets that a program listens on.
const LISTEN: &str = "listen";

/// Runs a program: a component for the world `wasi:cli/command` of WASI 0.2, such as cargo builds for
/// `wasm32-wasip2`. It knows nothing of this library, and listens and connects itself.
///
/// A program listens on the addresses that are granted. It connects to the destination of its options,
/// and within its [`reach`](RoleBuilder::reach). A name counts for the addresses that the program has
/// looked up for it. The [`config`](RoleBuilder::config) is its standard input. The lines that it prints
/// are log records of level DEBUG. It has no files and no environment. With a
/// [`connector`](RoleBuilder::connector), it has no datagrams either.
///
/// A program that fails starts again, on the same listeners. The wait before doubles from 100 ms to 10 s.
/// A failure within its first second ends it, and so does an exit with status 0. Dropping this cancels
/// the program, and resets its connections.
///
/// ```no_run
/// use watm_runtime::{Module, Program, ProgramOptions};
///
/// # async fn example(module: Module) -> Result<(), Box<dyn std::error::Error>> {
/// let program = Program::builder(&module).start(ProgramOptions {
///     arguments: vec!["127.0.0.1:4480".to_owned(), "192.0.2.1:80".to_owned()],
///     tcp: vec!["127.0.0.1:4480".parse()?],
///     destination: Some("192.0.2.1:80".parse()?),
///     ..ProgramOptions::default()
/// })?;
/// program.ended().await?;
/// # Ok(())
/// # }
/// ```
pub struct Program {
    name: String,
    running: Running,
    usage: UsageRecord,
    counters: Arc<Counters>,
    sockets: Quota,
}

/// The options of a [`Program`] beside those of every module.
#[derive(Debug, Clone, Default)]
pub struct ProgramOptions {
    /// The arguments, after the name of the program.
    pub arguments: Vec<String>,
    /// The addresses that it may listen on by TCP. The host binds them before the program starts. A
    /// program that binds the unspecified address, or port 0, gets a granted one.
    pub tcp: Vec<SocketAddr>,
    /// The addresses that it may bind for datagrams.
    pub udp: Vec<SocketAddr>,
    /// A destination that it may connect to, whatever its reach is.
    pub destination: Option<Destination>,
}

impl Program {
    /// Starts to build a program from this module.
    pub fn builder(module: &Module) -> RoleBuilder<Program> {
        RoleBuilder::new(module)
    }

    /// Returns the TCP addresses that it may listen on, in the order of its options.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.running.serving().ports().tcp().collect()
    }

    /// Waits until the program has ended by itself. Fails with [`Error::Trap`] if it failed in its first
    /// second.
    pub async fn ended(&self) -> Result<(), Error> {
        self.running.ended().await
    }

    /// Runs another program on the same listeners, with the same options. The former one ends at once,
    /// and its connections are reset. An error changes nothing: a module that is no program, or may not
    /// run within its seal and grant.
    pub fn swap(&self, module: &Module) -> Result<(), Error> {
        let before = self.running.serving();
        check_module(module)?;
        check_role(module, Role::Relay)?;
        let ports = before.ports();
        check_sockets(module, &self.name, ports.tcp().count(), ports.udp().len())?;
        let next = before.with_module(module)?;
        module.accept()?;
        self.usage.change(module);
        self.running.replace(next);
        Ok(())
    }

    /// Returns the usage as of now.
    pub fn used(&self) -> Used {
        self.usage.used()
    }

    /// Returns the number of times that it has started again after a failure.
    pub fn restarts(&self) -> u64 {
        self.counters.restarts.get()
    }

    /// Returns the number of its sockets, including those that wait for a slow peer.
    pub fn sockets(&self) -> usize {
        self.sockets.open()
    }

    /// Cancels the program, resets its connections, and frees its ports. Takes a few milliseconds.
    pub async fn close(self) {
        self.running.close().await;
    }
}

impl RoleBuilder<Program> {
    /// Binds the addresses and starts the program, in the tokio runtime that this is called in.
    pub fn start(self, options: ProgramOptions) -> Result<Program, Error> {
        incoming::check_runtime()?;
        let (module, settings) = self.settled();
        check(&module, &settings, &options)?;
        let mut ports = Ports::default();
        for address in &options.tcp {
            let granted = ports.grant_tcp(incoming::bind(*address)?, None);
            granted.map_err(|error| Error::System(format!("the listening socket: {error}")))?;
        }
        options
            .udp
            .iter()
            .for_each(|address| ports.grant_udp(*address));
        let sockets = |network: Network, addresses: Vec<SocketAddr>| {
            let words = |address| format!("{network} {LISTEN} {address}");
            addresses.into_iter().map(words).collect::<Vec<_>>()
        };
        let mut used = sockets(Network::Tcp, ports.tcp().collect());
        used.extend(sockets(Network::Udp, options.udp.clone()));
        let subject = Subject {
            counters: settings.counters.clone(),
            flows: settings.descriptors.clone(),
            sockets: used,
        };
        let (name, counters) = (settings.name.clone(), settings.counters.clone());
        let sockets = settings.descriptors.clone();
        let options = Options {
            arguments: options.arguments,
            ports,
            own: options.destination,
            application: None,
        };
        let start = Start::new(&module, settings, options)?;
        let usage = UsageRecord::new(&module, subject);
        module.accept()?;
        let running = Running::new(start, &name, &counters);
        Ok(Program {
            name,
            running,
            usage,
            counters,
            sockets,
        })
    }
}

/// Refuses options that no program has a use for, or that this one may not have.
fn check(module: &Module, settings: &Settings, options: &ProgramOptions) -> Result<(), Error> {
    let name = &settings.name;
    settings.limits.check()?;
    check_module(module)?;
    check_role(module, Role::Relay)?;
    module.check_keys(name, &settings.keys)?;
    if settings.capture.is_some() {
        module.check_capture(name)?;
    }
    if let Some((label, OuterSocket::Bound(_) | OuterSocket::Carried)) = settings.sockets.first() {
        return Err(Error::Options(format!(
            "{name}: a program binds its sockets itself (label \"{label}\"); grant it addresses"
        )));
    }
    if settings.connector.is_some() && !options.udp.is_empty() {
        return Err(Error::Options(format!(
            "{name}: a connector carries no datagrams of a program; grant it no UDP address"
        )));
    }
    check_sockets(module, name, options.tcp.len(), options.udp.len())
}

/// Refuses addresses of a kind that the module may not listen on.
fn check_sockets(module: &Module, name: &str, tcp: usize, udp: usize) -> Result<(), Error> {
    let kinds = [(SocketKind::Tcp, tcp), (SocketKind::Udp, udp)];
    let kinds = kinds.into_iter().filter(|(_, count)| *count > 0);
    module.check_granted(name, kinds.map(|(kind, _)| (kind, LISTEN.to_owned())))
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.name)
            .field("local_addrs", &self.local_addrs())
            .finish_non_exhaustive()
    }
}
