//! `watm relay`: accepts connections that a module passes on to one address, or runs a program of WASI
//! that listens and connects itself.

use watm_runtime::{Destination, ModuleKind, Program, ProgramOptions, Relay};

use crate::commands::listen::place;
use crate::commands::serve::Place;
use crate::failure::{Failure, Outcome};
use crate::inputs::destination;
use crate::options::{Loaded, ModuleOptions};
use crate::{accept_loop, follow, stop};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    module: ModuleOptions,
    /// Address to accept connections on; port 0 lets the system choose. For a program of WASI, an
    /// address that it may listen on, with udp:// in front for datagrams.
    #[arg(value_name = "ADDRESS:PORT", value_parser = place)]
    address: Place,
    /// Destination of the module's connections. A program may do without.
    #[arg(value_name = "HOST:PORT", value_parser = destination)]
    destination: Option<Destination>,
    /// Another address that a program may listen on, with udp:// in front for datagrams; may be given
    /// several times.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = place)]
    listen: Vec<Place>,
    /// Arguments of a program.
    #[arg(value_name = "ARGUMENT", last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let loaded = arguments.module.load(true)?;
    if loaded.module.info().kind == ModuleKind::Program {
        return run_program(arguments, &loaded);
    }
    let Some(address) = arguments.address.for_connections() else {
        return Err(Failure::unusable(format!(
            "{}: only a program of WASI relays datagrams; remove udp://",
            arguments.address
        )));
    };
    if !arguments.listen.is_empty() || !arguments.arguments.is_empty() {
        return Err(Failure::unusable(
            "--listen and arguments after `--` are for programs of WASI; remove them",
        ));
    }
    let Some(destination) = &arguments.destination else {
        return Err(Failure::unusable(
            "<HOST:PORT> is missing; name the destination of the module's connections",
        ));
    };
    stop::run(|mut stop| async move {
        let relay = loaded
            .apply(Relay::builder(&loaded.module))
            .bind(address, &destination.to_string())?;
        accept_loop::announce(relay.local_addr());
        tokio::select! {
            () = stop.requested() => {}
            () = follow::follow(&loaded, async |module| relay.swap(&module).await) => {}
        }
        relay.close().await;
        Ok(())
    })
}

/// Runs a program until it ends by itself, or a signal ends it.
fn run_program(arguments: &Arguments, loaded: &Loaded) -> Result<Outcome, Failure> {
    let places = || [&arguments.address].into_iter().chain(&arguments.listen);
    let options = ProgramOptions {
        arguments: arguments.arguments.clone(),
        tcp: places().filter_map(Place::for_connections).collect(),
        udp: places().filter_map(Place::for_datagrams).collect(),
        destination: arguments.destination.clone(),
    };
    stop::run(|mut stop| async move {
        let udp = options.udp.clone();
        let program = loaded
            .apply(Program::builder(&loaded.module))
            .start(options)?;
        program.local_addrs().iter().for_each(accept_loop::announce);
        for address in udp {
            accept_loop::announce(format_args!("udp://{address}"));
        }
        let ended = tokio::select! {
            ended = program.ended() => ended,
            () = stop.requested() => Ok(()),
            () = follow::follow(loaded, async |module| program.swap(&module)) => Ok(()),
        };
        program.close().await;
        Ok(ended?)
    })
}
