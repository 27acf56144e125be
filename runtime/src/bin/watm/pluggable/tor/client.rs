//! The client's side: each transport is a server of SOCKS 5 for Tor, on a port of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use watm_runtime::{DialOptions, Dialer, DialerWithOptions};
use watm_socks::{Limits, arguments};

use super::super::options;
use super::environment::Client;
use super::{Transport, input_ends, one_line, say};
use crate::failure::Failure;
use crate::loading::LoadingOptions;
use crate::options::read;
use crate::{Outcome, proxies, stop, tcp};

/// For Tor on this machine, and nobody else.
const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// One transport that is ready.
struct Ready {
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
        say("PROXY-ERROR a proxy between this and the bridge is not supported")?;
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
                async move {
                    let dialer = |arguments: &str| ready.dialer(arguments);
                    arguments::serve(client, dialer, &Limits::default()).await
                }
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
    let config = transport.config.as_deref().map(read_config).transpose()?;
    let module = loading.load(&transport.module, false)?;
    let builder = Dialer::builder(&module);
    let dialer = match &config {
        Some(config) => builder.config(config.clone()),
        None => builder,
    };
    let ready = Ready {
        dialer: dialer.build()?,
        config: config.unwrap_or_default(),
    };
    let (address, listener) = tcp::bind(ANY_PORT).await?;
    Ok((address, listener, Arc::new(ready)))
}

fn read_config(path: &Path) -> Result<Vec<u8>, Failure> {
    Ok(read(path)?)
}

impl Ready {
    /// Who connects for a client with these arguments of a bridge line.
    fn dialer(&self, arguments: &str) -> Result<DialerWithOptions, String> {
        let arguments = options::parse(arguments)?;
        let own = || DialOptions::new().config(with_arguments(&self.config, &arguments));
        Ok(self.dialer.with_options(match arguments.is_empty() {
            true => DialOptions::new(),
            false => own(),
        }))
    }
}

/// The configuration of one connection: that of all, and the bridge line's as strings of TOML.
fn with_arguments(config: &[u8], arguments: &[(String, String)]) -> Vec<u8> {
    let mut own = config.to_vec();
    if own.last().is_some_and(|last| *last != b'\n') {
        own.push(b'\n');
    }
    for (key, value) in arguments {
        // A string of JSON is one of TOML.
        let key = serde_json::Value::from(key.as_str());
        let value = serde_json::Value::from(value.as_str());
        own.extend(format!("{key} = {value}\n").bytes());
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_bridge_line_says_becomes_lines_of_the_configuration() {
        let argument = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let arguments = [argument("cert", "a\"b\\"), argument("iat mode", "0")];
        let own = with_arguments(b"x = 1", &arguments);
        let table: toml::Table = toml::from_str(str::from_utf8(&own).expect("text")).expect("TOML");
        assert_eq!(table["cert"].as_str(), Some("a\"b\\"));
        assert_eq!(table["iat mode"].as_str(), Some("0"));
        assert_eq!(table["x"].as_integer(), Some(1));
    }
}
