//! `watm listen`: accepts connections through a module, for standard input and output or an
//! upstream. `serve` handles datagrams and several addresses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use watm_runtime::{
    BindTransparent, Connection, Destination, Error, ErrorCode, Listener, connect_upstream,
};

use crate::accept_loop::Complaints;
use crate::commands::serve;
use crate::commands::serve::{Front, Place, Upstream};
use crate::failure::{Failure, Outcome};
use crate::inputs::{destination, listening_address};
use crate::options::ModuleOptions;
use crate::shape::{self, Needs};
use crate::stop::{self, DrainOptions, Stop};
use crate::transparent::TransparentArguments;
use crate::{accept_loop, follow, join, stdio};

/// The time limit for connecting to the upstream: a little more than four unanswered SYNs.
const CONNECTING: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleOptions,
    /// Address to accept the transport's connections on, or with udp:// in front its datagrams;
    /// port 0 lets the system choose. With --forward there may be several.
    #[arg(value_name = "ADDRESS:PORT", value_parser = place, required = true)]
    addresses: Vec<Place>,
    /// Forward decoded streams to this address by TCP, and, on udp:// listeners, decoded datagrams
    /// by UDP. Without it, the first connection uses standard input and output, and no other is
    /// accepted.
    #[arg(long, value_name = "HOST:PORT", value_parser = upstream)]
    forward: Option<Destination>,
    /// Forward flows that the module refuses to the application, marked with the attribute `decoy`,
    /// to this address by TCP. Without it they are refused.
    #[arg(long, value_name = "HOST:PORT", value_parser = upstream, requires = "forward")]
    decoy: Option<Destination>,
    #[command(flatten)]
    transparent: TransparentArguments,
    #[command(flatten)]
    drain: DrainOptions,
    /// Arguments of a program of WASI. By default the address, and `application.internal` with its
    /// port.
    #[arg(value_name = "ARGUMENT", last = true)]
    arguments: Vec<String>,
}

/// The upstreams of connections.
struct Upstreams {
    application: Destination,
    decoy: Option<Destination>,
    /// Set if upstreams see the clients' addresses.
    transparent: Option<BindTransparent>,
}

impl Upstreams {
    /// Returns the upstream of this connection.
    fn of(&self, accepted: &Connection) -> Option<&Destination> {
        let attributes = &accepted.info().attributes;
        match attributes.iter().any(|(name, _)| name == "decoy") {
            true => self.decoy.as_ref(),
            false => Some(&self.application),
        }
    }

    async fn connect(&self, to: &Destination, accepted: &Connection) -> io::Result<TcpStream> {
        let addresses: Vec<SocketAddr> = match to {
            Destination::Address(address) => vec![*address],
            Destination::Name(name, port) => lookup_host((name.as_str(), *port)).await?.collect(),
        };
        let source = self.transparent.as_ref();
        let source = source.map(|transparent| (transparent, accepted.info().source));
        connect_upstream(&addresses, source).await
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let address = match (&*arguments.addresses, &arguments.forward) {
        ([place], _) if let Some(address) = place.for_connections() => address,
        (_, Some(_)) if !arguments.arguments.is_empty() => {
            return Err(Failure::unusable(
                "a program takes its arguments with one TCP address; remove the others",
            ));
        }
        (_, Some(forward)) => return forward_all(&arguments, forward.clone()),
        _ => {
            return Err(Failure::unusable(
                "pass --forward; without it, only one TCP address is supported",
            ));
        }
    };
    let loaded = arguments.module.load(arguments.forward.is_some())?;
    let transparent = arguments.transparent.granted(&loaded.module)?;
    if arguments.decoy.is_some() {
        shape::check(&loaded.module, "--decoy", Needs::Facts)?;
    }
    stop::run_draining(arguments.drain.time(), |mut stop| async move {
        let listener = loaded.apply(Listener::builder(&loaded.module));
        let listener = match arguments.arguments.is_empty() {
            true => listener,
            false => listener.arguments(arguments.arguments),
        };
        let listener = listener.bind(address)?;
        match stop.unless(listener.check_config()).await {
            Some(checked) => checked?,
            None => return Ok(()),
        }
        accept_loop::announce(listener.local_addr());
        let Some(forward) = arguments.forward else {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted?,
                () = stop.requested() => return Ok(()),
            };
            return stdio::join(accepted, &mut stop).await;
        };
        let listener = Arc::new(listener);
        let swapped = listener.clone();
        let stopped = (listener.clone(), stop.clone());
        let upstreams = Arc::new(Upstreams {
            application: forward,
            decoy: arguments.decoy,
            transparent,
        });
        let complaints = Arc::new(Complaints::default());
        let accept = move || next(listener.clone());
        let carry =
            move |accepted, stop| pass_on(accepted, upstreams.clone(), complaints.clone(), stop);
        let serving = accept_loop::all(accept, carry, &mut stop);
        tokio::select! {
            served = serving => served,
            () = follow::follow(&loaded, async |module| swapped.swap(&module).await) => Ok(()),
            () = accept_until_asked(stopped) => Ok(()),
        }
    })
}

/// Waits for the next connection. Pending forever once the listener was asked to stop: the signal,
/// which may be noticed a moment later here, decides how the program ends.
async fn next(listener: Arc<Listener>) -> Result<Option<Connection>, Failure> {
    match listener.accept().await {
        Ok(accepted) => Ok(Some(accepted)),
        Err(Error::Closed { .. }) => std::future::pending().await,
        Err(error) => Err(error.into()),
    }
}

/// Stops accepting when a signal ends the program, so that clients do not wait for it. Never
/// returns.
async fn accept_until_asked((listener, mut stop): (Arc<Listener>, Stop)) {
    stop.requested().await;
    if let Err(error) = listener.stop_accepting().await {
        tracing::debug!(target: "watm", "{error}");
    }
    std::future::pending().await
}

/// Serves as `watm serve` does, which supports datagrams and several addresses.
fn forward_all(arguments: &Arguments, forward: Destination) -> Result<Outcome, Failure> {
    let connections = |place: &Place| match place.for_connections() {
        Some(address) => Place::tcp(address),
        None => *place,
    };
    serve::in_front(
        &arguments.module,
        Front {
            listen: arguments.addresses.iter().map(connections).collect(),
            upstream: Upstream::Tcp(forward),
            decoy: arguments.decoy.clone().map(Upstream::Tcp),
            transparent: arguments.transparent.options(),
            drain: arguments.drain.time(),
        },
    )
}

/// Parses an upstream. `tcp://` may be in front, as in `watm serve`.
fn upstream(text: &str) -> Result<Destination, String> {
    destination(text.strip_prefix("tcp://").unwrap_or(text))
}

/// Parses an address to listen on, as `watm serve` does, and resolves a name.
pub(crate) fn place(text: &str) -> Result<Place, String> {
    let (by, rest) = match text.split_once("://") {
        Some((by, rest)) => (Some(by), rest),
        None => (None, text),
    };
    let address = listening_address(rest)?.to_string();
    match by {
        Some(by) => format!("{by}://{address}").parse(),
        None => address.parse(),
    }
}

async fn pass_on(
    accepted: Connection,
    upstreams: Arc<Upstreams>,
    complaints: Arc<Complaints>,
    mut stop: Stop,
) {
    let Some(upstream) = upstreams.of(&accepted) else {
        accepted.abort(ErrorCode::AccessDenied);
        return accepted.close().await;
    };
    let connected = tokio::select! {
        connected = timeout(CONNECTING, upstreams.connect(upstream, &accepted)) => connected,
        () = stop.requested() => return accepted.close().await,
    };
    let failure = match connected {
        Ok(Ok(upstream)) => {
            complaints.works();
            if let Err(reason) = join::with_tcp(accepted, upstream, &mut stop).await {
                tracing::debug!(target: "watm", "a connection failed: {reason}");
            }
            return;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", CONNECTING.as_secs()),
    };
    complaints.failed(&format!("upstream {upstream}: {failure}"));
    accepted.abort(ErrorCode::ConnectionRefused);
    accepted.close().await;
}
