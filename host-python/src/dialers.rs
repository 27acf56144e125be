//! Ways to dial through modules; those that were used last are kept, so that connections alike
//! share one: a component has a thread for each.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use watm_runtime::{
    Connection, DatagramFlow, Dialer, Error, FixedDialer, Module, RoleBuilder, Status,
};
use watm_socks::{Destination, Refusal, Resolver};

use crate::options::Options;

/// Dialers that are kept. More than programs have different ways to dial; what has an open
/// connection lives on when it is not kept any more.
const KEPT: usize = 16;

/// The label that every module has for its first socket.
const LISTEN: &str = "listen";

/// How connections are made.
#[derive(Clone)]
pub(crate) enum Way {
    /// To where the application wants.
    Named(Dialer),
    /// To where the module wants.
    Fixed(FixedDialer),
}

/// What was dialled.
pub(crate) enum Opened {
    Stream(Connection),
    Datagrams(DatagramFlow),
}

/// What is dialled: where, by which means.
pub(crate) struct Target {
    /// `None`: where the module wants to go.
    pub(crate) destination: Option<(String, u16)>,
    pub(crate) datagrams: bool,
    /// Who knows the addresses of names.
    pub(crate) resolver: Resolver,
}

impl Way {
    /// Start the module. A component takes its time for that.
    pub(crate) fn new(module: &Module, options: &Options, fixed: bool) -> Result<Way, Error> {
        match options.udp {
            Some(address) if address.ip() == Ipv6Addr::UNSPECIFIED => {
                match Way::with(module, options, fixed, Some(address)) {
                    // A machine without IPv6.
                    Err(Error::Grant { .. }) => {
                        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
                        Way::with(module, options, fixed, Some(any))
                    }
                    started => started,
                }
            }
            udp => Way::with(module, options, fixed, udp),
        }
    }

    fn with(
        module: &Module,
        options: &Options,
        fixed: bool,
        udp: Option<SocketAddr>,
    ) -> Result<Way, Error> {
        fn granted<R>(builder: RoleBuilder<R>, udp: Option<SocketAddr>) -> RoleBuilder<R> {
            match udp {
                Some(address) => builder.udp(LISTEN, address),
                None => builder,
            }
        }
        Ok(match fixed {
            false => {
                let builder = options.apply(Dialer::builder(module))?;
                Way::Named(granted(builder, udp).build()?)
            }
            true => {
                let builder = options.apply(FixedDialer::builder(module))?;
                Way::Fixed(granted(builder, udp).build()?)
            }
        })
    }

    /// Dial. Of the addresses of a name, the first that can be had; `name` is for errors.
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

    /// Have another module make the connections from now on.
    pub(crate) async fn swap(&self, module: &Module) -> Result<(), Error> {
        match self {
            Way::Named(dialer) => dialer.swap(module).await,
            Way::Fixed(dialer) => dialer.swap(module).await,
        }
    }

    /// How the module is doing.
    pub(crate) async fn status(&self) -> Result<Status, Error> {
        match self {
            Way::Named(dialer) => dialer.status().await,
            Way::Fixed(dialer) => dialer.status().await,
        }
    }
}

/// The error of a name whose address is not known.
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

/// The dialer for this module and these options, if there is one.
pub(crate) fn find(module: &Module, options: &Options, fixed: bool) -> Result<Option<Way>, Error> {
    dialers().find(&module.info().sha256, options, fixed)
}

/// Make it, unless somebody was faster. A component is started, which takes its time.
pub(crate) fn make(module: &Module, options: Options, fixed: bool) -> Result<Way, Error> {
    let way = Way::new(module, &options, fixed)?;
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

/// Keep none any more, and make none. For the end of the process.
pub(crate) fn forget() {
    let mut dialers = dialers();
    dialers.kept.clear();
    dialers.ended = true;
}

/// The error of a dial after that.
pub(crate) fn ended() -> Error {
    Error::System("the interpreter ends".to_owned())
}

struct Kept {
    sha256: String,
    fixed: bool,
    options: Options,
    way: Way,
}

struct Dialers {
    /// The one that was used last is the last.
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
