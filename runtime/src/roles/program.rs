//! Programs: components for WASI 0.2 that listen and connect themselves.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use super::builder::RoleBuilder;
use super::runner::check_role;
use crate::driver::Backoff;
use crate::incoming;
use crate::seal::SocketKind;
use crate::{Destination, Error, Module, ModuleKind, Network, Role, Used};
use watm_engine::job::{OuterSocket, Settings};
use watm_engine::{Subject, UsageRecord};
use watm_net::counters::Counters;
use watm_net::quota::Quota;
use watm_wasi::{Ports, Start, Stop};

/// The label of the sockets that a program listens on.
const LISTEN: &str = "listen";

/// The time in which the failure of a program counts as one to start.
const STARTING: Duration = Duration::from_secs(1);

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
    task: incoming::Task,
    ended: watch::Receiver<Option<Result<(), String>>>,
    /// The program that runs now, or starts again.
    start: watch::Sender<Arc<Start>>,
    usage: UsageRecord,
    counters: Arc<Counters>,
    sockets: Quota,
}

/// The options of a [`Program`] beside those of every module.
#[derive(Debug, Clone, Default)]
pub struct ProgramOptions {
    /// The arguments, after the name of the program.
    pub arguments: Vec<String>,
    /// The addresses that it may listen on by TCP. The host binds them before the program starts. For
    /// port 0, the program binds port 0 or the one that the system chose. A program that binds the
    /// unspecified address gets the granted address with that port.
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
        self.start.borrow().ports().tcp().collect()
    }

    /// Waits until the program has ended by itself. Fails with [`Error::Trap`] if it failed in its first
    /// second.
    pub async fn ended(&self) -> Result<(), Error> {
        let mut ended = self.ended.clone();
        let ended = ended.wait_for(Option::is_some).await;
        let ended = ended.map(|ended| ended.clone());
        match ended {
            Ok(Some(Ok(()))) => Ok(()),
            Ok(Some(Err(reason))) => Err(Error::Trap {
                module: self.name.clone(),
                reason,
            }),
            Ok(None) | Err(_) => Err(Error::Closed {
                module: self.name.clone(),
            }),
        }
    }

    /// Runs another program on the same listeners, with the same options. The former one ends at once,
    /// and its connections are reset. An error changes nothing: a module that is no program, or may not
    /// run within its seal and grant.
    pub fn swap(&self, module: &Module) -> Result<(), Error> {
        let before = self.start.borrow().clone();
        check_module(module)?;
        let ports = before.ports();
        check_sockets(module, &self.name, ports.tcp().count(), ports.udp().len())?;
        let next = before.with_module(module)?;
        module.accept()?;
        self.usage.change(module);
        self.start.send_replace(Arc::new(next));
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
        let Program {
            task, mut ended, ..
        } = self;
        drop(task);
        // An error means that the task is gone.
        while ended.changed().await.is_ok() {}
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
            let granted = ports.grant_tcp(*address, incoming::bind(*address)?);
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
        let ProgramOptions {
            arguments,
            destination,
            ..
        } = options;
        let start = Arc::new(Start::new(
            &module,
            settings,
            arguments,
            ports,
            destination,
        )?);
        let usage = UsageRecord::new(&module, subject);
        module.accept()?;
        let (tell, ended) = watch::channel(None);
        let (start, serving) = watch::channel(start);
        let running = run(serving, name.clone(), counters.clone());
        let task = incoming::Task::spawn(async move {
            tell.send_replace(Some(running.await));
        });
        Ok(Program {
            name,
            task,
            ended,
            start,
            usage,
            counters,
            sockets,
        })
    }
}

/// Runs instances of the program, one after another, until one ends by itself or fails to start.
async fn run(
    mut serving: watch::Receiver<Arc<Start>>,
    name: String,
    counters: Arc<Counters>,
) -> Result<(), String> {
    let begun = Instant::now();
    let mut backoff = Backoff::new(begun);
    loop {
        let start = serving.borrow_and_update().clone();
        let Some(ended) = unless_swapped(&mut serving, start.run()).await else {
            continue;
        };
        let Err(stop) = ended else {
            return Ok(());
        };
        let now = Instant::now();
        let reason = stop.reason();
        if counters.restarts.get() == 0 && now.duration_since(begun) < STARTING {
            return Err(reason);
        }
        let wait = backoff.failed(now);
        tracing::error!(
            target: "watm::server",
            server = name.as_str(),
            "the program {}; it starts again in {wait:?}",
            match stop {
                Stop::Exit(_) => reason,
                Stop::Trap(_) => format!("failed: {reason}"),
            }
        );
        unless_swapped(&mut serving, sleep(wait)).await;
        counters.restarts.add(1);
        backoff.started(Instant::now());
    }
}

/// Returns the result of `work`, or `None` if another program takes its place before.
async fn unless_swapped<T>(
    serving: &mut watch::Receiver<Arc<Start>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut swapped = pin!(serving.changed());
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        // An error means that nobody is left to swap it, and this task ends soon.
        Poll::Pending => match swapped.as_mut().poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(None),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        },
    })
    .await
}

/// Refuses options that no program has a use for, or that this one may not have.
fn check(module: &Module, settings: &Settings, options: &ProgramOptions) -> Result<(), Error> {
    let name = &settings.name;
    settings.limits.check()?;
    check_module(module)?;
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

/// Refuses a module that is no program.
fn check_module(module: &Module) -> Result<(), Error> {
    let kind = module.info().kind;
    match kind {
        ModuleKind::Program => check_role(module, Role::Relay),
        _ => Err(Error::Module {
            module: module.name().to_owned(),
            reason: format!(
                "is a {kind}, and no program of WASI 0.2; use it as a relay, a listener or a server"
            ),
        }),
    }
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
