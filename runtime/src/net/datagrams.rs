use std::net::{IpAddr, SocketAddr};
use std::task::Context;

use super::carried::CarriedPort;
use super::udp::{Entry, UdpPort};

/// What has become of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    /// So many entries are gone; the others are to be kept.
    pub(crate) accepted: usize,
    /// Some of those were lost because they are longer than what goes whole.
    pub(crate) too_long: bool,
}

/// What has become of datagrams that leave together.
pub(super) enum Gone {
    /// There is no room for now.
    Not,
    /// Away, as far as the network takes them.
    Sent,
    /// Lost, some for their length.
    TooLong,
}

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

    /// Send entries laid end to end in `payload`, whose lengths add up to its length. If not all
    /// are accepted, `cx` is woken when there is room.
    pub(crate) fn send(&self, payload: &[u8], entries: &[Entry], cx: &mut Context<'_>) -> Sent {
        match self {
            DatagramPort::Bound(port) => port.send(payload, entries, cx),
            DatagramPort::Carried(port) => port.send(payload, entries, cx),
        }
    }

    /// How many bytes a datagram to this address may have to get there whole, as far as is known.
    pub(crate) fn longest(&self, remote: SocketAddr) -> Option<usize> {
        match self {
            DatagramPort::Bound(port) => port.longest(remote),
            DatagramPort::Carried(port) => port.longest(remote),
        }
    }

    /// Whether what is longer is lost, in place of being sent in fragments.
    pub(crate) fn set_dont_fragment(&self, on: bool) {
        match self {
            DatagramPort::Bound(port) => port.set_dont_fragment(on),
            DatagramPort::Carried(port) => port.set_dont_fragment(on),
        }
    }

    /// Machines that have said since this was asked last that nobody takes what was sent to them.
    pub(crate) fn refused(&self) -> Vec<IpAddr> {
        match self {
            DatagramPort::Bound(port) => port.refused(),
            DatagramPort::Carried(_) => Vec::new(),
        }
    }

    /// Whether it is one of this machine's, to which it matters what its network is.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self, DatagramPort::Bound(_))
    }

    /// The machine's addresses may be others by now.
    pub(crate) fn network_changed(&self) {
        if let DatagramPort::Bound(port) = self {
            port.network_changed();
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
