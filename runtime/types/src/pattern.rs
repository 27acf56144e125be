//! Patterns of destinations, and the network of a connection. Capabilities contain them; the host
//! matches connections against them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

use crate::Network;

/// A pattern of destinations that a module may connect to: `tcp://host:ports` or
/// `udp://host:ports`.
///
/// | host | admits |
/// |---|---|
/// | `example.com` | that name |
/// | `*.example.com` | names below it, not itself |
/// | `192.0.2.1`, `[2001:db8::1]` | that address |
/// | `192.0.2.0/24`, `[2001:db8::/32]` | addresses of that network |
/// | `*` | every name and every address |
///
/// `ports` is a number, a range such as `1-1024`, or `*`.
///
/// [`parse`](ConnectPattern::parse) accepts shorter forms: without a network it means both TCP and
/// UDP, and without ports every port. [`FromStr`] accepts the complete form only, so that a signed
/// pattern has one spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectPattern {
    text: String,
    network: Network,
    host: Host,
    ports: (u16, u16),
}

/// The reason why a text is no complete pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(String);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Host {
    Any,
    Name(String),
    /// A suffix with its leading dot.
    Below(String),
    Addresses(IpNet),
}

/// The longest pattern, in bytes: the longest host name, with the network and two ports.
pub const MAX_PATTERN_BYTES: usize = 253 + 20;

impl ConnectPattern {
    /// Parses a pattern that a person wrote. Returns one, or one for TCP and one for UDP if the
    /// text names no network. The error says what would be right.
    pub fn parse(text: &str) -> Result<Vec<ConnectPattern>, String> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(format!("is longer than {MAX_PATTERN_BYTES} bytes"));
        }
        let (networks, rest): (&[_], _) = match text.split_once("://") {
            None => (&[Network::Tcp, Network::Udp], text),
            Some(("tcp", rest)) => (&[Network::Tcp], rest),
            Some(("udp", rest)) => (&[Network::Udp], rest),
            Some((other, _)) => {
                return Err(format!("network {other:?}; must be tcp or udp"));
            }
        };
        let of = |network: &Network| ConnectPattern::of(*network, rest);
        networks.iter().map(of).collect()
    }

    fn of(network: Network, rest: &str) -> Result<ConnectPattern, String> {
        let (host, ports) = split(rest)?;
        let host = host.parse()?;
        let ports = match ports {
            None => (0, u16::MAX),
            Some(ports) => parse_ports(ports)?,
        };
        Ok(ConnectPattern {
            text: format!("{network}://{host}:{}", Ports(ports)),
            network,
            host,
            ports,
        })
    }

    /// Returns the text, in its one spelling.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if it admits everything that the other admits. Patterns of addresses do not
    /// cover names.
    pub fn covers(&self, other: &ConnectPattern) -> bool {
        self.is_for(other.network, other.ports.0)
            && other.ports.1 <= self.ports.1
            && self.host.covers(&other.host)
    }

    /// Returns true if it admits this name, whatever addresses the name has. Ignores case and a dot
    /// at the end.
    pub fn admits_name(&self, network: Network, name: &str, port: u16) -> bool {
        self.is_for(network, port) && self.host.has_name(&normal(name))
    }

    /// Returns true if it admits this address.
    pub fn admits_address(&self, network: Network, address: &SocketAddr) -> bool {
        self.is_for(network, address.port()) && self.host.has_address(address.ip().to_canonical())
    }

    /// Returns true if it admits this address by an address or a network: `*` does not count.
    pub fn spells_address(&self, network: Network, address: &SocketAddr) -> bool {
        matches!(self.host, Host::Addresses(_)) && self.admits_address(network, address)
    }

    /// Returns true if it is a pattern of addresses for this network and port. A name may resolve
    /// to one of them.
    pub fn names_addresses(&self, network: Network, port: u16) -> bool {
        self.is_for(network, port) && matches!(self.host, Host::Addresses(_))
    }

    /// Returns true if it admits this name at some port.
    pub fn has_name(&self, name: &str) -> bool {
        self.host.has_name(&normal(name))
    }

    /// Returns true if it admits this address at some port.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.host.has_address(address.to_canonical())
    }

    /// Returns true if it is a pattern of addresses.
    pub fn is_of_addresses(&self) -> bool {
        matches!(self.host, Host::Addresses(_))
    }

    fn is_for(&self, network: Network, port: u16) -> bool {
        self.network == network && (self.ports.0..=self.ports.1).contains(&port)
    }
}

impl Host {
    fn covers(&self, other: &Host) -> bool {
        match (self, other) {
            (Host::Any, _) => true,
            (Host::Below(own), Host::Name(name)) => name.len() > own.len() && name.ends_with(own),
            (Host::Below(own), Host::Below(other)) => other.ends_with(own),
            (Host::Addresses(own), Host::Addresses(other)) => own.contains(other),
            (own, other) => own == other,
        }
    }

    /// Expects `name` as [`normal`] returns it.
    fn has_name(&self, name: &str) -> bool {
        match self {
            Host::Any => true,
            Host::Name(own) => own == name,
            Host::Below(suffix) => name.len() > suffix.len() && name.ends_with(suffix.as_str()),
            Host::Addresses(_) => false,
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        match self {
            Host::Any => true,
            Host::Addresses(network) => network.contains(&address),
            Host::Name(_) | Host::Below(_) => false,
        }
    }
}

impl FromStr for ConnectPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<ConnectPattern, InvalidPattern> {
        let wrong = |reason: String| {
            let text: String = text.chars().take(MAX_PATTERN_BYTES).collect();
            InvalidPattern(format!("{text:?}: {reason}"))
        };
        let patterns = ConnectPattern::parse(text).map_err(wrong)?;
        // The complete spelling only.
        match patterns.iter().find(|pattern| pattern.text == text) {
            Some(pattern) => Ok(pattern.clone()),
            None => {
                let spellings: Vec<_> = patterns
                    .iter()
                    .map(|one| format!("{:?}", one.text))
                    .collect();
                Err(wrong(format!("must be written {}", spellings.join(" or "))))
            }
        }
    }
}

/// Splits a pattern into the host without its brackets, and the ports.
fn split(pattern: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = pattern.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or("the bracket is not closed".to_owned())?;
        return match rest.strip_prefix(':') {
            Some(ports) => Ok((host, Some(ports))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(format!("{rest:?} after the bracket; must be :ports")),
        };
    }
    match pattern.split_once(':') {
        Some((_, rest)) if rest.contains(':') => {
            Err("an IPv6 address must be in brackets".to_owned())
        }
        Some((host, ports)) => Ok((host, Some(ports))),
        None => Ok((pattern, None)),
    }
}

fn parse_ports(text: &str) -> Result<(u16, u16), String> {
    let number = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("port {text:?}; must be a number from 0 to 65535, a range or *"))
    };
    if text == "*" {
        return Ok((0, u16::MAX));
    }
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    if first > last {
        return Err(format!("ports {text:?} are reversed; must be low-high"));
    }
    Ok((first, last))
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        if text == "*" {
            return Ok(Host::Any);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Host::Addresses(address.to_canonical().into()));
        }
        if text.contains('/') {
            return match text.parse::<IpNet>() {
                Ok(network) => Ok(Host::Addresses(network.trunc())),
                Err(_) => Err(format!(
                    "{text:?} is not a network; must be like 192.0.2.0/24 or [2001:db8::/32]"
                )),
            };
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, normal(name)),
            None => (false, normal(text)),
        };
        let plain = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        let label = |label: &str| !label.is_empty() && label.bytes().all(plain);
        if !name.split('.').all(label) {
            return Err(format!(
                "host {text:?}; must be a name, *.name, an address, a network or *"
            ));
        }
        Ok(match below {
            true => Host::Below(format!(".{name}")),
            false => Host::Name(name),
        })
    }
}

fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

struct Ports((u16, u16));

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            (0, u16::MAX) => f.write_str("*"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Any => f.write_str("*"),
            Host::Name(name) => f.write_str(name),
            Host::Below(suffix) => write!(f, "*{suffix}"),
            Host::Addresses(network) => {
                let single = network.prefix_len() == network.max_prefix_len();
                let text = match single {
                    true => network.addr().to_string(),
                    false => network.to_string(),
                };
                match network {
                    IpNet::V4(_) => f.write_str(&text),
                    IpNet::V6(_) => write!(f, "[{text}]"),
                }
            }
        }
    }
}

impl fmt::Display for ConnectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> ConnectPattern {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_pattern_covers_what_lies_within_it() {
        for (wide, narrow) in [
            ("tcp://*:*", "tcp://example.com:443"),
            ("tcp://*:*", "tcp://[2001:db8::]:1-2"),
            ("tcp://*.example.com:443", "tcp://a.b.example.com:443"),
            ("tcp://*.example.com:*", "tcp://*.a.example.com:80-90"),
            ("udp://192.0.2.0/24:*", "udp://192.0.2.128/25:53"),
            ("udp://[2001:db8::/32]:53", "udp://[2001:db8::1]:53"),
        ] {
            assert!(pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
            assert!(pattern(wide).covers(&pattern(wide)), "{wide}");
            assert!(!pattern(narrow).covers(&pattern(wide)), "{narrow} {wide}");
        }
    }

    #[test]
    fn a_pattern_covers_nothing_beside_it() {
        for (one, other) in [
            ("tcp://example.com:443", "udp://example.com:443"),
            ("tcp://example.com:443", "tcp://example.com:442-443"),
            ("tcp://example.com:443", "tcp://example.com:443-444"),
            ("tcp://*.example.com:443", "tcp://example.com:443"),
            ("tcp://*.example.com:443", "tcp://badexample.com:443"),
            ("tcp://192.0.2.0/24:443", "tcp://192.0.3.1:443"),
            ("tcp://192.0.2.0/24:443", "tcp://example.com:443"),
            ("tcp://*.example.com:443", "tcp://192.0.2.1:443"),
        ] {
            assert!(!pattern(one).covers(&pattern(other)), "{one} {other}");
        }
    }

    #[test]
    fn a_pattern_has_one_spelling() {
        for text in [
            "example.com:443",
            "tcp://example.com",
            "tcp://Example.com:443",
            "tcp://example.com.:443",
            "tcp://example.com:443-443",
            "tcp://example.com:0-65535",
            "tcp://example.com:0443",
            "tcp://example.com:2-1",
            "tcp://192.0.2.1/24:443",
            "tcp://192.0.2.1/32:443",
            "tcp://2001:db8::1:443",
            "tcp://[2001:db8:0::1]:443",
            "tcp://[192.0.2.1]:443",
            "tcp://:443",
            "tcp://*.:443",
            "sctp://*:443",
            "tcp://*:+1",
            "",
        ] {
            assert!(text.parse::<ConnectPattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_people_write_has_one_spelling_too() {
        for (text, spelling) in [
            ("tcp://example.com", &["tcp://example.com:*"][..]),
            ("tcp://*.Example.com.:0443", &["tcp://*.example.com:443"]),
            ("udp://192.0.2.1/24:53-53", &["udp://192.0.2.0/24:53"]),
            ("tcp://[::ffff:192.0.2.1]:1-2", &["tcp://192.0.2.1:1-2"]),
            ("udp://[2001:db8:0::1]", &["udp://[2001:db8::1]:*"]),
            // Without a network, both.
            ("*", &["tcp://*:*", "udp://*:*"]),
            ("a:53", &["tcp://a:53", "udp://a:53"]),
        ] {
            let patterns = ConnectPattern::parse(text).expect(text);
            let spellings: Vec<&str> = patterns.iter().map(ConnectPattern::as_str).collect();
            assert_eq!(spellings, spelling);
            for (pattern, spelling) in patterns.into_iter().zip(spelling) {
                assert_eq!(spelling.parse(), Ok(pattern));
            }
        }
    }

    #[test]
    fn a_pattern_admits_its_names_addresses_and_ports() {
        use Network::{Tcp, Udp};
        for (text, network, name, port, admitted) in [
            ("tcp://*:*", Tcp, "example.com", 443, true),
            ("tcp://*:*", Udp, "example.com", 443, false),
            ("tcp://example.com:443", Tcp, "Example.COM.", 443, true),
            ("tcp://example.com:443", Tcp, "example.com", 444, false),
            ("tcp://example.com:443", Tcp, "a.example.com", 443, false),
            ("tcp://*.example.com:443", Tcp, "a.example.com", 443, true),
            ("tcp://*.example.com:443", Tcp, "example.com", 443, false),
            ("tcp://*.example.com:443", Tcp, ".example.com", 443, false),
            ("tcp://*.example.com:443", Tcp, "a.example.org", 443, false),
            ("udp://a:10-20", Udp, "a", 9, false),
            ("udp://a:10-20", Udp, "a", 10, true),
            ("udp://a:10-20", Udp, "a", 20, true),
            ("udp://a:10-20", Udp, "a", 21, false),
            ("tcp://192.0.2.0/24:*", Tcp, "192.0.2.1", 1, false),
        ] {
            let found = pattern(text).admits_name(network, name, port);
            assert_eq!(found, admitted, "{text} {name}:{port}");
        }
        // The last two: admitted at all, and admitted because the pattern spells the address.
        for (text, network, address, admitted, spelled) in [
            ("tcp://*:*", Tcp, "192.0.2.1:1", true, false),
            ("tcp://*:*", Udp, "192.0.2.1:1", false, false),
            ("tcp://*:2", Tcp, "192.0.2.1:1", false, false),
            ("udp://192.0.2.0/24:53", Udp, "192.0.2.255:53", true, true),
            ("udp://192.0.2.0/24:53", Udp, "192.0.3.0:53", false, false),
            ("udp://192.0.2.0/24:53", Udp, "192.0.2.1:54", false, false),
            ("tcp://192.0.2.1:*", Tcp, "[::ffff:192.0.2.1]:9", true, true),
            (
                "tcp://[2001:db8::/32]:*",
                Tcp,
                "[2001:db8::1]:9",
                true,
                true,
            ),
            (
                "tcp://[2001:db8::/32]:*",
                Tcp,
                "[2001:db9::1]:9",
                false,
                false,
            ),
            ("tcp://example.com:*", Tcp, "192.0.2.1:1", false, false),
            ("tcp://*.example.com:*", Tcp, "192.0.2.1:1", false, false),
        ] {
            let to = address.parse().expect("an address");
            let found = pattern(text).admits_address(network, &to);
            assert_eq!(found, admitted, "{text} {address}");
            let found = pattern(text).spells_address(network, &to);
            assert_eq!(found, spelled, "{text} {address}");
        }
    }

    #[test]
    fn only_patterns_with_addresses_name_addresses() {
        use Network::{Tcp, Udp};
        for (text, network, port, some) in [
            ("tcp://192.0.2.0/24:443", Tcp, 443, true),
            ("tcp://192.0.2.0/24:443", Tcp, 444, false),
            ("tcp://192.0.2.0/24:443", Udp, 443, false),
            ("tcp://[2001:db8::1]:*", Tcp, 1, true),
            ("tcp://*:*", Tcp, 443, false),
            ("tcp://example.com:443", Tcp, 443, false),
            ("tcp://*.example.com:443", Tcp, 443, false),
        ] {
            let found = pattern(text).names_addresses(network, port);
            assert_eq!(found, some, "{text} {network} {port}");
        }
    }

    #[test]
    fn the_longest_pattern_has_the_longest_name() {
        let with = |length: usize| {
            let name = "a.".repeat(length / 2) + &"a".repeat(length % 2 + 1);
            format!("tcp://{name}:10000-65535")
        };
        let longest = with(252);
        assert_eq!(longest.len(), MAX_PATTERN_BYTES - 2);
        assert_eq!(pattern(&longest).as_str(), longest);
        assert!(ConnectPattern::parse(&with(254)).is_ok());
        let error = ConnectPattern::parse(&with(255)).expect_err("too long");
        assert_eq!(error, format!("is longer than {MAX_PATTERN_BYTES} bytes"));
    }
}
