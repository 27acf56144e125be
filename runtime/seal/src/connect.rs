use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::Refused;
use crate::bytes::malformed;

/// Where a module may connect to, as the runtime's `Reach` writes it, in the one form that has
/// nothing left out: `NETWORK://HOST:PORTS`.
///
/// `NETWORK` is `tcp` or `udp`. `HOST` is a name in small letters, `*.` and a name, an address, a
/// network such as `192.0.2.0/24` (those of IPv6 in brackets), or `*`. `PORTS` is a number, a range
/// such as `1-1024`, or `*`. Another way to write the same is refused, so that what is signed has
/// one spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectPattern {
    text: String,
    network: Network,
    host: Host,
    ports: (u16, u16),
}

/// Which transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Host {
    Any,
    Name(String),
    /// With the dot before it.
    Below(String),
    Addresses(IpNet),
}

/// The longest host name there is, the network and two ports around it.
pub(crate) const LIMIT: usize = 253 + 20;

impl ConnectPattern {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it admits all that the other admits. A name is not covered by the addresses that
    /// it may have.
    pub fn covers(&self, other: &ConnectPattern) -> bool {
        self.network == other.network
            && self.ports.0 <= other.ports.0
            && other.ports.1 <= self.ports.1
            && self.host.covers(&other.host)
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
}

impl FromStr for ConnectPattern {
    type Err = Refused;

    fn from_str(text: &str) -> Result<ConnectPattern, Refused> {
        let wrong = || {
            let text: String = text.chars().take(LIMIT).collect();
            malformed(
                "connect pattern",
                format!("{text:?}; must be like tcp://*.example.com:443, with network and ports"),
            )
        };
        let pattern = parse(text).ok_or_else(wrong)?;
        // The one spelling.
        match pattern.text == text {
            true => Ok(pattern),
            false => Err(malformed(
                "connect pattern",
                format!("{text:?}; must be written {:?}", pattern.text),
            )),
        }
    }
}

fn parse(text: &str) -> Option<ConnectPattern> {
    if text.len() > LIMIT {
        return None;
    }
    let (network, rest) = text.split_once("://")?;
    let network = match network {
        "tcp" => Network::Tcp,
        "udp" => Network::Udp,
        _ => return None,
    };
    let (host, ports) = rest.rsplit_once(':')?;
    let host = parse_host(host)?;
    let ports = parse_ports(ports)?;
    let text = format!("{network}://{host}:{}", Ports(ports));
    Some(ConnectPattern {
        text,
        network,
        host,
        ports,
    })
}

fn parse_host(text: &str) -> Option<Host> {
    if text == "*" {
        return Some(Host::Any);
    }
    let bracketed = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let bare = bracketed.unwrap_or(text);
    let network = match bare.parse::<IpAddr>() {
        Ok(address) => Some(IpNet::from(address)),
        Err(_) => bare.parse::<IpNet>().ok().map(|network| network.trunc()),
    };
    if let Some(network) = network {
        let is_v6 = matches!(network, IpNet::V6(_));
        return (is_v6 == bracketed.is_some()).then_some(Host::Addresses(network));
    }
    let name = text.to_ascii_lowercase();
    let (below, bare) = match name.strip_prefix("*.") {
        Some(bare) => (true, bare),
        None => (false, name.as_str()),
    };
    let label = |label: &str| {
        let plain = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        !label.is_empty() && label.bytes().all(plain)
    };
    if !bare.split('.').all(label) {
        return None;
    }
    Some(match below {
        true => Host::Below(format!(".{bare}")),
        false => Host::Name(bare.to_owned()),
    })
}

fn parse_ports(text: &str) -> Option<(u16, u16)> {
    if text == "*" {
        return Some((0, u16::MAX));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let ports: (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    (ports.0 <= ports.1).then_some(ports)
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

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Network::Tcp => "tcp",
            Network::Udp => "udp",
        })
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
}
