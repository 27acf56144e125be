//! Sockets as a module sees them: system sockets, or connectors in their place. The driver makes
//! them, and `component` grants them to the module.

mod datagrams;
mod remotes;
mod tunneled;

pub use datagrams::DatagramPort;
pub use remotes::{FRESH, Remotes};
pub use tunneled::CarriedPort;

use std::sync::Arc;

use crate::sockets::{PacketPort, Protocol, TcpPort};

/// A socket of a server. Sockets of one protocol have different labels.
pub enum Port {
    /// A socket for datagrams.
    Udp(Arc<DatagramPort>),
    /// A listener, or connections that the module makes.
    Tcp(Arc<TcpPort>),
    /// A device for IP packets.
    Packets(Arc<PacketPort>),
}

impl Port {
    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            Port::Udp(_) => Protocol::Udp,
            Port::Tcp(_) => Protocol::Tcp,
            Port::Packets(_) => Protocol::Packets,
        }
    }
}
