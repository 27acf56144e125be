//! Destinations of flows, and their notation. Transports and their shells pass them to and from the
//! host.

use std::net::SocketAddr;
use std::str::FromStr;
use std::{error, fmt};

/// The destination of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// An address and a port.
    Address(SocketAddr),
    /// A host name, not yet resolved, and a port.
    Name(String, u16),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destination::Address(address) => address.fmt(f),
            Destination::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Destination::Address(address)
    }
}

/// The error for a text that is not a [`Destination`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotADestination;

impl fmt::Display for NotADestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a host and a port, such as example.com:443 or [2001:db8::1]:443")
    }
}

impl error::Error for NotADestination {}

/// Parses `host:port`, or an IP address with its port. The port must not be 0.
impl FromStr for Destination {
    type Err = NotADestination;

    fn from_str(text: &str) -> Result<Self, NotADestination> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return (address.port() != 0)
                .then_some(address.into())
                .ok_or(NotADestination);
        }
        let (name, port) = text.rsplit_once(':').ok_or(NotADestination)?;
        let in_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        // The longest name in the DNS (RFC 1035), as text.
        if name.is_empty() || name.len() > 253 || !name.bytes().all(in_names) {
            return Err(NotADestination);
        }
        match port.parse() {
            Ok(port) if port != 0 => Ok(Destination::Name(name.to_owned(), port)),
            _ => Err(NotADestination),
        }
    }
}
