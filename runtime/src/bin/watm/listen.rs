use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use watm_runtime::{Connection, Destination, ErrorCode, Listener};

use crate::failure::Failure;
use crate::options::{ModuleOptions, destination, listening_address};
use crate::serve::Complaints;
use crate::stop::{self, Stop};
use crate::{Outcome, join, serve, standard, watch};

/// How long the upstream may take to accept: a little more than four unanswered SYNs.
const CONNECTING: Duration = Duration::from_secs(20);

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
    let loaded = arguments.module.load(arguments.forward.is_some())?;
    stop::run(|mut stop| async move {
        let listener = loaded
            .apply(Listener::builder(&loaded.module))
            .bind(arguments.address)?;
        serve::announce(listener.local_addr());
        let Some(forward) = arguments.forward else {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted?,
                () = stop.requested() => return Ok(()),
            };
            return standard::join(accepted, &mut stop).await;
        };
        let listener = Arc::new(listener);
        let swapped = listener.clone();
        let upstream: Arc<str> = forward.to_string().into();
        let complaints = Arc::new(Complaints::default());
        let accept = move || {
            let listener = listener.clone();
            async move { Ok(Some(listener.accept().await?)) }
        };
        let carry =
            move |accepted, stop| pass_on(accepted, upstream.clone(), complaints.clone(), stop);
        let serving = serve::all(accept, carry, &mut stop);
        tokio::select! {
            served = serving => served,
            () = watch::follow(&loaded, async |module| swapped.swap(&module).await) => Ok(()),
        }
    })
}

async fn pass_on(
    accepted: Connection,
    upstream: Arc<str>,
    complaints: Arc<Complaints>,
    mut stop: Stop,
) {
    let connected = tokio::select! {
        connected = timeout(CONNECTING, TcpStream::connect(&*upstream)) => connected,
        () = stop.requested() => return accepted.close().await,
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
    accepted.close().await;
}
