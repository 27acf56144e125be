//! Addresses of flows and connections, with their parsers.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::Error;

/// The longest name of a host, in bytes, which a SOCKS request can carry.
const LONGEST_NAME: usize = 255;

/// The network of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    /// A stream.
    Tcp,
    /// Datagrams, one a read and one a write.
    Udp,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Network::Tcp => "tcp",
            Network::Udp => "udp",
        })
    }
}

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

/// The destination of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An address and a port.
    Address(SocketAddr),
    /// A host name, not yet resolved, and a port.
    Name(String, u16),
}

impl Destination {
    /// Creates a destination from a host: an address if the text is one, with or without brackets, or else a name. The error
    /// is the reason why it is neither.
    pub fn of(host: &str, port: u16) -> Result<Destination, &'static str> {
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(host).parse() {
            return Ok(Destination::Address(SocketAddr::new(ip, port)));
        }
        let is_foreign =
            |c: char| c.is_control() || c.is_whitespace() || "[]:/@\u{fffd}".contains(c);
        match host {
            "" => Err("has no host"),
            _ if host.len() > LONGEST_NAME => Err("the host is longer than names are"),
            _ if host.contains(is_foreign) => {
                Err("the host contains a character that is invalid in names")
            }
            _ => Ok(Destination::Name(host.to_owned(), port)),
        }
    }

    /// Parses `host:port`, with an IPv6 address in brackets. A text without a port gets
    /// `default_port`. The error is the reason why it is no destination.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Destination, &'static str> {
        const BRACKETS: &str = "an IPv6 address must be in brackets";
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or(BRACKETS)?)),
                None => return Err(BRACKETS),
            },
            None => match text.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => return Err(BRACKETS),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            Some(port) => port
                .parse()
                .map_err(|_| "the port is not a number from 0 to 65535")?,
            None => default_port.ok_or("has no port")?,
        };
        Destination::of(host, port)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        match self {
            Destination::Address(address) => address.port(),
            Destination::Name(_, port) => *port,
        }
    }
}

/// Parses `host:port`, with an IPv6 address in brackets. A name is not resolved.
impl FromStr for Destination {
    type Err = Error;

    fn from_str(text: &str) -> Result<Destination, Error> {
        Destination::parse(text, None).map_err(|why| {
            let shown: String = text.escape_debug().take(100).collect();
            Error::Options(format!("address \"{shown}\": {why}; must be host:port"))
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Address(address) => address.fmt(f),
            Destination::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
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
    pub fn parse(network: &str, address: &str) -> Result<Target, Error> {
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
            destination: address.parse()?,
        })
    }
}

impl Family {
    /// Returns true if an address is of this family.
    pub fn admits(self, address: &SocketAddr) -> bool {
        match self {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        }
    }
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
            assert_eq!(text.parse::<Destination>().expect(text), expected);
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
            ("user@host:1", "character"),
            ("[::1", "brackets"),
            ("[::1]1", "brackets"),
            (&"a".repeat(300), "no port"),
            (&format!("{}:1", "a".repeat(300)), "longer"),
        ] {
            let error = text.parse::<Destination>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_text_without_a_port_gets_the_default() {
        for (text, expected) in [
            ("example.com", "example.com:443"),
            ("example.com:80", "example.com:80"),
            ("[2001:db8::1]", "[2001:db8::1]:443"),
            ("192.0.2.1", "192.0.2.1:443"),
        ] {
            let expected = expected.parse().expect("a destination");
            assert_eq!(Destination::parse(text, Some(443)), Ok(expected), "{text}");
        }
        assert!(Destination::parse("", Some(443)).is_err());
    }
}
