//! Counters of bytes by client, for a bounded number of clients. `carry` counts, and `metrics`
//! shows them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The most recently seen clients. All others are counted as one, named [`OTHER`](Clients::OTHER).
pub(super) struct Clients {
    most: usize,
    other: Arc<Client>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    clients: HashMap<Arc<str>, Entry>,
    /// The number of connections so far, as a clock.
    now: u64,
}

struct Entry {
    client: Arc<Client>,
    seen: u64,
}

/// The bytes of one client.
#[derive(Default)]
pub(super) struct Client {
    received: AtomicU64,
    sent: AtomicU64,
    /// True once another client has replaced it. Its bytes then count for the others.
    forgotten: AtomicBool,
    /// The counter of the others.
    other: Option<Arc<Client>>,
}

impl Clients {
    /// The common name of clients without a counter of their own.
    pub(super) const OTHER: &str = "other";

    pub(super) fn new(most: usize) -> Clients {
        Clients {
            most,
            other: Arc::default(),
            known: Mutex::default(),
        }
    }

    /// Returns the counter for a connection of this client. The least recently seen client makes
    /// room.
    pub(super) fn enter(&self, name: &str) -> Arc<Client> {
        let mut known = self.lock();
        known.now += 1;
        let now = known.now;
        if let Some(entry) = known.clients.get_mut(name) {
            entry.seen = now;
            return entry.client.clone();
        }
        if known.clients.len() >= self.most {
            let oldest = known.clients.iter().min_by_key(|(_, entry)| entry.seen);
            let oldest = oldest.map(|(name, _)| name.clone());
            let gone = oldest.and_then(|name| known.clients.remove(&name));
            if let Some(gone) = gone {
                gone.client.forget();
            }
        }
        let client = Arc::new(Client {
            other: Some(self.other.clone()),
            ..Client::default()
        });
        let entry = Entry {
            client: client.clone(),
            seen: now,
        };
        known.clients.insert(name.into(), entry);
        client
    }

    /// Returns each name with its received and sent bytes, the others last.
    pub(super) fn bytes(&self) -> Vec<(Arc<str>, u64, u64)> {
        let known = self.lock();
        let mut all: Vec<_> = known
            .clients
            .iter()
            .map(|(name, entry)| (name.clone(), entry.client.clone()))
            .collect();
        drop(known);
        all.sort_by(|(one, _), (next, _)| one.cmp(next));
        all.push((Clients::OTHER.into(), self.other.clone()));
        all.into_iter()
            .map(|(name, client)| {
                let received = client.received.load(Ordering::Relaxed);
                (name, received, client.sent.load(Ordering::Relaxed))
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic under this lock")
    }
}

impl Client {
    pub(super) fn receive(&self, bytes: u64) {
        self.counting().received.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn send(&self, bytes: u64) {
        self.counting().sent.fetch_add(bytes, Ordering::Relaxed);
    }

    fn counting(&self) -> &Client {
        match &self.other {
            Some(other) if self.forgotten.load(Ordering::Relaxed) => other,
            _ => self,
        }
    }

    /// Moves the counts to the others. Bytes added meanwhile may be missing in the sum: a piece of
    /// one connection.
    fn forget(&self) {
        self.forgotten.store(true, Ordering::Relaxed);
        if let Some(other) = &self.other {
            let received = self.received.swap(0, Ordering::Relaxed);
            other.received.fetch_add(received, Ordering::Relaxed);
            let sent = self.sent.swap(0, Ordering::Relaxed);
            other.sent.fetch_add(sent, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_beyond_the_bound_are_counted_together_and_nothing_is_lost() {
        let clients = Clients::new(3);
        let first = clients.enter("first");
        first.receive(5);
        for number in 0..10 {
            let client = clients.enter(&format!("client {number}"));
            client.receive(100);
            client.send(1);
            // Seen again and again, so it stays.
            clients.enter("steady").receive(1000);
        }
        // It is forgotten, and its connection goes on.
        first.send(7);
        let bytes = clients.bytes();
        assert_eq!(bytes.len(), 4);
        let sum = |part: fn(&(Arc<str>, u64, u64)) -> u64| bytes.iter().map(part).sum::<u64>();
        assert_eq!(sum(|(_, received, _)| *received), 5 + 1000 + 10_000);
        assert_eq!(sum(|(_, _, sent)| *sent), 10 + 7);
        let of = |name: &str| bytes.iter().find(|(known, ..)| &**known == name);
        assert_eq!(of("steady").expect("known").1, 10_000);
        assert!(of("first").is_none());
        assert_eq!(of(Clients::OTHER).expect("always").1, 5 + 800);
    }
}
