use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use watm_core::{DatagramFlow, Datagrams, Instant};

/// How exactly a flow's age is known, as a part of the time that it may be idle: noting it anew
/// for every datagram would cost more than the rest.
const AGE_PARTS: u32 = 64;

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
    aged: Instant,
}

/// All associations, each with a number.
#[derive(Default)]
pub struct Table {
    all: BTreeMap<u64, Association>,
    by_key: BTreeMap<Key, u64>,
    /// Those whose next datagrams come without a header, by where from.
    by_proxy: BTreeMap<SocketAddr, u64>,
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
        if self.by_proxy.get(&association.proxy) == Some(&number) {
            self.by_proxy.remove(&association.proxy);
        }
    }

    pub fn get(&mut self, number: u64) -> Option<&mut Association> {
        self.all.get_mut(&number)
    }

    pub fn of_key(&self, key: &Key) -> Option<u64> {
        self.by_key.get(key).copied()
    }

    pub fn of_proxy(&self, proxy: &SocketAddr) -> Option<u64> {
        self.by_proxy.get(proxy).copied()
    }

    /// What comes from there without a header is this one's. Another address of before is not.
    pub fn bind_proxy(&mut self, proxy: SocketAddr, number: u64) {
        if let Some(association) = self.all.get_mut(&number) {
            if self.by_proxy.get(&association.proxy) == Some(&number) {
                self.by_proxy.remove(&association.proxy);
            }
            association.proxy = proxy;
            self.by_proxy.insert(proxy, number);
        }
    }

    /// Those that are known by where they come from.
    pub fn bound(&self) -> impl Iterator<Item = (SocketAddr, Key)> {
        let key = |number: &u64| self.all.get(number).map(|association| association.key);
        self.by_proxy
            .iter()
            .filter_map(move |(proxy, number)| Some((*proxy, key(number)?)))
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
