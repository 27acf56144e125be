use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use watm_runtime::{
    Destination, Error, ErrorCode, Flow, Limits, Listener, ModuleKind, Server, StreamFlow,
};

use crate::failure::Failure;
use crate::join::Carried;
use crate::options::{Loaded, ModuleOptions, destination, listening_address};
use crate::serve::Complaints;
use crate::stop::{self, Stop};
use crate::{Outcome, join, serve, standard};

/// How long the upstream may take to accept: a little more than four unanswered SYNs.
const CONNECTING: Duration = Duration::from_secs(20);

/// The socket that a component of a stream transport asks for.
const LABEL: &str = "listen";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleOptions,
    /// Where clients of the transport connect to; port 0 lets the system choose.
    #[arg(value_name = "ADDRESS:PORT", value_parser = listening_address)]
    address: SocketAddr,
    /// Pass what the module decodes on to this address, by TCP. Without it the first
    /// connection is for standard input and output, and there is no other.
    #[arg(long, value_name = "HOST:PORT", value_parser = destination)]
    forward: Option<Destination>,
}

pub(crate) fn run(arguments: Arguments) -> Result<Outcome, Failure> {
    let loaded = arguments.module.load()?;
    stop::run(|stop| async move {
        let (address, forward) = (arguments.address, arguments.forward);
        match loaded.module.info().kind {
            ModuleKind::Component => {
                // Held until all flows have ended, since it takes them along.
                let server = Arc::new(serve_component(&loaded, address)?);
                let local = server.local_addr(LABEL).unwrap_or(address);
                each(server.clone(), local, forward, stop).await
            }
            _ => {
                let listener = loaded
                    .apply(Listener::builder(&loaded.module))
                    .bind(address)?;
                let local = listener.local_addr();
                each(Arc::new(listener), local, forward, stop).await
            }
        }
    })
}

fn serve_component(loaded: &Loaded, address: SocketAddr) -> Result<Server, Error> {
    Server::builder(&loaded.module)
        .config(loaded.config())
        .limits(loaded.limits(Limits::default()))
        .tcp(LABEL, address)
        .start()
}

/// What accepts through a module.
trait Accepting: Send + Sync + 'static {
    type Accepted: Carried;

    async fn next(&self) -> Result<Self::Accepted, Failure>;
}

impl Accepting for Listener {
    type Accepted = watm_runtime::Connection;

    async fn next(&self) -> Result<Self::Accepted, Failure> {
        Ok(self.accept().await?)
    }
}

impl Accepting for Server {
    type Accepted = StreamFlow;

    async fn next(&self) -> Result<Self::Accepted, Failure> {
        loop {
            match self.accept().await {
                Some(Flow::Stream(flow)) => return Ok(flow),
                // There is nothing to forward them to.
                Some(Flow::Datagrams(flow)) => flow.close(),
                None => return Err(Failure::failed("the module has ended")),
            }
        }
    }
}

async fn each(
    listener: Arc<impl Accepting>,
    local: SocketAddr,
    forward: Option<Destination>,
    mut stop: Stop,
) -> Result<(), Failure> {
    serve::announce(local);
    let Some(forward) = forward else {
        let accepted = tokio::select! {
            accepted = listener.next() => accepted?,
            () = stop.requested() => return Ok(()),
        };
        return standard::join(accepted, &mut stop).await;
    };
    let upstream: Arc<str> = forward.to_string().into();
    let complaints = Arc::new(Complaints::default());
    let accept = move || {
        let listener = listener.clone();
        async move { listener.next().await.map(Some) }
    };
    let carry = move |accepted, stop| pass_on(accepted, upstream.clone(), complaints.clone(), stop);
    serve::all(accept, carry, &mut stop).await
}

async fn pass_on(
    accepted: impl Carried,
    upstream: Arc<str>,
    complaints: Arc<Complaints>,
    mut stop: Stop,
) {
    let connected = tokio::select! {
        connected = timeout(CONNECTING, TcpStream::connect(&*upstream)) => connected,
        () = stop.requested() => return accepted.finish().await,
    };
    let failure = match connected {
        Ok(Ok(upstream)) => {
            complaints.works();
            // Latency matters more than packets.
            let _ = upstream.set_nodelay(true);
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
    accepted.finish().await;
}
