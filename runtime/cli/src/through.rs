//! `--through`: chains of modules that reach the network through each other, such as a tunnel in a
//! tunnel, or in a stream.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use watm_runtime::{Connect, Dialer, Limits, Network, Reach, RoleBuilder, Target, Wire};
use watm_socks::{Dial, Resolver, Resolving, Servers};

use crate::failure::Failure;
use crate::inputs::read;
use crate::loading::LoadingOptions;
use crate::proxies::DNS_PORT;

/// The label of the socket that modules send datagrams by.
pub(crate) const LABEL: &str = "listen";

/// The bytes and datagrams that may wait in a flow which carries a tunnel: 4 MiB as in a system's
/// socket, in full packets.
const QUEUED_BYTES: usize = 4 << 20;
const QUEUED: usize = QUEUED_BYTES / 1024;

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

/// A running chain of modules.
#[derive(Clone)]
pub(crate) struct Through(Arc<Resolving<Dialer>>);

impl ThroughOptions {
    /// Loads and starts the modules. Returns `None` without any, for the network itself. `asks` is
    /// true if standard input carries no data.
    pub(crate) fn open(
        &self,
        loading: &LoadingOptions,
        reach: &Reach,
        asks: bool,
    ) -> Result<Option<Through>, Failure> {
        let loading = loading.for_another();
        let mut last: Option<Through> = None;
        for hop in &self.hops {
            let module = loading.load(&hop.module, asks)?;
            let limits = Limits {
                datagram_queue: QUEUED,
                datagram_queue_bytes: QUEUED_BYTES,
                ..Limits::for_connections_of(module.info().kind)
            };
            let mut builder = Dialer::builder(&module).reach(reach.clone()).limits(limits);
            if let Some(config) = &hop.config {
                builder = builder.config(read(config)?);
            }
            let builder = match &last {
                Some(last) => last.carry(builder, hop.datagrams),
                None if hop.datagrams => builder.udp(LABEL, ANYWHERE),
                None => builder,
            };
            let resolver = self.through_dns.clone().unwrap_or(Resolver::Dialer);
            let resolving = Resolving::new(builder.build()?, resolver);
            last = Some(Through(Arc::new(resolving)));
        }
        Ok(last)
    }
}

/// All addresses of this machine, on a port that the system chooses.
pub(crate) const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

impl Through {
    /// Makes the chain carry the module's connections, and its datagrams if it is granted a UDP
    /// socket.
    pub(crate) fn carry<R>(&self, builder: RoleBuilder<R>, datagrams: bool) -> RoleBuilder<R> {
        let builder = builder.connector(self.clone());
        match datagrams {
            true => builder.datagrams(LABEL),
            false => builder,
        }
    }
}

impl Connect for Through {
    fn connect(
        &self,
        target: Target,
    ) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        Box::pin(async move {
            let to = &target.destination;
            Ok(match target.network {
                Network::Tcp => Wire::stream(self.0.stream(to).await?),
                Network::Udp => Wire::datagrams(self.0.datagrams(to).await?),
            })
        })
    }

    fn resolve(
        &self,
        target: Target,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + '_>> {
        Box::pin(async move { Ok(self.0.addresses(&target.destination).await?) })
    }
}

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
