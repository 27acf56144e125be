//! The bound on handshakes: a table of accepted connections by client, which `streams` keeps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// Connections in their handshake, by client.
///
/// A client is an IPv4 address, or the first 64 bits of an IPv6 address, since one machine
/// usually has the rest to itself.
#[derive(Default)]
pub struct Handshakes {
    clients: BTreeMap<u64, IpAddr>,
    by_client: BTreeMap<IpAddr, BTreeSet<u64>>,
    /// Clients by their number of handshakes. Among equals, the client with the oldest one is last.
    ranks: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
}

impl Handshakes {
    /// The number of connections.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Adds a connection. Numbers increase with time.
    pub fn begin(&mut self, number: u64, remote: IpAddr) {
        let client = client(remote);
        self.clients.insert(number, client);
        self.change(client, |numbers| {
            numbers.insert(number);
        });
    }

    /// Removes a connection, if it is there.
    pub fn end(&mut self, number: u64) {
        if let Some(client) = self.clients.remove(&number) {
            self.change(client, |numbers| {
                numbers.remove(&number);
            });
        }
    }

    /// The connection to close for a new one: the oldest of the client that has the most.
    pub fn first_to_close(&self) -> Option<u64> {
        self.ranks.last().map(|(_, Reverse(oldest), _)| *oldest)
    }

    fn change(&mut self, client: IpAddr, change: impl FnOnce(&mut BTreeSet<u64>)) {
        let numbers = self.by_client.entry(client).or_default();
        if let Some(&oldest) = numbers.first() {
            self.ranks.remove(&(numbers.len(), Reverse(oldest), client));
        }
        change(numbers);
        match numbers.first() {
            Some(&oldest) => {
                self.ranks.insert((numbers.len(), Reverse(oldest), client));
            }
            None => {
                self.by_client.remove(&client);
            }
        }
    }
}

fn client(remote: IpAddr) -> IpAddr {
    match remote.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}
