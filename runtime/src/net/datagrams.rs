use std::net::SocketAddr;
use std::task::Context;

use super::carried::CarriedPort;
use super::udp::{Entry, UdpPort};

/// A socket of datagrams. It outlives the instances of the module that use it.
pub(crate) enum DatagramPort {
    /// The system's.
    Bound(Box<UdpPort>),
    /// One whose datagrams a connector carries.
    Carried(CarriedPort),
}

impl DatagramPort {
    pub(crate) fn local_addr(&self) -> SocketAddr {
        match self {
            DatagramPort::Bound(port) => port.local_addr(),
            DatagramPort::Carried(port) => port.local_addr(),
        }
    }

    /// Receive up to both limits. If that fell short of `max_entries`, `cx` is woken when
    /// there is more.
    pub(crate) fn receive(
        &self,
        max_entries: usize,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> (Vec<u8>, Vec<Entry>) {
        match self {
            DatagramPort::Bound(port) => port.receive(max_entries, max_bytes, cx),
            DatagramPort::Carried(port) => port.receive(max_entries, max_bytes, cx),
        }
    }

    /// Send entries laid end to end in `payload`, whose lengths add up to its length.
    /// Returns how many were accepted; if not all, `cx` is woken when there is room.
    pub(crate) fn send(&self, payload: &[u8], entries: &[Entry], cx: &mut Context<'_>) -> usize {
        match self {
            DatagramPort::Bound(port) => port.send(payload, entries, cx),
            DatagramPort::Carried(port) => port.send(payload, entries, cx),
        }
    }

    /// Throw away what has arrived, for want of a module.
    pub(crate) fn discard(&self) {
        match self {
            DatagramPort::Bound(port) => port.discard(),
            DatagramPort::Carried(port) => port.discard(),
        }
    }
}
