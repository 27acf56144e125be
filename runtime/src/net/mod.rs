//! Real sockets, bound for a module before it runs and kept across its restarts.

mod bind;
mod tcp;
mod udp;

pub(crate) use bind::{BoundSocket, Grant, Protocol};
pub(crate) use tcp::{Connection, TcpPort};
pub(crate) use udp::{Entry, UdpPort};

use std::sync::Arc;

/// The sockets of one server by label.
pub(crate) enum Port {
    Udp(Arc<UdpPort>),
    Tcp(Arc<TcpPort>),
}
