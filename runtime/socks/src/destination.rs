//! Destinations that clients name. All protocols of this crate parse them here.

use std::fmt;
use std::net::SocketAddr;

/// The destination of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An address.
    Address(SocketAddr),
    /// An unresolved name and a port.
    Name(String, u16),
}

impl Destination {
    /// Creates a destination from a client's host: an address if the text is one, or else a name.
    pub(crate) fn of(host: &str, port: u16) -> Option<Destination> {
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        if let Ok(ip) = bare.parse() {
            return Some(Destination::Address(SocketAddr::new(ip, port)));
        }
        let sound = (1..=255).contains(&host.len())
            && host
                .chars()
                .all(|c| !c.is_control() && !c.is_whitespace() && !"[]:/@\u{fffd}".contains(c));
        sound.then(|| Destination::Name(host.to_owned(), port))
    }

    /// Parses `host:port`. A text without a port gets `default_port`.
    pub(crate) fn parse(text: &str, default_port: Option<u16>) -> Option<Destination> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port))
                if !host.ends_with(':') && (!host.contains(':') || host.ends_with(']')) =>
            {
                (host, port.parse().ok()?)
            }
            _ => (text, default_port?),
        };
        Destination::of(host, port)
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        match self {
            Destination::Address(address) => address.port(),
            Destination::Name(_, port) => *port,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_addresses() {
        let address = |text: &str| Some(Destination::Address(text.parse().unwrap()));
        let name = |name: &str, port| Some(Destination::Name(name.to_owned(), port));
        for (text, expected) in [
            ("example.com:80", name("example.com", 80)),
            ("example.com", name("example.com", 443)),
            ("192.0.2.1:1", address("192.0.2.1:1")),
            ("[2001:db8::1]:1", address("[2001:db8::1]:1")),
            ("[2001:db8::1]", address("[2001:db8::1]:443")),
            ("", None),
            (":80", None),
            ("a:b", None),
            ("a:65536", None),
            ("a b:1", None),
            ("a\0b:1", None),
            ("user@host:1", None),
        ] {
            assert_eq!(Destination::parse(text, Some(443)), expected, "{text:?}");
        }
        assert_eq!(Destination::parse("example.com", None), None);
    }
}
