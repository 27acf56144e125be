//! Real sockets, bound for a module before it runs and kept across its restarts, and what
//! else differs between operating systems: nothing outside this folder and
//! [`private`](crate::private) knows which one it is (`tests/structure` looks).

mod bind;
mod doorbell;
mod options;
pub(crate) mod outgoing;
mod tcp;
mod udp;

pub(crate) use bind::{BoundSocket, Grant, Protocol};
pub use doorbell::Doorbell;
pub(crate) use options::readable_bytes;
pub(crate) use tcp::{Connection, TcpPort};
pub(crate) use udp::{Entry, UdpPort};

use std::sync::Arc;

/// The sockets of one server by label.
pub(crate) enum Port {
    Udp(Arc<UdpPort>),
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
