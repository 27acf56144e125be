//! Targets of connections, and the parsers of their addresses, for `access` and the dialers.

use std::fmt;
use std::net::SocketAddr;

pub use watm_seal::Network;

use crate::{Destination, Error};

/// The address family that is acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Family {
    /// Both families.
    #[default]
    Any,
    /// Only IPv4.
    V4,
    /// Only IPv6.
    V6,
}

/// A target of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The protocol.
    pub network: Network,
    /// The acceptable family of a name's addresses.
    pub family: Family,
    /// The destination. A name is not resolved yet.
    pub destination: Destination,
}

impl Target {
    /// Returns a target for TCP.
    pub fn tcp(destination: Destination) -> Target {
        Target {
            network: Network::Tcp,
            family: Family::Any,
            destination,
        }
    }

    /// Parses a network as Go names it (`tcp`, `tcp4`, `tcp6`, `udp`, `udp4`, `udp6`), and
    /// `host:port`.
    pub(crate) fn parse(network: &str, address: &str) -> Result<Target, Error> {
        let (network, family) = match network {
            "tcp" => (Network::Tcp, Family::Any),
            "tcp4" => (Network::Tcp, Family::V4),
            "tcp6" => (Network::Tcp, Family::V6),
            "udp" => (Network::Udp, Family::Any),
            "udp4" => (Network::Udp, Family::V4),
            "udp6" => (Network::Udp, Family::V6),
            other => {
                return Err(Error::Options(format!(
                    "network {other:?}: must be tcp or udp, or one of them with 4 or 6 after it"
                )));
            }
        };
        Ok(Target {
            network,
            family,
            destination: parse_destination(address)?,
        })
    }
}

impl Family {
    pub(crate) fn admits(self, address: &SocketAddr) -> bool {
        match self {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        }
    }
}

/// Parses `host:port`, with an IPv6 address in brackets.
pub(crate) fn parse_destination(address: &str) -> Result<Destination, Error> {
    let refuse = |why: &str| {
        let shown: String = address.escape_debug().take(100).collect();
        Err(Error::Options(format!(
            "address \"{shown}\": {why}; must be host:port"
        )))
    };
    if let Ok(address) = address.parse() {
        return Ok(Destination::Address(address));
    }
    let Some((host, port)) = address.rsplit_once(':') else {
        return refuse("has no port");
    };
    let Ok(port) = port.parse() else {
        return refuse("the port is no number from 0 to 65535");
    };
    if host.is_empty() {
        return refuse("has no host");
    }
    if host.contains([':', '[', ']']) {
        return refuse("an IPv6 address belongs in brackets");
    }
    if host.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return refuse("the host has a character that names do not have");
    }
    Ok(Destination::Name(host.to_owned(), port))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.network == Network::Udp {
            f.write_str("udp://")?;
        }
        write!(f, "{}", self.destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_apart() {
        let name = |host: &str, port| Destination::Name(host.to_owned(), port);
        for (text, expected) in [
            ("localhost:80", name("localhost", 80)),
            ("Example.COM:0", name("Example.COM", 0)),
            (
                "127.0.0.1:9",
                Destination::Address("127.0.0.1:9".parse().unwrap()),
            ),
            (
                "[::1]:65535",
                Destination::Address("[::1]:65535".parse().unwrap()),
            ),
        ] {
            assert_eq!(parse_destination(text).expect(text), expected);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_a_reason() {
        for (text, reason) in [
            ("localhost", "no port"),
            ("", "no port"),
            (":80", "no host"),
            ("::1:80", "brackets"),
            ("a:65536", "65535"),
            ("a:-1", "65535"),
            ("a b:1", "character"),
            ("a\0b:1", "character"),
        ] {
            let error = parse_destination(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }
}
