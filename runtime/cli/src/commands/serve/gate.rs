//! Limits on open connections, in all and by client. `carry` asks for each connection and each
//! flow.
//!
//! A connection counts for its client from the moment it is accepted. During its handshake, the
//! client is the address that it comes from, and newer connections may replace it. Once the module
//! has handed it over as a flow, the client is the one that the module names, and the connection
//! stays.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use watm_runtime::{Accepted, Network};

use super::outcome::Ending;
use super::settings::Terms;

/// The time that a connection has for its handshake, whatever else its client has open. Connections
/// that a proxy forwards at once have ended theirs by then; only afterwards is it known to be a
/// proxy.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// The most proxies that are remembered.
const MOST_PROXIES: usize = 1024;

/// The open connections of a listener.
#[derive(Default)]
pub(super) struct Gate {
    open: Mutex<Open>,
    /// Notified when a client has more connections than allowed.
    crowded: Notify,
}

#[derive(Default)]
struct Open {
    /// The number of flows.
    total: usize,
    /// The number of flows that are streams.
    streams: usize,
    clients: HashMap<IpAddr, Client>,
    /// Numbers of connections in a handshake, by the addresses of both ends.
    handshakes: HashMap<(SocketAddr, SocketAddr), u64>,
    last: u64,
    /// Addresses whose connections turned out to carry other clients. Their handshakes are not
    /// limited.
    proxies: HashSet<IpAddr>,
}

#[derive(Default)]
struct Client {
    flows: usize,
    /// Handshakes by their numbers, which increase with time.
    handshakes: BTreeMap<u64, Handshake>,
}

struct Handshake {
    accepted: Arc<Accepted>,
    began: Instant,
}

/// The place of a flow.
pub(super) struct Place {
    gate: Arc<Gate>,
    client: IpAddr,
    network: Network,
}

impl Gate {
    /// Admits a connection, or refuses it, before its module knows of it.
    pub(super) fn admit(&self, accepted: &Arc<Accepted>, terms: &Terms) -> Result<(), Ending> {
        let address = client_of(accepted.remote().ip());
        let mut open = self.lock();
        open.last += 1;
        let number = open.last;
        let is_proxy = open.proxies.contains(&address);
        let client = open.clients.entry(address).or_default();
        let most = terms.per_client.unwrap_or(usize::MAX);
        if client.flows >= most {
            open.forget_if_idle(address);
            return Err(Ending::ClientLimit);
        }
        let handshake = Handshake {
            accepted: accepted.clone(),
            began: Instant::now(),
        };
        client.handshakes.insert(number, handshake);
        if client.flows + client.handshakes.len() > most && !is_proxy {
            self.crowded.notify_one();
        }
        let replaced = open.handshakes.insert(ends(accepted), number);
        // The client reused the port, and the module has not noticed the end of the old connection.
        if let (Some(old), Some(client)) = (replaced, open.clients.get_mut(&address)) {
            client.handshakes.remove(&old);
        }
        Ok(())
    }

    /// Removes an admitted connection that is closed.
    pub(super) fn leave(&self, accepted: &Accepted) {
        let mut open = self.lock();
        if open
            .handshake(ends(accepted))
            .is_some_and(|own| std::ptr::eq(own, accepted))
        {
            open.end_handshake(ends(accepted));
        }
    }

    /// Returns a place for a flow, or the limit that prevents one. `connection` has both ends of
    /// the connection that it came by, the client's first.
    pub(super) fn enter(
        self: &Arc<Gate>,
        source: IpAddr,
        network: Network,
        connection: Option<(SocketAddr, SocketAddr)>,
        terms: &Terms,
    ) -> Result<Place, Ending> {
        let client = client_of(source);
        let mut open = self.lock();
        // Datagrams have no connection.
        if network == Network::Tcp
            && let Some(ends) = connection
            && let Some(accepted) = open.end_handshake(ends)
        {
            accepted.settle();
            let proxy = client_of(ends.0.ip());
            if proxy != client && open.proxies.len() < MOST_PROXIES {
                open.proxies.insert(proxy);
            }
        }
        if open.total >= terms.connections {
            return Err(Ending::Limit);
        }
        let of_client = open.clients.entry(client).or_default();
        if terms.per_client.is_some_and(|most| of_client.flows >= most) {
            return Err(Ending::ClientLimit);
        }
        of_client.flows += 1;
        open.total += 1;
        open.streams += usize::from(network == Network::Tcp);
        Ok(Place {
            gate: self.clone(),
            client,
            network,
        })
    }

    /// Returns the number of flows.
    pub(super) fn open(&self) -> usize {
        self.lock().total
    }

    /// Returns the number of flows with an end of their own, which datagrams lack.
    pub(super) fn open_streams(&self) -> usize {
        self.lock().streams
    }

    /// Waits until a client has had too many connections for a moment.
    pub(super) async fn crowded(&self) {
        self.crowded.notified().await;
        tokio::time::sleep(GRACE).await;
    }

    /// Closes the oldest handshakes of clients that have more connections than allowed.
    pub(super) fn clear(&self, terms: &Terms) {
        let most = terms.per_client.unwrap_or(usize::MAX);
        let mut closing = Vec::new();
        let open = self.lock();
        for (address, client) in &open.clients {
            let many = client.flows + client.handshakes.len();
            if many <= most || open.proxies.contains(address) {
                continue;
            }
            let oldest = client.handshakes.values().take(many - most);
            let (late, recent): (Vec<_>, Vec<_>) =
                oldest.partition(|handshake| handshake.began.elapsed() >= GRACE);
            closing.extend(late.iter().map(|handshake| handshake.accepted.clone()));
            if !recent.is_empty() {
                self.crowded.notify_one();
            }
        }
        drop(open);
        closing.iter().for_each(|accepted| accepted.close());
    }

    /// Closes all connections in a handshake.
    pub(super) fn close_handshakes(&self) {
        let open = self.lock();
        let clients = open.clients.values();
        let handshakes = clients.flat_map(|client| client.handshakes.values());
        let closing: Vec<_> = handshakes.map(|each| each.accepted.clone()).collect();
        drop(open);
        closing.iter().for_each(|accepted| accepted.close());
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no panic under this lock")
    }
}

impl Open {
    fn handshake(&self, ends: (SocketAddr, SocketAddr)) -> Option<&Accepted> {
        let number = self.handshakes.get(&ends)?;
        let client = self.clients.get(&client_of(ends.0.ip()))?;
        client.handshakes.get(number).map(|each| &*each.accepted)
    }

    fn end_handshake(&mut self, ends: (SocketAddr, SocketAddr)) -> Option<Arc<Accepted>> {
        let number = self.handshakes.remove(&ends)?;
        let address = client_of(ends.0.ip());
        let client = self.clients.get_mut(&address)?;
        let handshake = client.handshakes.remove(&number)?;
        self.forget_if_idle(address);
        Some(handshake.accepted)
    }

    fn forget_if_idle(&mut self, address: IpAddr) {
        let client = self.clients.get(&address);
        if client.is_some_and(|client| client.flows == 0 && client.handshakes.is_empty()) {
            self.clients.remove(&address);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.gate.lock();
        open.total -= 1;
        open.streams -= usize::from(self.network == Network::Tcp);
        if let Some(client) = open.clients.get_mut(&self.client) {
            client.flows -= 1;
        }
        open.forget_if_idle(self.client);
    }
}

/// Returns a connection's addresses, which identify its flow: the client's, and the listener's.
fn ends(accepted: &Accepted) -> (SocketAddr, SocketAddr) {
    (accepted.remote(), accepted.local())
}

/// Returns the address that identifies a client: an IPv4 address, or the first 64 bits of an IPv6
/// address, since one machine can use any number of the rest.
fn client_of(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}
