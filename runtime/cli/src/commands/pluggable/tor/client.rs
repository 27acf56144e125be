//! The client's side of `watm pt`: each transport is a SOCKS5 server for Tor on a port of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use watm_runtime::{DialOptions, Dialer, DialerWithOptions};
use watm_socks::{Error, Limits, Refusal, arguments};

use super::super::options;
use super::environment::Client;
use super::{Transport, input_ends, one_line, say, warn, with_options};
use crate::failure::{Failure, Outcome};
use crate::loading::LoadingOptions;
use crate::{proxies, stop, tcp};

/// A port for Tor on this machine alone.
const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A transport that is ready.
struct Ready {
    name: String,
    dialer: Dialer,
    config: Vec<u8>,
}

pub(super) fn run(
    wanted: &Client,
    transports: &[Transport],
    loading: &LoadingOptions,
    exit_with_input: bool,
) -> Result<Outcome, Failure> {
    if wanted.proxy.is_some() {
        say("PROXY-ERROR connecting to the bridge through a proxy is not supported")?;
        return Err(Failure::unusable("TOR_PT_PROXY: must not be set"));
    }
    stop::run(|mut stop| async move {
        let mut listening = Vec::new();
        for name in &wanted.transports {
            match begin(name, transports, loading).await {
                Ok((address, listener, ready)) => {
                    say(&format!("CMETHOD {name} socks5 {address}"))?;
                    listening.push((listener, ready));
                }
                Err(failure) => say(&format!("CMETHOD-ERROR {name} {}", one_line(&failure)))?,
            }
        }
        say("CMETHODS DONE")?;
        let mut serving = tokio::task::JoinSet::new();
        for (listener, ready) in listening {
            let serve_one = move |client| {
                let ready = ready.clone();
                async move { ready.serve(client).await }
            };
            serving.spawn(proxies::clients(
                listener,
                serve_one,
                Arc::default(),
                stop.clone(),
            ));
        }
        tokio::select! {
            () = input_ends(exit_with_input) => {}
            () = stop.requested() => {
                while serving.join_next().await.is_some() {}
            }
        }
        Ok(())
    })
}

async fn begin(
    name: &str,
    transports: &[Transport],
    loading: &LoadingOptions,
) -> Result<(SocketAddr, TcpListener, Arc<Ready>), Failure> {
    let transport = transports.iter().find(|known| known.name == name);
    let transport = transport.ok_or_else(|| Failure::unusable("no such transport"))?;
    let config = transport.read_config()?;
    let module = loading.load(&transport.module, false)?;
    let builder = Dialer::builder(&module);
    let dialer = match &config {
        Some(config) => builder.config(config.clone()),
        None => builder,
    };
    let ready = Ready {
        name: name.to_owned(),
        dialer: dialer.build()?,
        config: config.unwrap_or_default(),
    };
    let (address, listener) = tcp::bind(ANY_PORT).await?;
    Ok((address, listener, Arc::new(ready)))
}

impl Ready {
    /// Serves one client. Logs for Tor why its arguments are refused, and failures that SOCKS has
    /// no number for, such as an option that the module does not know.
    async fn serve(&self, client: TcpStream) -> Result<(), Error> {
        let dialer = |arguments: &str| {
            self.dialer(arguments).inspect_err(|why| {
                warn(&format!("{}: bridge arguments refused: {why}", self.name));
            })
        };
        let served = arguments::serve(client, dialer, &Limits::default()).await;
        if let Err(Error::Dial {
            to,
            why: Refusal::Failed(why),
        }) = &served
        {
            warn(&format!("{}: bridge {to} not dialled: {why}", self.name));
        }
        served
    }

    /// Returns the dialer for a client with these arguments of a bridge line.
    fn dialer(&self, arguments: &str) -> Result<DialerWithOptions, String> {
        let arguments = options::parse(arguments)?;
        let own = || DialOptions::new().config(with_options(&self.config, &arguments));
        Ok(self.dialer.with_options(match arguments.is_empty() {
            true => DialOptions::new(),
            false => own(),
        }))
    }
}
