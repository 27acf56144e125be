use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{Connection, Destination, Dialer, Error, FixedDialer, Module};

use crate::failure::Failure;
use crate::options::{Loaded, ModuleOptions, destination, listening_address};
use crate::serve::Complaints;
use crate::stop::{self, Stop};
use crate::{Outcome, join, serve, standard, watch};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleOptions,
    /// Where to; not with --fixed.
    #[arg(value_name = "HOST:PORT", value_parser = destination, required_unless_present = "fixed")]
    destination: Option<Destination>,
    /// Have the module choose the address, which --allow must admit.
    #[arg(long, conflicts_with = "destination")]
    fixed: bool,
    /// Carry connections to this local address, each by a dial of its own, in the place of
    /// standard input and output.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listening_address)]
    listen: Option<SocketAddr>,
}

pub(crate) fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let loaded = arguments.module.load(arguments.listen.is_some())?;
    let way = Way::new(&loaded, arguments.destination)?;
    stop::run(|stop| async move {
        match arguments.listen {
            None => for_standard(&way, stop).await,
            Some(address) => for_clients(&loaded, way, address, stop).await,
        }
    })
}

/// How a connection is made.
enum Way {
    To(Dialer, String),
    Fixed(FixedDialer),
}

impl Way {
    fn new(loaded: &Loaded, destination: Option<Destination>) -> Result<Way, Error> {
        let module = &loaded.module;
        Ok(match destination {
            Some(destination) => Way::To(
                loaded.apply(Dialer::builder(module)).build()?,
                destination.to_string(),
            ),
            None => Way::Fixed(loaded.apply(FixedDialer::builder(module)).build()?),
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
    standard::join(connection, &mut stop).await
}

async fn for_clients(
    loaded: &Loaded,
    way: Way,
    address: SocketAddr,
    mut stop: Stop,
) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)
        .await
        .and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (address, listener) =
        listener.map_err(|error| Failure::failed(format!("{address}: {error}")))?;
    serve::announce(address);
    let listener = Arc::new(listener);
    let way = Arc::new(way);
    let swapped = way.clone();
    let complaints = Arc::new(Complaints::default());
    let accept = move || {
        let listener = listener.clone();
        async move { Ok(accept(&listener).await) }
    };
    let carry = move |client, stop| carry(client, way.clone(), complaints.clone(), stop);
    let serving = serve::all(accept, carry, &mut stop);
    tokio::select! {
        served = serving => served,
        () = watch::follow(loaded, async |module| swapped.swap(&module).await) => Ok(()),
    }
}

/// A client; none if the system is short of something.
async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((client, _)) => {
            // Latency matters more than packets.
            let _ = client.set_nodelay(true);
            Some(client)
        }
        Err(error) => {
            tracing::debug!(target: "watm", "accept: {error}");
            None
        }
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
