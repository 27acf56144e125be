//! Counters and the bytes of clients, reported in the status. Used by `codec` and `datagrams`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use watm_core::PeerStatus;

use crate::reason::{COUNTERS, Reason};

/// The most clients whose bytes are counted separately. For one more, the client seen longest ago
/// is forgotten. The list is for people and metrics, and takes a few hundred kilobytes at most.
const MAX_CLIENTS: usize = 1024;

/// Counters of all connections and datagrams of one transport.
#[derive(Debug, Default)]
pub struct Account(RefCell<Counts>);

#[derive(Debug, Default)]
struct Counts {
    events: [u64; EVENTS.len()],
    refused: [u64; COUNTERS.len()],
    clients: BTreeMap<IpAddr, Client>,
    /// The same clients by the time when they were seen.
    by_age: BTreeSet<(u64, IpAddr)>,
    /// The number of clients seen for the first time.
    newcomers: u64,
}

#[derive(Debug, Default)]
struct Client {
    received: u64,
    sent: u64,
    /// The value of `newcomers` when the client was last seen.
    seen: u64,
}

/// Counted events, besides refusals.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    /// A connection's header was accepted.
    Connection,
    /// A client's datagrams became a flow.
    Datagrams,
    /// A datagram flow ended after its idle timeout.
    Idle,
    /// A datagram flow ended to make room for another one.
    Displaced,
    /// The application refused a flow.
    NotTaken,
    /// A datagram was lost because the application had not read earlier ones.
    Overrun,
    /// A client's bytes are no longer counted separately.
    Forgotten,
}

const EVENTS: [&str; 7] = [
    "proxy.accepted",
    "proxy.datagrams.accepted",
    "proxy.datagrams.idle",
    "proxy.datagrams.displaced",
    "proxy.datagrams.not_taken",
    "proxy.datagrams.overrun",
    "proxy.clients_forgotten",
];

impl Account {
    pub fn count(&self, event: Event) {
        self.0.borrow_mut().events[event as usize] += 1;
    }

    pub fn refused(&self, reason: Reason) {
        self.0.borrow_mut().refused[reason.index()] += 1;
    }

    /// Count a client's bytes: received from it, and sent to it.
    pub fn bytes(&self, client: IpAddr, received: usize, sent: usize) {
        let counts = &mut *self.0.borrow_mut();
        let latest = counts.newcomers;
        let known = counts.clients.get_mut(&client);
        let client = match known.filter(|known| known.seen == latest) {
            // No new client came in between: this one is among the latest already.
            Some(known) => known,
            None => counts.client(client),
        };
        client.received += received as u64;
        client.sent += sent as u64;
    }

    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.borrow();
        let events = EVENTS.into_iter().zip(counts.events);
        events
            .chain(COUNTERS.into_iter().zip(counts.refused))
            .collect()
    }

    /// The clients seen last, by their addresses.
    pub fn clients(&self) -> Vec<PeerStatus> {
        let counts = self.0.borrow();
        let status = |(address, client): (&IpAddr, &Client)| PeerStatus {
            name: address.to_string(),
            received_bytes: client.received,
            sent_bytes: client.sent,
            ..PeerStatus::default()
        };
        counts.clients.iter().map(status).collect()
    }
}

impl Counts {
    fn client(&mut self, address: IpAddr) -> &mut Client {
        if !self.clients.contains_key(&address) {
            self.newcomers += 1;
            if self.clients.len() >= MAX_CLIENTS
                && let Some((_, oldest)) = self.by_age.pop_first()
            {
                self.clients.remove(&oldest);
                self.events[Event::Forgotten as usize] += 1;
            }
        }
        let now = self.newcomers;
        let client = self.clients.entry(address).or_default();
        if client.seen != now {
            self.by_age.remove(&(client.seen, address));
            self.by_age.insert((now, address));
            client.seen = now;
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn as_many_clients_are_kept_as_are_bounded_and_the_busy_ones() {
        let account = Account::default();
        for number in 0..3 * MAX_CLIENTS as u32 {
            account.bytes(address(number), 1, 2);
            account.bytes(address(0), 10, 0);
        }
        let clients = account.clients();
        assert_eq!(clients.len(), MAX_CLIENTS);
        assert_eq!(account.0.borrow().by_age.len(), MAX_CLIENTS);
        assert_eq!(clients[0].name, "0.0.0.0");
        assert_eq!(clients[0].received_bytes, 30 * MAX_CLIENTS as u64 + 1);
        let forgotten = account
            .named()
            .into_iter()
            .find(|(name, _)| *name == "proxy.clients_forgotten");
        assert_eq!(
            forgotten,
            Some(("proxy.clients_forgotten", 2 * MAX_CLIENTS as u64))
        );
    }
}
