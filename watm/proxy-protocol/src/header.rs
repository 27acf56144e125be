use std::net::SocketAddr;

use crate::tlv::Tlvs;

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header<'a> {
    /// Nothing of anybody else: the connection is the sender's own, such as a health check, or
    /// the sender does not know. The connection's own addresses hold.
    Local,
    /// Who the connection is from.
    Proxied(Proxied<'a>),
}

/// A connection that was passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proxied<'a> {
    /// Between whom it is.
    pub addresses: Addresses<'a>,
    /// What carries it there.
    pub protocol: Protocol,
    /// Other facts, of version 2 alone.
    pub tlvs: Tlvs<'a>,
}

/// Both ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// IPv4 or IPv6, both the same.
    Inet {
        /// The client.
        source: SocketAddr,
        /// Where the client connected to.
        destination: SocketAddr,
    },
    /// Unix sockets, by their paths, up to the first zero byte.
    Unix {
        /// The client.
        source: &'a [u8],
        /// Where the client connected to.
        destination: &'a [u8],
    },
}

/// What kind of connection it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TCP, or a stream of Unix.
    Stream,
    /// UDP, or datagrams of Unix.
    Datagram,
}
