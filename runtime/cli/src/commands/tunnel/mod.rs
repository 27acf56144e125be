//! `watm tunnel`: a WireGuard tunnel in this process, for any program that supports proxies or port
//! forwards.

mod applications;
mod configuration;
mod exec;
mod file;
mod gate;
mod module;
mod reverse;
mod up;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use watm_runtime::{Destination, Dialer, Reach};
use watm_socks::{Dial, Resolver, Resolving, Servers};

use self::configuration::ConfigurationOptions;
use self::exec::Exec;
pub(crate) use self::exec::HELPER;
pub(super) use self::exec::try_exec;
use self::file::File;
pub(super) use self::module::{WIREGUARD, find as find_module};
use self::reverse::Reverses;
use crate::failure::{Failure, Outcome};
use crate::forward::Forward;
use crate::inputs::destination;
use crate::options::{RunningOptions, reach_of};
use crate::proxies::{DNS_PORT, ProxyOptions};
use crate::reporting::dialer::ReportOptions;
use crate::stop::{self, Stop};
use crate::through::{LABEL, ThroughOptions};
use crate::{follow, logging, stdio};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    configuration: ConfigurationOptions,
    /// WireGuard module. By default wireguard.wasm, in a folder of WATM_MODULES, in watm/modules in
    /// the user's data folder, or in modules beside this program.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Connect standard input and output to this destination in the tunnel, and end with it, as
    /// ProxyCommand of ssh.
    #[arg(long, value_name = "HOST:PORT", value_parser = destination)]
    stdio: Option<Destination>,
    /// Accept connections from the tunnel on this port, and carry them to a service:
    /// tcp:ADDRESS:PORT=HOST:PORT or udp:ADDRESS:PORT=HOST:PORT, with an Address of the file or
    /// `0.0.0.0` or `[::]` for all. May be given several times.
    #[arg(long = "reverse", value_name = "PORT=HOST:PORT")]
    reverses: Vec<Forward>,
    /// Run a program whose only network is the tunnel, and end with its exit status: --exec -- PROGRAM
    /// [ARGUMENT...]. Linux only.
    #[arg(long, requires = "program", conflicts_with = "stdio")]
    exec: bool,
    /// The program of --exec, with its arguments.
    #[arg(last = true, requires = "exec", value_name = "PROGRAM")]
    program: Vec<OsString>,
    /// Network namespace, such as that of a container, whose programs use the tunnel: one of `ip
    /// netns`, the number of a process, or a path. A device in it is before its default route. Linux.
    #[arg(long, value_name = "NAME", conflicts_with = "exec")]
    netns: Option<OsString>,
    /// Module for the packets of --exec and --netns. By default tun.wasm, in the same folders.
    #[arg(long, value_name = "FILE")]
    tun_module: Option<PathBuf>,
    #[command(flatten)]
    through: ThroughOptions,
    /// Destination that modules of --through may reach beyond those they are given, such as their
    /// own servers; may be given several times. A name, *.name, address, network or *, then :port
    /// or :low-high; for TCP and UDP unless tcp:// or udp:// is in front.
    #[arg(long, value_name = "PATTERN", requires = "hops")]
    allow: Vec<String>,
    #[command(flatten)]
    proxies: ProxyOptions,
    #[command(flatten)]
    report: ReportOptions,
    #[command(flatten)]
    running: RunningOptions,
}

pub(crate) fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    logging::start(&arguments.running.log);
    let proxied = arguments.proxies.any();
    let devices = arguments.exec || arguments.netns.is_some();
    let unused = arguments.stdio.is_none() && arguments.reverses.is_empty() && !devices;
    if !proxied && unused {
        return Err(Failure::unusable(
            "nothing uses the tunnel; pass --socks5, --http, --forward, --reverse, --exec, --netns or \
             --stdio",
        ));
    }
    let name = arguments.configuration.name();
    let configuration = arguments.configuration.read(devices)?;
    let file = &configuration.file;
    if let Some(port) = file.waits_on() {
        tracing::warn!(
            target: "watm::tunnel",
            "{name}: no [Peer] has an Endpoint; waiting for a peer on UDP port {port}"
        );
    }
    let proxies = arguments.proxies.check(resolver(file))?;
    let reverses = Reverses::check(&arguments.reverses, file)?;
    let (admitted, reversed) = (reverses.clone(), !arguments.reverses.is_empty());
    let asks = arguments.stdio.is_none() && !arguments.exec;
    let loaded = arguments.running.load(
        &module::find(arguments.module.as_deref(), WIREGUARD, "--module")?,
        Some(configuration.bytes.clone()),
        reach(file)?,
        asks,
    )?;
    let allowed = reach_of(&arguments.allow)?;
    let through = arguments.through.open(&loaded.loading, &allowed, asks)?;
    let exec = match devices {
        true => Some(Exec::check(
            arguments.program,
            arguments.netns,
            &configuration,
            &name,
            arguments.tun_module.as_deref(),
            &loaded.loading,
        )?),
        false => None,
    };
    let builder = loaded
        .apply(Dialer::builder(&loaded.module))
        .name(&name)
        .accepting(move |carried, to| admitted.admit(carried, to));
    let builder = match &through {
        Some(through) => through.carry(builder, Some(LABEL)),
        None => builder.udp(LABEL, socket_address(file)),
    };
    let dialer = builder.build()?;
    let mut status = None;
    let ended = &mut status;
    let outcome = stop::run(|stop| async move {
        // The program gets the signals, and everything ends with it.
        let program = exec.as_ref().is_some_and(Exec::has_program);
        let later = program.then(|| stop.later());
        let stop = later.as_ref().map_or(stop, |(_, stop)| stop.clone());
        let resolving = Resolving::new(dialer.clone(), proxies.resolver().clone());
        let reported = Resolving::new(dialer.clone(), proxies.resolver().clone());
        let carrying = Resolving::new(dialer.clone(), proxies.resolver().clone());
        let serving = async {
            match proxied {
                true => proxies.serve(dialer.clone(), &stop).await,
                false => std::future::pending().await,
            }
        };
        let running = async {
            match exec {
                Some(exec) => exec.run(Arc::new(carrying), stop.clone()).await,
                None => std::future::pending().await,
            }
        };
        let piping = async {
            match &arguments.stdio {
                Some(to) => pipe(&resolving, to, stop.clone()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            served = serving => served,
            piped = piping => piped,
            served = reverses.serve(dialer.clone(), stop.clone()), if reversed => served,
            ran = running => ran.map(|status| *ended = status),
            () = up::tell(&dialer) => Ok(()),
            reported = arguments.report.serve(&name, dialer.clone(), reported) => reported,
            () = configuration.follow(&dialer) => Ok(()),
            () = follow::follow(&loaded, async |module| dialer.swap(&module).await) => Ok(()),
        }
    })?;
    Ok(match status {
        Some(status) => Outcome::Program(status),
        None => outcome,
    })
}

/// Returns the resolver: the DNS servers in the file, asked through the tunnel, if there are any.
fn resolver(file: &File) -> Resolver {
    let servers = file.dns.iter();
    let servers: Vec<_> = servers.map(|ip| SocketAddr::new(*ip, DNS_PORT)).collect();
    match servers.is_empty() {
        true => Resolver::Dialer,
        false => Resolver::Servers(Servers::new(servers).search(file.search.iter().cloned())),
    }
}

/// Returns the reach of the module: the endpoints in the user's file, and no datagrams to strangers
/// first.
fn reach(file: &File) -> Result<Reach, Failure> {
    let mut endpoints = file.endpoints.iter();
    let none = Reach::none().with_datagrams();
    Ok(endpoints.try_fold(none, |reach, endpoint| {
        reach.allow(&format!("udp://{endpoint}"))
    })?)
}

/// Returns the address of the UDP socket, for both families if the machine supports both.
fn socket_address(file: &File) -> SocketAddr {
    let any: IpAddr = match UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(any, file.listen_port)
}

async fn pipe(
    resolving: &Resolving<Dialer>,
    to: &Destination,
    mut stop: Stop,
) -> Result<(), Failure> {
    match stop.unless(resolving.stream(to)).await {
        None => Ok(()),
        Some(Ok(connection)) => stdio::join(connection, &mut stop).await,
        Some(Err(why)) => Err(Failure::failed(format!("{to}: {why}"))),
    }
}
