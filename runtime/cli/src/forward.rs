//! Port forwards on the command line: the parser of `--forward`. `proxies` serves them.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use watm_socks::Destination;

use crate::inputs::{destination, listening_address};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) network: Network,
    pub(crate) from: SocketAddr,
    pub(crate) to: Destination,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Forward, String> {
        let parts = text
            .split_once(':')
            .and_then(|(network, rest)| Some((network, rest.split_once('=')?)));
        let network = |name| match name {
            "tcp" => Some(Network::Tcp),
            "udp" => Some(Network::Udp),
            _ => None,
        };
        let Some((network, (from, to))) =
            parts.and_then(|(name, ends)| Some((network(name)?, ends)))
        else {
            return Err(
                "must be tcp:ADDRESS:PORT=HOST:PORT or udp:ADDRESS:PORT=HOST:PORT".to_owned(),
            );
        };
        Ok(Forward {
            network,
            from: listening_address(from)?,
            to: destination(to)?,
        })
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = match self.network {
            Network::Tcp => "tcp",
            Network::Udp => "udp",
        };
        write!(f, "{network}:{}={}", self.from, self.to)
    }
}
