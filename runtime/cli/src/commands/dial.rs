//! `watm dial`: connects through a module, for standard input and output, local clients or proxies.
//! `watm plugin` uses it for a client's side.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use watm_runtime::{
    Carrier, Connection, Destination, Dialer, Error, FixedDialer, Module, RoleBuilder,
};
use watm_socks::Resolver;

use crate::accept_loop::Complaints;
use crate::failure::{Failure, Outcome};
use crate::inputs::{destination, listening_address};
use crate::options::{Loaded, ModuleOptions};
use crate::proxies::ProxyOptions;
use crate::stop::{self, DrainOptions, Stop};
use crate::through::ThroughOptions;
use crate::{accept_loop, follow, join, stdio, tcp, through};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleOptions,
    /// Destination; not with --fixed, nor with proxies and port forwards.
    #[arg(
        value_name = "HOST:PORT",
        value_parser = destination,
        required_unless_present_any = ["fixed", "ProxyOptions"],
        conflicts_with_all = ["fixed", "ProxyOptions"]
    )]
    destination: Option<Destination>,
    /// Let the module choose the address, which --allow must admit.
    #[arg(long, conflicts_with = "ProxyOptions")]
    fixed: bool,
    /// Accept connections on this local address in place of standard input and output, and dial for
    /// each of them.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        value_parser = listening_address,
        conflicts_with = "ProxyOptions"
    )]
    listen: Option<SocketAddr>,
    /// Grant a component a UDP socket, which WireGuard needs, bound to this address. Without an
    /// address, the system chooses the port, or, with --through, that module opens the socket.
    /// Without this option WireGuard uses TCP.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        value_parser = listening_address,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "[::]:0"
    )]
    udp: Option<SocketAddr>,
    #[command(flatten)]
    through: ThroughOptions,
    #[command(flatten)]
    proxies: ProxyOptions,
    #[command(flatten)]
    drain: DrainOptions,
}

pub(crate) fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let (listen, proxied) = (arguments.listen, arguments.proxies.any());
    let proxies = arguments.proxies.check(Resolver::Dialer)?;
    let loaded = arguments.module.load(listen.is_some() || proxied)?;
    let through =
        arguments
            .through
            .open(&loaded.loading, &loaded.reach, listen.is_some() || proxied)?;
    let outer = Outer::new(arguments.udp, through)?;
    if proxied {
        let dialer = outer
            .grant(loaded.apply(Dialer::builder(&loaded.module)))
            .build()?;
        return stop::run_draining(arguments.drain.time(), |stop| async move {
            tokio::select! {
                served = proxies.serve(dialer.clone(), &stop) => served,
                () = follow::follow(&loaded, async |module| dialer.swap(&module).await) => Ok(()),
            }
        });
    }
    let way = Way::new(&loaded, arguments.destination, &outer)?;
    stop::run_draining(arguments.drain.time(), |stop| async move {
        match listen {
            None => for_standard(&way, stop).await,
            Some(address) => for_clients(&loaded, way, address, stop).await,
        }
    })
}

/// Carries the connections that another program makes to this address on to `destination`, until a
/// signal ends the program.
pub(crate) fn for_program(
    loaded: Loaded,
    destination: Destination,
    address: SocketAddr,
) -> Result<Outcome, Failure> {
    let way = Way::new(&loaded, Some(destination), &Outer::default())?;
    stop::run(|stop| async move { for_clients(&loaded, way, address, stop).await })
}

/// The module's access to the network, beside the connections that it makes itself.
#[derive(Default)]
struct Outer {
    /// The address of a granted UDP socket.
    udp: Option<SocketAddr>,
    through: Option<Carrier>,
}

impl Outer {
    fn new(udp: Option<SocketAddr>, through: Option<Carrier>) -> Result<Outer, Failure> {
        match udp {
            Some(address) if through.is_some() && address != through::ANYWHERE => {
                Err(Failure::unusable(format!(
                    "--udp={address}: with --through, the next module of the chain opens the \
                     socket; pass \
                     --udp without an address"
                )))
            }
            udp => Ok(Outer { udp, through }),
        }
    }

    fn grant<R>(&self, builder: RoleBuilder<R>) -> RoleBuilder<R> {
        match (&self.through, self.udp) {
            (Some(through), udp) => through.carry(builder, udp.map(|_| through::LABEL)),
            (None, Some(address)) => builder.udp(through::LABEL, address),
            (None, None) => builder,
        }
    }
}

/// The dialer of a command, and its destination unless the module chooses it.
enum Way {
    To(Dialer, String),
    Fixed(FixedDialer),
}

impl Way {
    fn new(loaded: &Loaded, destination: Option<Destination>, outer: &Outer) -> Result<Way, Error> {
        let module = &loaded.module;
        Ok(match destination {
            Some(destination) => Way::To(
                outer.grant(loaded.apply(Dialer::builder(module))).build()?,
                destination.to_string(),
            ),
            None => Way::Fixed(
                outer
                    .grant(loaded.apply(FixedDialer::builder(module)))
                    .build()?,
            ),
        })
    }

    async fn dial(&self) -> Result<Connection, Error> {
        match self {
            Way::To(dialer, destination) => dialer.dial(destination).await,
            Way::Fixed(dialer) => dialer.dial().await,
        }
    }

    async fn swap(&self, module: &Module) -> Result<(), Error> {
        match self {
            Way::To(dialer, _) => dialer.swap(module).await,
            Way::Fixed(dialer) => dialer.swap(module).await,
        }
    }
}

async fn for_standard(way: &Way, mut stop: Stop) -> Result<(), Failure> {
    let connection = tokio::select! {
        connection = way.dial() => connection?,
        () = stop.requested() => return Ok(()),
    };
    stdio::join(connection, &mut stop).await
}

async fn for_clients(
    loaded: &Loaded,
    way: Way,
    address: SocketAddr,
    mut stop: Stop,
) -> Result<(), Failure> {
    let (address, listener) = tcp::bind(address).await?;
    accept_loop::announce(address);
    let listener = Arc::new(listener);
    let way = Arc::new(way);
    let swapped = way.clone();
    let complaints = Arc::new(Complaints::default());
    let accept = move || {
        let listener = listener.clone();
        async move { Ok(tcp::accept(&listener).await) }
    };
    let carry = move |client, stop| carry(client, way.clone(), complaints.clone(), stop);
    let serving = accept_loop::all(accept, carry, &mut stop);
    tokio::select! {
        served = serving => served,
        () = follow::follow(loaded, async |module| swapped.swap(&module).await) => Ok(()),
    }
}

async fn carry(client: TcpStream, way: Arc<Way>, complaints: Arc<Complaints>, mut stop: Stop) {
    let dialed = tokio::select! {
        dialed = way.dial() => dialed,
        () = stop.requested() => return join::reset(&client),
    };
    match dialed {
        Ok(connection) => {
            complaints.works();
            if let Err(reason) = join::with_tcp(connection, client, &mut stop).await {
                tracing::debug!(target: "watm", "a connection failed: {reason}");
            }
        }
        Err(error) => {
            join::reset(&client);
            complaints.failed(&error.to_string());
        }
    }
}
