use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, MutexGuard};
use std::task::Context;
use std::time::Instant;

use super::carried::CarriedPort;
use super::remotes::{Known, Remotes};
use super::udp::{Entry, UdpPort};
use crate::account::Account;

/// The outcome of a batch.
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
pub(crate) struct DatagramPort {
    way: Way,
    remotes: Remotes,
}

enum Way {
    /// The system's.
    Bound(Box<UdpPort>),
    /// One whose datagrams a connector carries.
    Carried(CarriedPort),
}

impl DatagramPort {
    pub(crate) fn bound(port: UdpPort, account: &Arc<Account>) -> DatagramPort {
        DatagramPort {
            way: Way::Bound(Box::new(port)),
            remotes: Remotes::new(account),
        }
    }

    pub(crate) fn carried(port: CarriedPort, account: &Arc<Account>) -> DatagramPort {
        DatagramPort {
            way: Way::Carried(port),
            remotes: Remotes::new(account),
        }
    }

    /// Where its datagrams may go whatever patterns say.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.remotes.lock()
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        match &self.way {
            Way::Bound(port) => port.local_addr(),
            Way::Carried(port) => port.local_addr(),
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
        let (payload, entries) = match &self.way {
            Way::Bound(port) => port.receive(max_entries, max_bytes, cx),
            Way::Carried(port) => port.receive(max_entries, max_bytes, cx),
        };
        if !entries.is_empty() {
            let (mut known, now) = (self.known(), Instant::now());
            entries
                .iter()
                .for_each(|entry| known.heard(entry.remote, now));
        }
        (payload, entries)
    }

    /// Send entries laid end to end in `payload`, whose lengths add up to its length. If not all
    /// are accepted, `cx` is woken when there is room.
    pub(crate) fn send(&self, payload: &[u8], entries: &[Entry], cx: &mut Context<'_>) -> Sent {
        match &self.way {
            Way::Bound(port) => port.send(payload, entries, cx),
            Way::Carried(port) => port.send(payload, entries, cx),
        }
    }

    /// How many bytes a datagram to this address may have to get there whole, as far as is known.
    pub(crate) fn longest(&self, remote: SocketAddr) -> Option<usize> {
        match &self.way {
            Way::Bound(port) => port.longest(remote),
            Way::Carried(port) => port.longest(remote),
        }
    }

    /// Whether what is longer is lost, in place of being sent in fragments.
    pub(crate) fn set_dont_fragment(&self, on: bool) {
        match &self.way {
            Way::Bound(port) => port.set_dont_fragment(on),
            Way::Carried(port) => port.set_dont_fragment(on),
        }
    }

    /// Machines that have said since this was asked last that nobody takes what was sent to them.
    pub(crate) fn refused(&self) -> Vec<IpAddr> {
        match &self.way {
            Way::Bound(port) => port.refused(),
            Way::Carried(_) => Vec::new(),
        }
    }

    /// Whether it is one of this machine's, to which it matters what its network is.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self.way, Way::Bound(_))
    }

    /// The machine's addresses may be others by now.
    pub(crate) fn network_changed(&self) {
        if let Way::Bound(port) = &self.way {
            port.network_changed();
        }
    }

    /// Throw away what has arrived, for want of a module.
    pub(crate) fn discard(&self) {
        match &self.way {
            Way::Bound(port) => port.discard(),
            Way::Carried(port) => port.discard(),
        }
    }
}
