use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

use super::target::{Network, Target};
use crate::{Destination, Error};

/// Where a module may go, beyond the address that the application names. By default nowhere.
///
/// A pattern is `host`, `host:ports`, `tcp://host:ports` or `udp://host:ports`; without a
/// network it is for TCP.
///
/// | host | admits |
/// |---|---|
/// | `example.com` | that name |
/// | `*.example.com` | names below it, not itself |
/// | `192.0.2.1`, `[2001:db8::1]` | that address |
/// | `192.0.2.0/24`, `[2001:db8::/32]` | addresses of that network |
/// | `*` | every name and every address |
///
/// `ports` is a number, a range such as `1-1024`, or `*`; without it every port is meant.
///
/// A name is compared before it is resolved: one that a pattern names may have any address,
/// and one that no pattern names is resolved and admitted for those of its addresses that a
/// pattern has. Case and a dot at the end do not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    network: Network,
    host: Host,
    ports: (u16, u16),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Any,
    Name(String),
    /// With the dot before it.
    Below(String),
    Addresses(IpNet),
}

/// What a [`Reach`] says of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Denied,
    Allowed,
    /// Those of its addresses that the reach admits.
    Resolved,
}

impl Reach {
    /// Nowhere.
    pub fn none() -> Reach {
        Reach::default()
    }

    /// And what this pattern admits. Fails if it is none.
    pub fn allow(mut self, pattern: &str) -> Result<Reach, Error> {
        let rule = Rule::parse(pattern)
            .map_err(|reason| Error::Options(format!("reach {pattern:?}: {reason}")))?;
        self.rules.push(rule);
        Ok(self)
    }

    pub(crate) fn judge(&self, target: &Target) -> Verdict {
        match &target.destination {
            Destination::Address(address) => match self.admits(target.network, address) {
                true => Verdict::Allowed,
                false => Verdict::Denied,
            },
            Destination::Name(name, port) => {
                let name = normal(name);
                let mut rules = self
                    .rules
                    .iter()
                    .filter(|rule| rule.network == target.network && rule.has_port(*port));
                if rules.clone().any(|rule| rule.host.has_name(&name)) {
                    Verdict::Allowed
                } else if rules.any(|rule| matches!(rule.host, Host::Addresses(_))) {
                    Verdict::Resolved
                } else {
                    Verdict::Denied
                }
            }
        }
    }

    pub(crate) fn admits(&self, network: Network, address: &SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.rules.iter().any(|rule| {
            rule.network == network && rule.has_port(address.port()) && rule.host.has_address(ip)
        })
    }
}

impl Rule {
    fn parse(pattern: &str) -> Result<Rule, String> {
        let (network, rest) = match pattern.split_once("://") {
            None => (Network::Tcp, pattern),
            Some(("tcp", rest)) => (Network::Tcp, rest),
            Some(("udp", rest)) => (Network::Udp, rest),
            Some((other, _)) => {
                return Err(format!("network {other:?}; must be tcp or udp"));
            }
        };
        let (host, ports) = split(rest)?;
        Ok(Rule {
            network,
            host: host.parse()?,
            ports: match ports {
                None => (0, u16::MAX),
                Some(ports) => parse_ports(ports)?,
            },
        })
    }

    fn has_port(&self, port: u16) -> bool {
        (self.ports.0..=self.ports.1).contains(&port)
    }
}

/// The host without its brackets, and the ports.
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
            Err("an IPv6 address belongs in brackets".to_owned())
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
        return Err(format!("ports {text:?} go down; must be low-high"));
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
                    "{text:?} is no network; must be like 192.0.2.0/24 or [2001:db8::/32]"
                )),
            };
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if name.is_empty() || !plain {
            return Err(format!(
                "host {text:?}; must be a name, *.name, an address, a network or *"
            ));
        }
        Ok(match below {
            true => Host::Below(format!(".{}", normal(name))),
            false => Host::Name(normal(name)),
        })
    }
}

impl Host {
    /// `name` as [`normal`] makes it.
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

fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::target::parse_destination;
    use super::*;

    fn verdict(patterns: &[&str], network: Network, address: &str) -> Verdict {
        let reach = patterns.iter().fold(Reach::none(), |reach, pattern| {
            reach.allow(pattern).expect("a pattern")
        });
        reach.judge(&Target {
            network,
            ..Target::tcp(parse_destination(address).expect("an address"))
        })
    }

    #[test]
    fn nothing_is_reached_by_default() {
        for address in ["localhost:80", "127.0.0.1:80", "[::1]:80"] {
            assert_eq!(verdict(&[], Network::Tcp, address), Verdict::Denied);
        }
    }

    #[test]
    fn patterns_admit_what_they_say_and_no_more() {
        use Verdict::{Allowed, Denied, Resolved};
        for (pattern, address, expected) in [
            ("example.com", "example.com:1", Allowed),
            ("example.com", "EXAMPLE.com.:1", Allowed),
            ("example.com", "www.example.com:1", Denied),
            ("example.com", "badexample.com:1", Denied),
            ("example.com", "192.0.2.1:1", Denied),
            ("*.example.com:443", "www.example.com:443", Allowed),
            ("*.example.com:443", "a.b.example.com:443", Allowed),
            ("*.example.com:443", "www.example.com:80", Denied),
            ("*.example.com:443", "example.com:443", Denied),
            ("*.example.com:443", ".example.com:443", Denied),
            ("*.example.com:443", "badexample.com:443", Denied),
            ("10.0.0.0/8:1-1024", "10.1.2.3:1024", Allowed),
            ("10.0.0.0/8:1-1024", "10.1.2.3:1025", Denied),
            ("10.0.0.0/8:1-1024", "11.1.2.3:80", Denied),
            ("10.0.0.0/8:1-1024", "[::ffff:10.1.2.3]:80", Allowed),
            ("10.0.0.0/8:1-1024", "name:80", Resolved),
            ("10.0.0.0/8:1-1024", "name:8080", Denied),
            ("10.9.9.9/8", "10.1.2.3:80", Allowed),
            ("192.0.2.1", "192.0.2.1:7", Allowed),
            ("192.0.2.1", "192.0.2.2:7", Denied),
            ("[2001:db8::/32]:53", "[2001:db8::9]:53", Allowed),
            ("[2001:db8::/32]:53", "[2001:db9::9]:53", Denied),
            ("[::1]", "[::1]:1", Allowed),
            ("*:80", "anything:80", Allowed),
            ("*:80", "192.0.2.2:80", Allowed),
            ("*:80", "anything:81", Denied),
            ("tcp://*", "anything:81", Allowed),
            ("udp://*", "anything:81", Denied),
        ] {
            let found = verdict(&[pattern], Network::Tcp, address);
            assert_eq!(found, expected, "{pattern} {address}");
        }
        assert_eq!(verdict(&["udp://*:53"], Network::Udp, "a:53"), Allowed);
        assert_eq!(verdict(&["*:53"], Network::Udp, "a:53"), Denied);
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_a_reason() {
        for (pattern, reason) in [
            ("", "host"),
            ("::1", "brackets"),
            ("2001:db8::/32", "brackets"),
            ("[::1", "not closed"),
            ("[::1]80", "after the bracket"),
            ("a:b", "port"),
            ("a:9-1", "go down"),
            ("a:70000", "65535"),
            ("http://a", "network"),
            ("10.0.0.0/33", "no network"),
            ("a*b", "host"),
            ("*.", "host"),
            ("a b", "host"),
        ] {
            let error = Reach::none().allow(pattern).expect_err(pattern).to_string();
            assert!(error.contains(reason), "{pattern}: {error}");
        }
    }
}
