//! Real sockets, which are bound for a module before it runs and kept across its restarts, and
//! everything else that differs between operating systems. Only this folder and
//! `private` of the seals know which system it is (`tests/structure` checks that).

mod admission;
mod bind;
mod changes;
mod datagrams;
mod descriptors;
mod doorbell;
mod inlet;
mod lingering;
mod options;
pub mod outgoing;
mod remotes;
mod share;
mod tcp;
mod tunneled_port;
mod udp;
mod upstream;
mod watched;

pub use admission::Admitted;
pub use admission::{Accepted, Admission};
pub use bind::{BoundSocket, Grant, Protocol};
pub use changes::NetworkChanges;
pub use datagrams::DatagramPort;
pub use descriptors::descriptors_of_module;
pub use doorbell::Doorbell;
pub use inlet::{Inlet, poll_receive};
pub use lingering::linger;
pub use options::readable_bytes;
pub use remotes::FRESH;
pub use share::{share_address, share_datagram_address};
pub use tcp::{Connection, TcpPort};
pub use tunneled_port::CarriedPort;
pub use udp::{Entry, UdpPort};
pub use upstream::{
    BindTransparent, TransparentOptions, UpstreamStream, connect_upstream,
    connect_upstream_datagrams,
};

use std::sync::Arc;

/// A socket of a server. Sockets of one protocol have different labels.
pub enum Port {
    /// A socket for datagrams.
    Udp(Arc<DatagramPort>),
    /// A listener, or connections that the module makes.
    Tcp(Arc<TcpPort>),
}

impl Port {
    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            Port::Udp(_) => Protocol::Udp,
            Port::Tcp(_) => Protocol::Tcp,
        }
    }
}
