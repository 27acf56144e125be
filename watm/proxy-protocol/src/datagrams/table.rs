//! The table of clients' flows, by key, by proxy address and by age. Used by `handover`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watm_core::{DatagramFlow, Datagrams, Instant};

/// The precision of a flow's age, as a part of the idle timeout: updating it for every datagram would cost more than
/// the rest.
const AGE_PARTS: u32 = 64;

/// The most addresses of a proxy from which one flow's datagrams come without a header. A proxy has one for each of its
/// workers that a client's datagrams reach. For one more, the address bound first is forgotten.
const MAX_BOUND: usize = 8;

/// The identity of a flow. A client that comes through two proxies has two flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub proxy: IpAddr,
    pub client: SocketAddr,
    pub destination: SocketAddr,
}

/// A client's flow, and the addresses for its answers.
pub struct Association {
    pub key: Key,
    /// The proxy's address from which it was last heard.
    pub proxy: SocketAddr,
    /// The local address at which it was heard.
    pub local: Option<IpAddr>,
    pub flow: Box<dyn DatagramFlow>,
    /// The client's datagrams in the current batch.
    pub gathered: Datagrams,
    /// True if it waits for its turn to send.
    pub queued: bool,
    /// The addresses from which its datagrams come without a header, oldest first.
    bound: VecDeque<SocketAddr>,
    aged: Instant,
}

/// All associations by number.
#[derive(Default)]
pub struct Table {
    all: BTreeMap<u64, Association>,
    by_key: BTreeMap<Key, u64>,
    /// Associations by the proxy addresses whose datagrams come without a header, with the time of the last datagram
    /// from or to each.
    by_proxy: BTreeMap<SocketAddr, (u64, Instant)>,
    by_age: BTreeSet<(Instant, u64)>,
    last: u64,
}

impl Association {
    pub fn new(
        key: Key,
        proxy: SocketAddr,
        local: Option<IpAddr>,
        flow: Box<dyn DatagramFlow>,
        now: Instant,
    ) -> Association {
        Association {
            key,
            proxy,
            local,
            flow,
            gathered: Datagrams::default(),
            queued: false,
            bound: VecDeque::new(),
            aged: now,
        }
    }
}

impl Table {
    /// The number of the next association.
    pub fn next(&self) -> u64 {
        self.last + 1
    }

    /// Add an association. Its number is the one that [`next`](Table::next) returned.
    pub fn insert(&mut self, association: Association) -> u64 {
        self.last += 1;
        self.by_key.insert(association.key, self.last);
        self.by_age.insert((association.aged, self.last));
        self.all.insert(self.last, association);
        self.last
    }

    pub fn remove(&mut self, number: u64) {
        let Some(association) = self.all.remove(&number) else {
            return;
        };
        self.by_key.remove(&association.key);
        self.by_age.remove(&(association.aged, number));
        for proxy in association.bound {
            self.by_proxy.remove(&proxy);
        }
    }

    pub fn get(&mut self, number: u64) -> Option<&mut Association> {
        self.all.get_mut(&number)
    }

    pub fn of_key(&self, key: &Key) -> Option<u64> {
        self.by_key.get(key).copied()
    }

    /// The association of a datagram without a header from this address. An address that was silent for `idle` may
    /// belong to another client now.
    pub fn of_proxy(&mut self, proxy: &SocketAddr, now: Instant, idle: Duration) -> Option<u64> {
        let (number, since) = self.by_proxy.get_mut(proxy)?;
        if *since + idle <= now {
            return None;
        }
        *since = now;
        Some(*number)
    }

    /// Assign datagrams without a header from this address to this association, and to no other.
    pub fn bind_proxy(&mut self, proxy: SocketAddr, number: u64, now: Instant) {
        if !self.all.contains_key(&number) {
            return;
        }
        let before = self.by_proxy.insert(proxy, (number, now));
        let before = before.and_then(|(before, _)| self.all.get_mut(&before));
        if let Some(before) = before {
            before.bound.retain(|known| *known != proxy);
        }
        if let Some(association) = self.all.get_mut(&number) {
            association.bound.push_back(proxy);
            if association.bound.len() > MAX_BOUND
                && let Some(oldest) = association.bound.pop_front()
            {
                self.by_proxy.remove(&oldest);
            }
        }
    }

    /// Record a datagram to this address.
    pub fn touch_proxy(&mut self, proxy: &SocketAddr, now: Instant) {
        if let Some((_, since)) = self.by_proxy.get_mut(proxy) {
            *since = now;
        }
    }

    /// The keys of associations by the addresses that are bound to them.
    pub fn bound(&self) -> impl Iterator<Item = (SocketAddr, Key)> {
        let key = |number: &u64| self.all.get(number).map(|association| association.key);
        self.by_proxy
            .iter()
            .filter_map(move |(proxy, (number, _))| Some((*proxy, key(number)?)))
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the association, and records a datagram from or to it.
    pub fn touch(&mut self, number: u64, now: Instant, idle: Duration) -> Option<&mut Association> {
        let association = self.all.get_mut(&number)?;
        if now - association.aged >= idle / AGE_PARTS {
            self.by_age.remove(&(association.aged, number));
            association.aged = now;
            self.by_age.insert((now, number));
        }
        Some(association)
    }

    /// The association that was idle longest, with the time of its last datagram.
    pub fn oldest(&self) -> Option<(Instant, u64)> {
        self.by_age.first().copied()
    }
}
