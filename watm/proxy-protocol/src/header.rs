//! The content of a parsed header. Used throughout the crate.

use std::net::SocketAddr;

use watm_proxy_header::{Protocol, Tlvs};

/// The content of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header<'a> {
    /// LOCAL or UNKNOWN: the connection is the sender's own, such as a health check, or the sender
    /// does not know its origin. The addresses of the connection itself apply.
    Local,
    /// PROXY: the origin of the connection.
    Proxied(Proxied<'a>),
}

/// A connection that a proxy forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proxied<'a> {
    /// The ends of the connection.
    pub addresses: Addresses<'a>,
    /// The kind of its carrier.
    pub protocol: Protocol,
    /// The TLVs of version 2.
    pub tlvs: Tlvs<'a>,
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// IPv4 or IPv6 addresses, of the same family.
    Inet {
        /// The client.
        source: SocketAddr,
        /// The destination of the client.
        destination: SocketAddr,
    },
    /// Paths of Unix sockets, up to the first zero byte.
    Unix {
        /// The client.
        source: &'a [u8],
        /// The destination of the client.
        destination: &'a [u8],
    },
}
