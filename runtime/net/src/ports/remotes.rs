//! The remote addresses that a datagram socket may send to, in addition to the patterns.
//! `datagrams` keeps them, and `component::sockets` asks.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::Destination;
use crate::account::{Account, Charge};

/// The most addresses in each of two halves that were heard from, and not again after an answer: the
/// capacity of a hash table of 16384 places. A flood of others displaces them.
const MOST_STRANGERS: usize = 14_336;

/// The longest time that a half is filled.
const STRANGERS_AGE: Duration = Duration::from_secs(5 * 60);

/// The most addresses in use in both directions: the capacity of a hash table of 65536 places, and
/// more than a server has peers.
const MOST_PARTNERS: usize = 57_344;

/// The silence after which a partner may lose its place to another one: longer than a session of
/// WireGuard lives, which is three minutes (REJECT_AFTER_TIME).
const PARTNER_IDLE: Duration = Duration::from_secs(5 * 60);

/// The silence after which a partner is forgotten.
const PARTNER_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest time between two sweeps that make room for partners.
const SWEEP: Duration = Duration::from_secs(60);

/// The most addresses of names that the module has looked up: more than a client has peers.
const MOST_FOUND: usize = 1024;

/// The most addresses in each of two halves that the application has dialled.
const MOST_DIALLED: usize = 4096;

/// The longest time that a half is filled.
const DIALLED_AGE: Duration = Duration::from_secs(60 * 60);

/// Bytes of an address in a table, with the empty place beside it.
const ADDRESS_BYTES: usize = 64;

/// An address and a port. IPv4-mapped addresses are stored as IPv4.
type Key = (IpAddr, u16);

/// The addresses that a socket may send to in addition to the patterns: those that it has heard
/// from, and those that the application has dialled. They outlive the instances of the module, as
/// the socket does.
///
/// A sender with many addresses displaces strangers, not partners: an address becomes a partner when
/// it is heard from after it was answered, and stays one while it is heard from.
pub struct Remotes {
    known: Mutex<Known>,
}

/// The known addresses.
pub struct Known {
    strangers: Halves<Stranger>,
    /// The addresses in use in both directions, and when they were last heard from.
    partners: HashMap<Key, Instant>,
    swept: Option<Instant>,
    dialled: Halves<()>,
    /// The looked-up addresses with the names that they were found by, the latest last.
    found: VecDeque<(Key, Destination)>,
    /// The address that was heard from last, and when that was noted.
    last: Option<(Key, Instant)>,
    charge: Charge,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stranger {
    Heard,
    Answered,
}

/// The time for which a note about an address need not be renewed.
pub const FRESH: Duration = Duration::from_secs(1);

impl Remotes {
    /// Makes an empty list, which is charged to this account.
    pub fn new(account: &Arc<Account>) -> Remotes {
        let known = Known {
            strangers: Halves::new(MOST_STRANGERS, STRANGERS_AGE),
            partners: HashMap::new(),
            swept: None,
            dialled: Halves::new(MOST_DIALLED, DIALLED_AGE),
            found: VecDeque::new(),
            last: None,
            charge: Charge::new(account),
        };
        Remotes {
            known: Mutex::new(known),
        }
    }

    /// Locks the list.
    pub fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic under this lock")
    }
}

impl Known {
    /// Notes that a datagram has arrived from this address.
    pub fn heard(&mut self, remote: SocketAddr, now: Instant) {
        let key = key(remote);
        if let Some((last, noted)) = self.last
            && last == key
            && now.duration_since(noted) < FRESH
        {
            return;
        }
        self.last = Some((key, now));
        if let Some(heard) = self.partners.get_mut(&key) {
            *heard = now;
            return;
        }
        match self.strangers.renew(&key, now) {
            Some(Stranger::Answered) if self.has_room(now) => {
                self.strangers.remove(&key);
                self.partners.insert(key, now);
            }
            Some(_) => {}
            None => self.strangers.insert(key, Stranger::Heard, now),
        }
        self.charge();
    }

    /// Notes that the module sends a datagram to this address. Returns true if it was heard from,
    /// or dialled by the application.
    pub fn answers(&mut self, remote: SocketAddr, now: Instant) -> bool {
        let key = key(remote);
        if let Some(heard) = self.partners.get(&key) {
            return now.duration_since(*heard) < PARTNER_AGE;
        }
        match self.strangers.renew(&key, now) {
            Some(Stranger::Answered) => true,
            Some(Stranger::Heard) => {
                self.strangers.insert(key, Stranger::Answered, now);
                true
            }
            None => self.dialled.renew(&key, now).is_some(),
        }
    }

    /// Notes that the application has dialled this address.
    pub fn dialled(&mut self, remote: SocketAddr, now: Instant) {
        self.dialled.insert(key(remote), (), now);
        self.charge();
    }

    /// Notes that the module has looked up `name`, and found this address.
    pub fn found(&mut self, remote: SocketAddr, name: &Destination) {
        let key = key(remote);
        self.found.retain(|(known, _)| *known != key);
        if self.found.len() >= MOST_FOUND {
            self.found.pop_front();
        }
        self.found.push_back((key, name.clone()));
        self.charge();
    }

    /// Returns a name that has this address.
    pub fn name(&self, remote: SocketAddr) -> Option<&Destination> {
        let key = key(remote);
        let found = self.found.iter().find(|(known, _)| *known == key);
        found.map(|(_, name)| name)
    }

    /// Returns true if there is room for a partner, after making it if need be.
    fn has_room(&mut self, now: Instant) -> bool {
        let is_soon = |swept| now.duration_since(swept) < SWEEP;
        if self.partners.len() >= MOST_PARTNERS && !self.swept.is_some_and(is_soon) {
            self.swept = Some(now);
            self.partners
                .retain(|_, heard| now.duration_since(*heard) < PARTNER_IDLE);
        }
        self.partners.len() < MOST_PARTNERS
    }

    fn charge(&mut self) {
        let addresses = self.strangers.len() + self.partners.len() + self.dialled.len();
        // Names are counted at the length of the longest host name.
        let bytes = addresses * ADDRESS_BYTES + self.found.len() * (ADDRESS_BYTES + 256);
        if bytes != self.charge.bytes() {
            self.charge.set(bytes);
        }
    }
}

fn key(remote: SocketAddr) -> Key {
    (remote.ip().to_canonical(), remote.port())
}

/// Recently used entries: when the younger half is full or old, the older one is dropped.
struct Halves<T> {
    younger: HashMap<Key, T>,
    older: HashMap<Key, T>,
    most: usize,
    age: Duration,
    begun: Option<Instant>,
}

impl<T: Copy> Halves<T> {
    fn new(most: usize, age: Duration) -> Halves<T> {
        Halves {
            younger: HashMap::new(),
            older: HashMap::new(),
            most,
            age,
            begun: None,
        }
    }

    /// Returns a value, and keeps it as if it had been inserted now.
    fn renew(&mut self, key: &Key, now: Instant) -> Option<T> {
        self.turn(now);
        if let Some(value) = self.younger.get(key) {
            return Some(*value);
        }
        let value = self.older.remove(key)?;
        self.insert(*key, value, now);
        Some(value)
    }

    fn insert(&mut self, key: Key, value: T, now: Instant) {
        self.turn(now);
        self.older.remove(&key);
        self.younger.insert(key, value);
    }

    fn remove(&mut self, key: &Key) {
        self.younger.remove(key);
        self.older.remove(key);
    }

    fn len(&self) -> usize {
        self.younger.len() + self.older.len()
    }

    /// Drops the older half, if the younger one is full or old.
    fn turn(&mut self, now: Instant) {
        let age = now.duration_since(*self.begun.get_or_insert(now));
        if self.younger.len() < self.most && age < self.age {
            return;
        }
        let younger = std::mem::take(&mut self.younger);
        self.older = match age < 2 * self.age {
            true => younger,
            false => HashMap::new(),
        };
        self.begun = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn remotes() -> Remotes {
        Remotes::new(&Arc::default())
    }

    fn peer(number: u32) -> SocketAddr {
        (Ipv4Addr::from(0x0a00_0000 + number), 51820).into()
    }

    /// An exchange: heard, answered, and heard again.
    fn exchange(known: &mut Known, remote: SocketAddr, now: Instant) {
        known.heard(remote, now);
        assert!(known.answers(remote, now));
        // Other addresses come between.
        known.last = None;
        known.heard(remote, now);
    }

    const FLOOD: u32 = 100_000;

    #[test]
    fn whom_nothing_was_heard_from_is_not_answered() {
        let remotes = remotes();
        let (mut known, now) = (remotes.lock(), Instant::now());
        assert!(!known.answers(peer(1), now));
        known.heard(peer(1), now);
        assert!(known.answers(peer(1), now));
        assert!(!known.answers(peer(2), now));
        let other_port = (peer(1).ip(), 51821).into();
        assert!(!known.answers(other_port, now));
    }

    #[test]
    fn a_form_of_ipv4_within_ipv6_is_the_same_address() {
        let remotes = remotes();
        let (mut known, now) = (remotes.lock(), Instant::now());
        let mapped = |ip: Ipv4Addr| SocketAddr::from((ip.to_ipv6_mapped(), 7));
        let (one, other) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        known.heard(mapped(one), now);
        assert!(known.answers((one, 7).into(), now));
        known.heard((other, 7).into(), now);
        assert!(known.answers(mapped(other), now));
        // Another form of the address is another address.
        let compatible = Ipv6Addr::from(u128::from(one.to_bits()));
        assert!(!known.answers((compatible, 7).into(), now));
    }

    #[test]
    fn a_flood_displaces_no_partner_whether_it_is_answered_or_not() {
        for answered in [false, true] {
            let remotes = remotes();
            let (mut known, now) = (remotes.lock(), Instant::now());
            let partners = (0..5000).map(peer);
            partners
                .clone()
                .for_each(|peer| exchange(&mut known, peer, now));
            for number in 0..FLOOD {
                let source = peer(1_000_000 + number);
                known.heard(source, now);
                // Each can be answered while it is new.
                assert!(!answered || known.answers(source, now));
            }
            for peer in partners {
                assert!(known.answers(peer, now));
            }
            assert!(!known.answers(peer(1_000_000), now));
            assert!(known.strangers.len() <= 2 * MOST_STRANGERS);
        }
    }

    #[test]
    fn a_flood_that_talks_back_displaces_no_partner_that_is_in_use() {
        let remotes = remotes();
        let (mut known, mut now) = (remotes.lock(), Instant::now());
        for peer in (0..5000).map(peer) {
            exchange(&mut known, peer, now);
        }
        for round in 0..4 {
            now += PARTNER_IDLE / 2;
            for number in 0..FLOOD {
                exchange(&mut known, peer(1_000_000 * (round + 1) + number), now);
            }
            for peer in (0..5000).map(peer) {
                assert!(known.answers(peer, now));
                known.heard(peer, now);
            }
            assert!(known.partners.len() <= MOST_PARTNERS);
            assert!(known.charge.bytes() <= 6 << 20);
        }
        // A newcomer gets its place once others are idle.
        now += 2 * PARTNER_IDLE;
        exchange(&mut known, peer(5001), now);
        assert!(known.partners.contains_key(&key(peer(5001))));
    }

    #[test]
    fn who_is_silent_for_long_is_forgotten() {
        let remotes = remotes();
        let (mut known, now) = (remotes.lock(), Instant::now());
        known.heard(peer(1), now);
        exchange(&mut known, peer(2), now);
        let later = now + 3 * STRANGERS_AGE;
        assert!(!known.answers(peer(1), later));
        assert!(known.answers(peer(2), later));
        assert!(!known.answers(peer(2), now + PARTNER_AGE));
    }

    #[test]
    fn what_the_application_has_dialled_is_open_for_as_long_as_it_is_used() {
        let remotes = remotes();
        let (mut known, now) = (remotes.lock(), Instant::now());
        known.dialled(peer(1), now);
        known.dialled(peer(2), now);
        for round in 1..10 {
            assert!(known.answers(peer(1), now + round * DIALLED_AGE / 2));
        }
        assert!(!known.answers(peer(2), now + 5 * DIALLED_AGE));
    }

    #[test]
    fn names_are_kept_of_as_many_addresses_as_there_is_room_for() {
        let remotes = remotes();
        let mut known = remotes.lock();
        let name = Destination::Name("vpn.example.org".to_owned(), 51820);
        for number in 0..2 * MOST_FOUND as u32 {
            known.found(peer(number), &name);
            assert_eq!(known.name(peer(number)), Some(&name));
        }
        assert_eq!(known.found.len(), MOST_FOUND);
        assert_eq!(known.name(peer(0)), None);
    }
}
