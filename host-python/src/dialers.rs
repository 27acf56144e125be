//! Running dialers for all dials of the process. The latest used are kept, so that dials with equal
//! options share one: a component has a thread for each. Used throughout the crate.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use watm_runtime::{
    Carrier, Connection, DatagramFlow, Dialer, Error, FixedDialer, Module, RoleBuilder, Status,
};
use watm_socks::{Destination, Refusal, Resolver};

use crate::options::Options;

/// The number of dialers that are kept: more than programs have different ways to dial. One with an
/// open connection lives on when it is no longer kept.
const KEPT: usize = 16;

/// The label that every module uses for its first socket.
const LISTEN: &str = "listen";

/// A dialer of either kind.
#[derive(Clone)]
pub(crate) enum Way {
    /// A dialer to destinations that the application names.
    Named(Dialer),
    /// A dialer to destinations that the module chooses.
    Fixed(FixedDialer),
}

/// An opened connection or flow.
pub(crate) enum Opened {
    Stream(Connection),
    Datagrams(DatagramFlow),
}

/// The target of a dial, with its kind and its resolver.
pub(crate) struct Target {
    /// The destination; `None` if the module chooses it.
    pub(crate) destination: Option<(String, u16)>,
    pub(crate) datagrams: bool,
    /// The resolver of names.
    pub(crate) resolver: Resolver,
}

impl Way {
    /// Starts the module. A component takes some time for that. With a carrier, it reaches the network
    /// through another module.
    pub(crate) fn new(
        module: &Module,
        options: &Options,
        fixed: bool,
        through: Option<&Carrier>,
    ) -> Result<Way, Error> {
        let start = |udp| match fixed {
            false => {
                let builder = options.apply(Dialer::builder(module))?;
                let dialer = granted(builder, udp, through).build()?;
                Ok(Way::Named(dialer))
            }
            true => {
                let builder = options.apply(FixedDialer::builder(module))?;
                let dialer = granted(builder, udp, through).build()?;
                Ok(Way::Fixed(dialer))
            }
        };
        match options.udp {
            Some(address) if address.ip() == Ipv6Addr::UNSPECIFIED => match start(Some(address)) {
                // The machine has no IPv6.
                Err(Error::Grant { .. }) => {
                    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
                    start(Some(any))
                }
                started => started,
            },
            udp => start(udp),
        }
    }

    /// Dials the target. Tries the addresses of a name in order. `name` is the dialer's, for
    /// errors.
    pub(crate) async fn open(&self, name: &str, target: &Target) -> Result<Opened, Error> {
        match (self, &target.destination) {
            (Way::Named(dialer), Some((host, port))) => {
                let place = match host.parse() {
                    Ok(ip) => Destination::Address(SocketAddr::new(ip, *port)),
                    Err(_) => Destination::Name(host.clone(), *port),
                };
                let places = target.resolver.places(dialer, &place).await;
                let mut last = unknown(name, &place, &Refusal::HostUnreachable);
                for place in places.map_err(|refusal| unknown(name, &place, &refusal))? {
                    let place = place.to_string();
                    let opened = match target.datagrams {
                        false => dialer.dial(&place).await.map(Opened::Stream),
                        true => dialer.dial_datagrams(&place).await.map(Opened::Datagrams),
                    };
                    match opened {
                        Ok(opened) => return Ok(opened),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            (Way::Named(_), None) => Err(Error::Options("no destination".to_owned())),
            (Way::Fixed(dialer), _) => match target.datagrams {
                false => dialer.dial().await.map(Opened::Stream),
                true => dialer.dial_datagrams().await.map(Opened::Datagrams),
            },
        }
    }

    /// Uses another module for future connections.
    pub(crate) async fn swap(&self, module: &Module) -> Result<(), Error> {
        match self {
            Way::Named(dialer) => dialer.swap(module).await,
            Way::Fixed(dialer) => dialer.swap(module).await,
        }
    }

    /// Returns the status of the module.
    pub(crate) async fn status(&self) -> Result<Status, Error> {
        match self {
            Way::Named(dialer) => dialer.status().await,
            Way::Fixed(dialer) => dialer.status().await,
        }
    }
}

/// Grants a module its UDP socket, if it has one, and its way to the network.
fn granted<R>(
    builder: RoleBuilder<R>,
    udp: Option<SocketAddr>,
    through: Option<&Carrier>,
) -> RoleBuilder<R> {
    match (through, udp) {
        (Some(carrier), udp) => carrier.carry(builder, udp.map(|_| LISTEN)),
        (None, Some(address)) => builder.udp(LISTEN, address),
        (None, None) => builder,
    }
}

/// Returns the error for a name that has no known address.
fn unknown(module: &str, place: &Destination, refusal: &Refusal) -> Error {
    let source = match refusal {
        Refusal::TimedOut => io::ErrorKind::TimedOut.into(),
        Refusal::NotAllowed => io::ErrorKind::PermissionDenied.into(),
        Refusal::HostUnreachable => io::Error::other("the name has no address"),
        other => io::Error::other(format!("the name cannot be looked up: {other}")),
    };
    Error::Connect {
        module: module.to_owned(),
        target: place.to_string(),
        source,
    }
}

/// Returns the kept dialer for this module and these options, if any.
pub(crate) fn find(module: &Module, options: &Options, fixed: bool) -> Result<Option<Way>, Error> {
    dialers().find(&module.info().sha256, options, fixed)
}

/// Makes a dialer, unless another thread was faster. Starting a component takes some time.
pub(crate) fn make(module: &Module, options: Options, fixed: bool) -> Result<Way, Error> {
    let way = Way::new(module, &options, fixed, None)?;
    let sha256 = &module.info().sha256;
    let mut dialers = dialers();
    if let Some(known) = dialers.find(sha256, &options, fixed)? {
        return Ok(known);
    }
    if dialers.kept.len() == KEPT {
        dialers.kept.remove(0);
    }
    dialers.kept.push(Kept {
        sha256: sha256.clone(),
        fixed,
        options,
        way: way.clone(),
    });
    Ok(way)
}

/// Drops all dialers and prevents new ones, at the end of the process.
pub(crate) fn forget() {
    let mut dialers = dialers();
    dialers.kept.clear();
    dialers.ended = true;
}

/// Returns the error of dials after that.
pub(crate) fn ended() -> Error {
    Error::System("the interpreter is shutting down".to_owned())
}

struct Kept {
    sha256: String,
    fixed: bool,
    options: Options,
    way: Way,
}

struct Dialers {
    /// Kept dialers, the latest used last.
    kept: Vec<Kept>,
    ended: bool,
}

impl Dialers {
    fn find(&mut self, sha256: &str, options: &Options, fixed: bool) -> Result<Option<Way>, Error> {
        if self.ended {
            return Err(ended());
        }
        let mut kept = self.kept.iter();
        let known = kept
            .position(|one| one.sha256 == sha256 && one.fixed == fixed && one.options == *options);
        Ok(known.map(|index| {
            let one = self.kept.remove(index);
            let way = one.way.clone();
            self.kept.push(one);
            way
        }))
    }
}

static DIALERS: Mutex<Dialers> = Mutex::new(Dialers {
    kept: Vec::new(),
    ended: false,
});

fn dialers() -> MutexGuard<'static, Dialers> {
    DIALERS.lock().unwrap_or_else(PoisonError::into_inner)
}
