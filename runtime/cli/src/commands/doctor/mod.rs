//! `watm doctor`: checks the installation, or whether connections can continue from their clients'
//! addresses, and prints the commands that correct what is missing.

mod checks;
mod installation;
mod routing;

use std::net::SocketAddr;

use serde_derive::Serialize;
use tokio::net::lookup_host;
use tokio::runtime::Builder;
use watm_runtime::{BindTransparent, Destination, TransparentOptions};

use crate::failure::{Failure, Outcome};
use crate::inputs::destination;
use crate::loading::LoadingOptions;
use crate::system;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Upstream of connections from their clients' addresses, as with `listen --transparent
    /// --forward` or in `serve`. Without it the installation is checked.
    #[arg(value_name = "HOST:PORT", value_parser = destination)]
    upstream: Option<Destination>,
    /// Check datagrams in place of connections.
    #[arg(long, requires = "upstream")]
    udp: bool,
    /// Mark of the packets, as with `listen --mark`.
    #[arg(long, value_name = "MARK", requires = "upstream")]
    mark: Option<u32>,
    /// Routing table for the answers, in the printed commands.
    #[arg(long, value_name = "TABLE", default_value_t = 100)]
    table: u32,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    loading: LoadingOptions,
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct Check {
    /// A stable name, for programs.
    name: &'static str,
    /// The upstream address it is about; `None` for all.
    upstream: Option<SocketAddr>,
    ok: bool,
    /// The finding.
    found: String,
    /// Command lines that fix the problem.
    run: Vec<String>,
}

#[derive(Serialize)]
struct Shown<'a> {
    ok: bool,
    checks: &'a [Check],
}

pub(crate) fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let checks = match &arguments.upstream {
        None => installation::examine(&arguments.loading),
        Some(_) if !system::HAS_TRANSPARENT_CONNECTIONS => vec![checks::needs_linux()],
        Some(upstream) => transparent(upstream, arguments)?,
    };
    let ok = checks.iter().all(|check| check.ok);
    if arguments.json {
        let checks = &*checks;
        let text = serde_json::to_string_pretty(&Shown { ok, checks });
        println!("{}", text.map_err(Failure::failed)?);
    } else {
        checks.iter().for_each(show);
    }
    Ok(match ok {
        true => Outcome::Well,
        false => Outcome::Otherwise,
    })
}

fn transparent(upstream: &Destination, arguments: &Arguments) -> Result<Vec<Check>, Failure> {
    let transparent = BindTransparent::of_user(TransparentOptions {
        mark: arguments.mark,
        client_port: false,
    })?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot begin: {error}")))?;
    runtime.block_on(examine(upstream, arguments, &transparent))
}

async fn examine(
    upstream: &Destination,
    arguments: &Arguments,
    transparent: &BindTransparent,
) -> Result<Vec<Check>, Failure> {
    let upstreams: Vec<SocketAddr> = match upstream {
        Destination::Address(address) => vec![*address],
        Destination::Name(name, port) => {
            let found = lookup_host((name.as_str(), *port)).await;
            let failed = |error| Failure::failed(format!("{upstream}: {error}"));
            found.map_err(failed)?.collect()
        }
    };
    let mut checks = vec![checks::capabilities(arguments.mark), checks::descriptors()];
    for upstream in upstreams {
        checks.push(routing::is_local(upstream));
        checks.push(routing::rule(upstream, arguments));
        checks.push(routing::route(upstream, arguments));
        checks.push(routing::reverse_path(upstream));
        checks.push(checks::direct(upstream, arguments.udp).await);
        checks.push(checks::from_client(upstream, arguments.udp, transparent).await);
    }
    Ok(checks)
}

fn show(check: &Check) {
    let mark = if check.ok { "ok    " } else { "failed" };
    match check.upstream {
        Some(upstream) => println!("{mark}  {}, {upstream}: {}", check.name, check.found),
        None => println!("{mark}  {}: {}", check.name, check.found),
    }
    for command in &check.run {
        println!("          run: {command}");
    }
}
