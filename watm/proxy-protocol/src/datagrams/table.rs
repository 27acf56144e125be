use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watm_core::{DatagramFlow, Datagrams, Instant};

/// How exactly a flow's age is known, as a part of the time that it may be idle: noting it anew
/// for every datagram would cost more than the rest.
const AGE_PARTS: u32 = 64;

/// Addresses of a proxy's whose datagrams are one flow's without a header. A proxy has one for each of
/// its workers that a client's datagrams reach; for one more, that is forgotten which was bound first.
const MAX_BOUND: usize = 8;

/// What makes datagrams one flow. A client that comes by two proxies is two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub proxy: IpAddr,
    pub client: SocketAddr,
    pub destination: SocketAddr,
}

/// A client's datagrams, and where the answers go.
pub struct Association {
    pub key: Key,
    /// Where it was heard from last.
    pub proxy: SocketAddr,
    /// Our address there.
    pub local: Option<IpAddr>,
    pub flow: Box<dyn DatagramFlow>,
    /// What has come of it in the batch at hand.
    pub gathered: Datagrams,
    /// Whether it waits for its turn to send.
    pub queued: bool,
    /// Where its datagrams come from without a header, oldest first.
    bound: VecDeque<SocketAddr>,
    aged: Instant,
}

/// All associations, each with a number.
#[derive(Default)]
pub struct Table {
    all: BTreeMap<u64, Association>,
    by_key: BTreeMap<Key, u64>,
    /// Those whose next datagrams come without a header, by where from, and when something came from
    /// there or went there last.
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

    /// Add one, which gets the number that [`next`](Table::next) said.
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

    /// Whose a datagram without a header is that comes from there now. An address that was silent for
    /// `idle` may be another client's by now.
    pub fn of_proxy(&mut self, proxy: &SocketAddr, now: Instant, idle: Duration) -> Option<u64> {
        let (number, since) = self.by_proxy.get_mut(proxy)?;
        if *since + idle <= now {
            return None;
        }
        *since = now;
        Some(*number)
    }

    /// What comes from there without a header is this one's, and nobody else's any more.
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

    /// Something went there.
    pub fn touch_proxy(&mut self, proxy: &SocketAddr, now: Instant) {
        if let Some((_, since)) = self.by_proxy.get_mut(proxy) {
            *since = now;
        }
    }

    /// Those that are known by where they come from.
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

    /// The association, of which something came or went.
    pub fn touch(&mut self, number: u64, now: Instant, idle: Duration) -> Option<&mut Association> {
        let association = self.all.get_mut(&number)?;
        if now - association.aged >= idle / AGE_PARTS {
            self.by_age.remove(&(association.aged, number));
            association.aged = now;
            self.by_age.insert((now, number));
        }
        Some(association)
    }

    /// The one that was idle longest, and since when.
    pub fn oldest(&self) -> Option<(Instant, u64)> {
        self.by_age.first().copied()
    }
}
