//! `--through`: chains of modules that reach the network through each other, such as a tunnel in a
//! tunnel, or in a stream.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use watm_runtime::{Carrier, Dialer, Reach};
use watm_socks::{Resolver, Servers};

use crate::failure::Failure;
use crate::inputs::read;
use crate::loading::LoadingOptions;
use crate::proxies::DNS_PORT;

/// The label of the socket that modules send datagrams by.
pub(crate) const LABEL: &str = "listen";

/// Options for the chain that a module uses in place of the network.
#[derive(clap::Args)]
pub(crate) struct ThroughOptions {
    /// Reach the network through this module, with this file as its configuration; udp: grants it a
    /// UDP socket, which WireGuard needs. May be given several times: the first uses the network
    /// itself, and each further one the module before it. Trust and allowed destinations apply to
    /// all of them.
    #[arg(long = "through", value_name = "[udp:]MODULE[=FILE]")]
    hops: Vec<Hop>,
    /// Look up names that modules connect to by asking this DNS server through the next module of
    /// the chain, or `host` for the machine's own resolver. By default that module gets the name,
    /// and the machine looks names up that require an address, such as WireGuard's endpoint.
    #[arg(
        long = "through-dns",
        value_name = "ADDRESS|host",
        value_parser = resolver,
        requires = "hops"
    )]
    through_dns: Option<Resolver>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hop {
    module: PathBuf,
    config: Option<PathBuf>,
    datagrams: bool,
}

impl FromStr for Hop {
    type Err = String;

    fn from_str(text: &str) -> Result<Hop, String> {
        let (datagrams, file) = match text.strip_prefix("udp:") {
            Some(file) => (true, file),
            None => (false, text),
        };
        let (module, config) = match file.split_once('=') {
            Some((module, config)) => (module, Some(config)),
            None => (file, None),
        };
        if module.is_empty() || config.is_some_and(str::is_empty) {
            return Err("must be [udp:]MODULE or [udp:]MODULE=FILE".to_owned());
        }
        Ok(Hop {
            module: module.into(),
            config: config.map(PathBuf::from),
            datagrams,
        })
    }
}

impl ThroughOptions {
    /// Loads and starts the modules, and returns the last. Returns `None` without any, for the
    /// network itself. `asks` is true if standard input carries no data.
    pub(crate) fn open(
        &self,
        loading: &LoadingOptions,
        reach: &Reach,
        asks: bool,
    ) -> Result<Option<Carrier>, Failure> {
        let loading = loading.for_another();
        let mut last: Option<Carrier> = None;
        for hop in &self.hops {
            let module = loading.load(&hop.module, asks)?;
            let mut builder = Dialer::builder(&module).reach(reach.clone());
            if let Some(config) = &hop.config {
                builder = builder.config(read(config)?);
            }
            let builder = match &last {
                Some(last) => last.carry(builder, hop.datagrams.then_some(LABEL)),
                None if hop.datagrams => builder.udp(LABEL, ANYWHERE),
                None => builder,
            };
            let resolver = self.through_dns.clone().unwrap_or(Resolver::Dialer);
            last = Some(Carrier::new(builder.build()?, resolver));
        }
        Ok(last)
    }
}

/// All addresses of this machine, on a port that the system chooses.
pub(crate) const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

fn resolver(text: &str) -> Result<Resolver, String> {
    if text == "host" {
        return Ok(Resolver::Host);
    }
    let ip = || text.parse::<IpAddr>().ok();
    let address = text.parse().ok();
    let server = address.or_else(|| Some(SocketAddr::new(ip()?, DNS_PORT)));
    let server = server.ok_or("must be the address of a server, or `host`")?;
    Ok(Resolver::Servers(Servers::new(vec![server])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_is_a_module_and_its_file() {
        let hop = |module: &str, config: Option<&str>, datagrams| Hop {
            module: module.into(),
            config: config.map(PathBuf::from),
            datagrams,
        };
        for (text, expected) in [
            ("tls.wasm", hop("tls.wasm", None, false)),
            ("tls.wasm=ca.pem", hop("tls.wasm", Some("ca.pem"), false)),
            ("udp:wg.wasm=a=b", hop("wg.wasm", Some("a=b"), true)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "udp:", "=a", "tls.wasm="] {
            text.parse::<Hop>().expect_err(text);
        }
    }
}
