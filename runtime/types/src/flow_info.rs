//! Facts about a flow, which a module gives and an application reads.

use std::net::SocketAddr;

use crate::Destination;

/// The facts about a flow when it is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowInfo {
    /// The inner source.
    pub source: SocketAddr,
    /// The inner destination.
    pub destination: Destination,
    /// The peer that the transport authenticated: a public key, a user name.
    pub peer: Option<String>,
    /// The outer addresses that the flow arrived on: remote, then local.
    pub underlay: Option<(SocketAddr, SocketAddr)>,
    /// Other facts by name, such as `sni`.
    pub attributes: Vec<(String, String)>,
}

impl FlowInfo {
    /// Returns the memory of its names, in bytes.
    pub fn kept_bytes(&self) -> usize {
        let attributes = self.attributes.iter();
        let attributes = attributes.map(|(k, v)| k.capacity() + v.capacity() + ATTRIBUTE);
        let peer = self.peer.as_ref().map_or(0, String::capacity);
        let name = match &self.destination {
            Destination::Address(_) => 0,
            Destination::Name(name, _) => name.capacity(),
        };
        attributes.sum::<usize>() + peer + name
    }
}

/// The memory of an attribute beside its text, in bytes.
const ATTRIBUTE: usize = size_of::<(String, String)>();
