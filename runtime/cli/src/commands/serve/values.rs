//! Values in the configuration and on the command line, with their parsers.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::durations::Seconds;
use serde_derive::Deserialize;
use watm_runtime::{Destination, Error, MOST_STEERED, ModuleInfo, Steer};

/// The most workers for one address. The program's target machines have no more cores.
const MOST_WORKERS: usize = 256;

/// An address and its protocol: `tcp://address:port` or `udp://address:port`. Without a scheme it
/// is TCP, or UDP for a module that accepts datagrams alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Place {
    pub(super) protocol: Option<Protocol>,
    pub(super) address: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl Place {
    /// Creates a place with this protocol.
    pub(super) fn of(protocol: Protocol, address: SocketAddr) -> Place {
        Place {
            protocol: Some(protocol),
            address,
        }
    }

    /// Returns the address, unless it is for datagrams.
    pub(crate) fn for_connections(&self) -> Option<SocketAddr> {
        (self.protocol != Some(Protocol::Udp)).then_some(self.address)
    }

    /// Returns the address, if it is for datagrams.
    pub(crate) fn for_datagrams(&self) -> Option<SocketAddr> {
        (self.protocol == Some(Protocol::Udp)).then_some(self.address)
    }

    /// Creates a place for connections.
    pub(crate) fn tcp(address: SocketAddr) -> Place {
        Place {
            protocol: Some(Protocol::Tcp),
            address,
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let (protocol, rest) = match text.split_once("://") {
            Some(("tcp", rest)) => (Some(Protocol::Tcp), rest),
            Some(("udp", rest)) => (Some(Protocol::Udp), rest),
            Some((other, _)) => return Err(format!("{other:?} must be tcp or udp")),
            None => (None, text),
        };
        let address = rest.parse().map_err(|_| {
            format!(
                "{rest:?} must be an address of this machine and a port, such as 0.0.0.0:443 or \
                 [::]:443"
            )
        })?;
        Ok(Place { protocol, address })
    }
}

/// Writes the scheme only for datagrams.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Some(Protocol::Udp) => write!(f, "udp://{}", self.address),
            _ => self.address.fmt(f),
        }
    }
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Place, String> {
        text.parse()
    }
}

/// The number of workers for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) enum Workers {
    /// One for each core. Only the first accepts datagrams, unless the datagrams of the module name
    /// their socket: sessions of datagrams continue from other addresses. One for a module that must
    /// run alone.
    #[default]
    Auto,
    Exactly(usize),
}

impl Workers {
    /// Returns the number of workers that accept connections.
    pub(super) fn count(self, module: &ModuleInfo) -> usize {
        match self {
            Workers::Exactly(count) => count,
            Workers::Auto if module.alone => 1,
            Workers::Auto => cores(MOST_WORKERS),
        }
    }

    /// Returns the number of workers that accept datagrams.
    pub(super) fn count_for_datagrams(self, module: &ModuleInfo) -> usize {
        match self {
            Workers::Exactly(count) => count,
            Workers::Auto if module.alone || steering(module).is_empty() => 1,
            Workers::Auto => cores(MOST_STEERED),
        }
    }
}

fn cores(most: usize) -> usize {
    available_parallelism().map_or(1, |count| count.get().min(most))
}

/// Returns how the module's datagrams name one of several sockets.
pub(super) fn steering(module: &ModuleInfo) -> &[Steer] {
    module.about.as_ref().map_or(&[], |about| &about.steer)
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Workers, String> {
        match text {
            "auto" => Ok(Workers::Auto),
            _ => Workers::exactly(text.parse().ok()),
        }
    }
}

impl Workers {
    fn exactly(count: Option<usize>) -> Result<Workers, String> {
        match count {
            Some(count) if (1..=MOST_WORKERS).contains(&count) => Ok(Workers::Exactly(count)),
            _ => Err(format!(
                "must be \"auto\", or a number from 1 to {MOST_WORKERS}"
            )),
        }
    }
}

impl TryFrom<toml::Value> for Workers {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Workers, String> {
        match value {
            toml::Value::String(text) => text.parse(),
            other => Workers::exactly(other.as_integer().and_then(|count| count.try_into().ok())),
        }
    }
}

/// The next hop of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) enum Upstream {
    Tcp(Destination),
    Unix(PathBuf),
    /// The destination that the flow itself names.
    Dynamic,
    /// An upstream by the family of the client's address.
    ByFamily {
        ipv4: Box<Upstream>,
        ipv6: Box<Upstream>,
    },
}

impl Upstream {
    /// Returns the upstream of a client.
    pub(super) fn of(&self, client: IpAddr) -> &Upstream {
        match self {
            Upstream::ByFamily { ipv4, .. } if client.to_canonical().is_ipv4() => ipv4,
            Upstream::ByFamily { ipv6, .. } => ipv6,
            other => other,
        }
    }

    /// Returns all possible upstreams.
    pub(super) fn all(&self) -> Vec<&Upstream> {
        match self {
            Upstream::ByFamily { ipv4, ipv6 } => vec![ipv4, ipv6],
            other => vec![other],
        }
    }

    fn by_family(mut table: toml::Table) -> Result<Upstream, String> {
        let expected = "must be two upstreams, { ipv4 = \"…\", ipv6 = \"…\" }";
        let mut take = |family: &str| match table.remove(family) {
            Some(toml::Value::String(text)) => Ok(Box::new(text.parse()?)),
            _ => Err(expected.to_owned()),
        };
        let (ipv4, ipv6) = (take("ipv4")?, take("ipv6")?);
        match table.keys().next() {
            Some(key) => Err(format!("unknown field `{key}`; {expected}")),
            None => Ok(Upstream::ByFamily { ipv4, ipv6 }),
        }
    }
}

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Upstream, String> {
        if text == "dynamic" {
            return Ok(Upstream::Dynamic);
        }
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: has no path after it".to_owned()),
            Some(path) => Ok(Upstream::Unix(path.into())),
            None => {
                let address = text.strip_prefix("tcp://").unwrap_or(text);
                address.parse().map(Upstream::Tcp).map_err(|error: Error| {
                    format!("{error}; or unix: with the path of a socket, or \"dynamic\"")
                })
            }
        }
    }
}

impl TryFrom<toml::Value> for Upstream {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Upstream, String> {
        match value {
            toml::Value::String(text) => text.parse(),
            toml::Value::Table(table) => Upstream::by_family(table),
            _ => Err("must be \"host:port\", \"unix:PATH\" or \"dynamic\"".to_owned()),
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upstream::Tcp(destination) => destination.fmt(f),
            Upstream::Unix(path) => write!(f, "unix:{}", path.display()),
            Upstream::Dynamic => f.write_str("dynamic"),
            Upstream::ByFamily { ipv4, ipv6 } => write!(f, "{ipv4} or {ipv6}"),
        }
    }
}

/// A time above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct Time(pub(super) Duration);

impl TryFrom<toml::Value> for Time {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Time, String> {
        let time = Seconds::try_from(value)?.or_never();
        time.map(Time)
            .ok_or_else(|| "must be above 0, or omitted".to_owned())
    }
}

/// A count of at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct Count(pub(super) usize);

impl TryFrom<toml::Value> for Count {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Count, String> {
        let count = match value {
            toml::Value::String(text) => text.parse().ok(),
            other => other.as_integer().and_then(|count| count.try_into().ok()),
        };
        match count {
            Some(count) if count > 0 => Ok(Count(count)),
            _ => Err("must be a number from 1, or omitted".to_owned()),
        }
    }
}

/// The version of the PROXY protocol towards an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProxyHeader {
    V1,
    V2,
}
