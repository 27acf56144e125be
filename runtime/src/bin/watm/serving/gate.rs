//! How many connections may be open.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};

use super::outcome::Ending;
use super::settings::Terms;

/// Counts the open connections of a listener.
#[derive(Default)]
pub(super) struct Gate(Mutex<Open>);

#[derive(Default)]
struct Open {
    total: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A connection's place.
pub(super) struct Place {
    gate: Arc<Gate>,
    client: IpAddr,
}

impl Gate {
    /// A place for a connection of this client, or which limit is in the way.
    pub(super) fn enter(self: &Arc<Gate>, client: IpAddr, terms: &Terms) -> Result<Place, Ending> {
        let client = network(client);
        let mut open = self.lock();
        if open.total >= terms.connections {
            return Err(Ending::Limit);
        }
        let of_client = open.by_client.entry(client).or_default();
        if terms.per_client.is_some_and(|most| *of_client >= most) {
            return Err(Ending::ClientLimit);
        }
        *of_client += 1;
        open.total += 1;
        Ok(Place {
            gate: self.clone(),
            client,
        })
    }

    pub(super) fn open(&self) -> usize {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().expect("no panic under this lock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.gate.lock();
        open.total -= 1;
        if let Some(count) = open.by_client.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                open.by_client.remove(&self.client);
            }
        }
    }
}

/// Who is one client: an address of IPv4, 64 bits of one of IPv6, since one machine has as many as
/// it likes of the rest.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}
