//! Real sockets, which are bound for a module before it runs and kept across its restarts, and
//! everything else that differs between operating systems. Only this folder and
//! [`private`](crate::private) know which system it is (`tests/structure` checks that).

mod admission;
mod bind;
mod changes;
mod datagrams;
mod descriptors;
mod doorbell;
mod inlet;
mod lingering;
mod options;
pub(crate) mod outgoing;
mod remotes;
mod share;
mod tcp;
mod tunneled_port;
mod udp;
mod upstream;
mod watched;

pub(crate) use admission::Admitted;
pub use admission::{Accepted, Admission};
pub(crate) use bind::{BoundSocket, Grant, Protocol};
pub(crate) use changes::NetworkChanges;
pub(crate) use datagrams::DatagramPort;
pub(crate) use descriptors::descriptors_of_module;
pub use doorbell::Doorbell;
pub(crate) use inlet::{Inlet, poll_receive};
pub(crate) use lingering::linger;
pub(crate) use options::readable_bytes;
pub(crate) use remotes::FRESH;
pub use share::{share_address, share_datagram_address};
pub(crate) use tcp::{Connection, TcpPort};
pub(crate) use tunneled_port::CarriedPort;
pub(crate) use udp::{Entry, UdpPort};
pub use upstream::{
    BindTransparent, TransparentOptions, UpstreamStream, connect_upstream,
    connect_upstream_datagrams,
};

use std::sync::Arc;

/// A socket of a server. Sockets of one protocol have different labels.
pub(crate) enum Port {
    Udp(Arc<DatagramPort>),
    Tcp(Arc<TcpPort>),
}

impl Port {
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Port::Udp(_) => Protocol::Udp,
            Port::Tcp(_) => Protocol::Tcp,
        }
    }
}
