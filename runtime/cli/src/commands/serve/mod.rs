//! `watm serve`: listeners in front of applications.
//!
//! 1. The configuration becomes [`Settings`], or an error that names its place.
//! 2. Each listener is a [`Frontend`]: a module on each of its workers, with a socket of its own
//!    each.
//! 3. Each flow is [carried](carry) on the worker's own thread, to an [upstream] and back, and
//!    logged when it ends.
//! 4. A [`Service`] has all listeners. It answers [status requests](crate::reporting::web), is
//!    reloaded, and is drained.

mod attempts;
mod carry;
mod clients;
mod extended_or_port;
mod fields;
mod file;
mod flow_sockets;
mod frontend;
mod gate;
mod header;
mod many;
mod metrics;
mod outcome;
mod pages;
mod records;
mod service;
mod settings;
mod status;
mod traffic;
mod upstream;
mod values;
mod watching;

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;

use crate::durations::Seconds;
use crate::failure::{Failure, Outcome};
use crate::keys::KeyOptions;
use crate::loading::LoadingOptions;
use crate::logging::{self, PROGRAM};
use crate::reporting::web::{Host, Hosts, Web};
use crate::system::{Signal, Signals, raise_descriptors};
pub(crate) use extended_or_port::ExtendedOrPort;
use frontend::{Frontend, Serving};
pub(crate) use many::{Front, Many, in_front};
use service::Service;
use settings::{Overrides, Settings};
pub(crate) use values::{Place, Upstream};
use values::{ProxyHeader, Workers};
use watching::Watching;

/// Threads for everything but connections: signals, metrics, reloads.
const THREADS: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A configuration (TOML), or a module; with a module, --listen and --upstream are required.
    #[arg(value_name = "CONFIG|MODULE")]
    file: PathBuf,
    /// Check the configuration, the modules and their own configurations, and start nothing.
    #[arg(long)]
    check: bool,
    /// Address that clients connect to, such as 0.0.0.0:443 or udp://0.0.0.0:443; may be given
    /// several times.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<Place>,
    /// Application: HOST:PORT, unix:PATH, or dynamic, which is the destination of each flow, as far
    /// as --allow admits it.
    #[arg(long, value_name = "UPSTREAM")]
    upstream: Option<Upstream>,
    /// Workers for each address, each with a socket and an instance of the module; by default auto,
    /// one for each core, of which only the first accepts datagrams.
    #[arg(long, value_name = "NUMBER")]
    workers: Option<Workers>,
    /// Configuration file for the module, in its own format.
    #[arg(long, visible_alias = "config-file", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyOptions,
    /// Announce each client to the upstream with a PROXY protocol header.
    #[arg(long, value_name = "VERSION")]
    proxy_header: Option<ProxyHeader>,
    /// Destination that a dynamic upstream may have; may be given several times. A name, *.name,
    /// address, network or *, then :port or :low-high; for TCP and UDP unless tcp:// or udp:// is
    /// in front.
    #[arg(long, value_name = "PATTERN")]
    allow: Vec<String>,
    /// Destination that the module itself may connect to; may be given several times.
    #[arg(long, value_name = "PATTERN")]
    reach: Vec<String>,
    /// Answer /metrics, /status and /readyz here, by HTTP.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Accept this name in the Host header of these requests, beside addresses and localhost; may
    /// be given several times. Requests with other names are refused.
    #[arg(long, value_name = "NAME")]
    metrics_host: Vec<Host>,
    /// Time for connections to end after SIGTERM or SIGINT, by default 30; a second signal ends
    /// them at once.
    #[arg(long, value_name = "SECONDS")]
    drain_timeout: Option<Seconds>,
    /// Load a module again when its file changes, for later connections. A module that cannot be
    /// loaded changes nothing. SIGHUP does the same, with the configuration.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    log: logging::Overrides,
    #[command(flatten)]
    loading: LoadingOptions,
}

impl Arguments {
    fn settings(&self) -> Result<Settings, Failure> {
        let overrides = Overrides {
            log: logging::Overrides {
                level: self.log.level,
                format: self.log.format,
            },
            metrics: self.metrics,
            metrics_hosts: self.metrics_host.clone(),
            drain: self.drain_timeout,
            listen: self.listen.clone(),
            upstream: self.upstream.clone(),
            workers: self.workers,
            config: self.config.clone(),
            keys: self.keys.key.clone(),
            proxy_header: self.proxy_header,
            allow: self.allow.clone(),
            reach: self.reach.clone(),
        };
        match is_module(&self.file)? {
            true => settings::from_arguments(&self.file, overrides),
            false => settings::from_file(&self.file, overrides),
        }
    }
}

/// Checks the text of a configuration, as `watm serve --check` begins. The error names the file.
pub fn check_file(path: &Path) -> Result<(), String> {
    match settings::from_file(path, Overrides::default()) {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.to_string()),
    }
}

/// Tells modules from configurations by their first bytes.
fn is_module(path: &Path) -> Result<bool, Failure> {
    let mut begin = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read(&mut begin));
    let read = read.map_err(|error| Failure::unusable(format!("{}: {error}", path.display())))?;
    Ok(begin[..read] == *b"\0asm")
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let settings = arguments.settings().inspect_err(|_| {
        logging::start_as(logging::Settings {
            level: arguments.log.level,
            format: arguments
                .log
                .format
                .or_else(|| file::log_format(&arguments.file)),
            connections: true,
        });
    })?;
    logging::start_as(settings.log);
    if arguments.check {
        for listener in &settings.listeners {
            let serving = Serving::load(listener, &arguments.loading, true)?;
            Frontend::check(listener, &serving)?;
        }
        println!("{}: good", arguments.file.display());
        return Ok(Outcome::Well);
    }
    raise_descriptors();
    let threads = threads()?;
    let outcome = threads.block_on(serve(arguments, settings));
    // A module that does not answer may still hold up a thread.
    threads.shutdown_background();
    outcome
}

/// Starts the runtime of everything but the workers.
fn threads() -> Result<Runtime, Failure> {
    let built = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build();
    built.map_err(|error| Failure::failed(format!("cannot start a runtime: {error}")))
}

async fn serve(arguments: &Arguments, settings: Settings) -> Result<Outcome, Failure> {
    let mut signals = Signals::new()?;
    let web = match settings.metrics {
        Some(address) => {
            let option = "metrics.hosts (--metrics-host)";
            let hosts = Hosts::new(settings.metrics_hosts.clone(), option);
            Some(Web::bind("metrics.listen", address, hosts).await?)
        }
        None => None,
    };
    let metrics = (settings.metrics, settings.metrics_hosts.clone());
    let (mut drain, loading) = (settings.drain, arguments.loading.clone());
    let starting = spawn_blocking(move || Service::start(&settings, &loading));
    let started = tokio::select! {
        started = starting => started.map_err(Failure::failed)?,
        () = ended(&mut signals) => return Ok(Outcome::Well),
    };
    let service = Arc::new(started?);
    for frontend in service.frontends() {
        frontend.announce();
    }
    if let Some(web) = web {
        tracing::info!(target: PROGRAM, address = %web.address, "metrics on {}", web.address);
        tokio::spawn(web.serve(service.clone()));
    }
    let watching = arguments.watch.then(|| Watching::new(&service));
    if let Some(watching) = watching {
        tokio::spawn(watching.follow(service.clone()));
    }
    let mut again = false;
    while again || signals.next().await == Signal::Reload {
        again = false;
        let reloaded = tokio::select! {
            reloaded = reload(arguments, &service, &metrics) => reloaded,
            // The end waits for no module's answer.
            () = ends(&mut signals, &mut again) => break,
        };
        match reloaded {
            Ok(next) => {
                drain = next;
                let file = arguments.file.display();
                tracing::info!(target: PROGRAM, %file, "reloaded {file}");
            }
            Err(failure) => {
                tracing::error!(target: PROGRAM, "{failure}; keeping the previous configuration");
            }
        }
    }
    tracing::info!(target: PROGRAM, "draining");
    match service.drain(drain, ended(&mut signals)).await {
        0 => Ok(Outcome::Well),
        forced => {
            tracing::warn!(
                target: PROGRAM,
                connections = forced,
                "{forced} connections did not end in time"
            );
            Ok(Outcome::Otherwise)
        }
    }
}

/// Waits for the signal to end.
async fn ended(signals: &mut Signals) {
    ends(signals, &mut false).await;
}

/// Waits for the signal to end. Sets `again` if one to reload comes before.
async fn ends(signals: &mut Signals, again: &mut bool) {
    while signals.next().await == Signal::Reload {
        *again = true;
    }
}

/// Reloads the configuration. Returns the time limit of drains from now on.
async fn reload(
    arguments: &Arguments,
    service: &Service,
    (address, hosts): &(Option<SocketAddr>, Vec<Host>),
) -> Result<std::time::Duration, Failure> {
    let settings = arguments.settings()?;
    let differs = [
        ("listen", settings.metrics != *address),
        ("hosts", settings.metrics_hosts != *hosts),
    ];
    if let Some((key, _)) = differs.iter().find(|(_, differs)| *differs) {
        return Err(Failure::unusable(format!(
            "metrics.{key}: cannot change while the program runs; restart it"
        )));
    }
    let drain = settings.drain;
    service.reload(settings).await?;
    Ok(drain)
}
