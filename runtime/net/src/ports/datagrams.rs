//! A datagram socket of a module: a system socket, or a connector in its place. The driver keeps
//! it, and `component::sockets` gives it to the module.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, MutexGuard};
use std::task::Context;
use std::time::Instant;

use super::remotes::{Known, Remotes};
use super::tunneled::CarriedPort;
use crate::account::Account;
use crate::sockets::{Entry, Place, Sent, UdpPort};

/// A datagram socket. It outlives the instances of the module that use it.
pub struct DatagramPort {
    way: Way,
    remotes: Remotes,
    place: Place,
}

enum Way {
    /// A socket of the system.
    Bound(Box<UdpPort>),
    /// A socket whose datagrams a connector carries.
    Carried(CarriedPort),
}

impl DatagramPort {
    /// Creates a port of a socket of this machine, with its place among those of its address.
    pub fn bound(port: UdpPort, place: Place, account: &Arc<Account>) -> DatagramPort {
        place.charge_to(account);
        DatagramPort {
            way: Way::Bound(Box::new(port)),
            remotes: Remotes::new(account),
            place,
        }
    }

    /// Creates a port whose datagrams a connector carries.
    pub fn carried(port: CarriedPort, account: &Arc<Account>) -> DatagramPort {
        let place = Place::default();
        place.charge_to(account);
        DatagramPort {
            way: Way::Carried(port),
            remotes: Remotes::new(account),
            place,
        }
    }

    /// Returns the remote addresses that its datagrams may go to in addition to the patterns.
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.remotes.lock()
    }

    /// Returns the address that the module sees as its own.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.way {
            Way::Bound(port) => port.local_addr(),
            Way::Carried(port) => port.local_addr(),
        }
    }

    /// Receives up to both limits. If that fell short of `max_entries`, `cx` is woken when there is
    /// more.
    pub fn receive(
        &self,
        max_entries: usize,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> (Vec<u8>, Vec<Entry>) {
        let (payload, entries) = match &self.way {
            Way::Bound(port) => port.receive(max_entries, max_bytes, cx),
            Way::Carried(port) => port.receive(max_entries, max_bytes, cx),
        };
        self.hear(&entries);
        (payload, entries)
    }

    /// Returns the place of the socket among those that share its address.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Receives what other sockets have passed to this one, as [`receive`](Self::receive) does.
    pub fn passed(
        &self,
        max_entries: usize,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> (Vec<u8>, Vec<Entry>) {
        let (payload, entries) = self.place.passed(max_entries, max_bytes, cx);
        self.hear(&entries);
        (payload, entries)
    }

    fn hear(&self, entries: &[Entry]) {
        if !entries.is_empty() {
            let (mut known, now) = (self.known(), Instant::now());
            entries
                .iter()
                .for_each(|entry| known.heard(entry.remote, now));
        }
    }

    /// Sends the entries that are laid end to end in `payload`; their lengths add up to its length.
    /// If not all are accepted, `cx` is woken when there is room.
    pub fn send(&self, payload: &[u8], entries: &[Entry], cx: &mut Context<'_>) -> Sent {
        match &self.way {
            Way::Bound(port) => port.send(payload, entries, cx),
            Way::Carried(port) => port.send(payload, entries, cx),
        }
    }

    /// Returns the longest datagram, in bytes, that reaches this address whole, as far as is known.
    pub fn longest(&self, remote: SocketAddr) -> Option<usize> {
        match &self.way {
            Way::Bound(port) => port.longest(remote),
            Way::Carried(port) => port.longest(remote),
        }
    }

    /// Sets whether longer datagrams are dropped, in place of being sent in fragments.
    pub fn set_dont_fragment(&self, on: bool) {
        match &self.way {
            Way::Bound(port) => port.set_dont_fragment(on),
            Way::Carried(port) => port.set_dont_fragment(on),
        }
    }

    /// Takes the hosts that reported port unreachable (ICMP) since the last call.
    pub fn take_unreachable(&self) -> Vec<IpAddr> {
        match &self.way {
            Way::Bound(port) => port.take_unreachable(),
            Way::Carried(_) => Vec::new(),
        }
    }

    /// Returns true for a socket of this machine, which changes of the network affect.
    pub fn is_bound(&self) -> bool {
        matches!(self.way, Way::Bound(_))
    }

    /// Notes that the machine's addresses may have changed.
    pub fn network_changed(&self) {
        if let Way::Bound(port) = &self.way {
            port.network_changed();
        }
    }

    /// Discards what has arrived, while there is no module to receive it.
    pub fn discard(&self) {
        self.place.discard();
        match &self.way {
            Way::Bound(port) => port.discard(),
            Way::Carried(port) => port.discard(),
        }
    }
}
