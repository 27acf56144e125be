//! `watm relay`: accepts connections that a module passes on to one address.

use std::net::SocketAddr;

use watm_runtime::{Destination, Relay};

use crate::failure::{Failure, Outcome};
use crate::inputs::{destination, listening_address};
use crate::options::ModuleOptions;
use crate::{accept_loop, follow, stop};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleOptions,
    /// Address to accept connections on; port 0 lets the system choose.
    #[arg(value_name = "ADDRESS:PORT", value_parser = listening_address)]
    address: SocketAddr,
    /// Destination of the module's connections.
    #[arg(value_name = "HOST:PORT", value_parser = destination)]
    destination: Destination,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let loaded = arguments.module.load(true)?;
    stop::run(|mut stop| async move {
        let relay = loaded
            .apply(Relay::builder(&loaded.module))
            .bind(arguments.address, &arguments.destination.to_string())?;
        accept_loop::announce(relay.local_addr());
        tokio::select! {
            () = stop.requested() => {}
            () = follow::follow(&loaded, async |module| relay.swap(&module).await) => {}
        }
        relay.close().await;
        Ok(())
    })
}
