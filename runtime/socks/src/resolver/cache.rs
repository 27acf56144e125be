//! The cache of DNS answers, kept for their time to live. Used by `servers`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The most names: more than a browser visits in an hour. Each has 16 addresses at most, which
/// makes half a megabyte.
const MOST: usize = 1024;

/// The longest time that an answer is kept. Names of services that move have a time to live of
/// minutes.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// The time for which a name without addresses is kept. RFC 2308 takes it from the answer, which
/// may say hours.
const NOTHING: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct Cache(Mutex<HashMap<String, Entry>>);

struct Entry {
    addresses: Vec<IpAddr>,
    until: Instant,
}

impl Cache {
    /// Returns the addresses of a name, if they are still valid at this time. An empty list means
    /// that it has none.
    pub(super) fn get(&self, name: &str, now: Instant) -> Option<Vec<IpAddr>> {
        let mut entries = self.lock();
        let entry = entries.get(name)?;
        if entry.until <= now {
            entries.remove(name);
            return None;
        }
        Some(entry.addresses.clone())
    }

    /// Stores the addresses of a name for the validity of the answer.
    pub(super) fn put(&self, name: &str, addresses: &[IpAddr], good_for: Duration, now: Instant) {
        let mut entries = self.lock();
        if entries.len() >= MOST && !entries.contains_key(name) {
            entries.retain(|_, entry| entry.until > now);
            let first = entries.iter().min_by_key(|(_, entry)| entry.until);
            if entries.len() >= MOST
                && let Some(first) = first.map(|(name, _)| name.clone())
            {
                entries.remove(&first);
            }
        }
        let most = match addresses.is_empty() {
            true => NOTHING,
            false => LONGEST,
        };
        let entry = Entry {
            addresses: addresses.to_vec(),
            until: now + good_for.min(most),
        };
        entries.insert(name.to_owned(), entry);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().expect("no panic under this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_holds_for_as_long_as_it_says_and_no_longer_than_an_hour() {
        let (cache, now) = (Cache::default(), Instant::now());
        let addresses = ["192.0.2.1".parse().unwrap()];
        cache.put("short", &addresses, 5 * SECOND, now);
        cache.put("long", &addresses, Duration::from_secs(1 << 31), now);
        cache.put("never", &addresses, Duration::ZERO, now);
        cache.put("nothing", &[], Duration::from_secs(1 << 31), now);
        for (name, after, known) in [
            ("short", 4, true),
            ("short", 5, false),
            ("long", 3599, true),
            ("long", 3600, false),
            ("never", 0, false),
            ("nothing", 9, true),
            ("nothing", 10, false),
            ("unknown", 0, false),
        ] {
            let found = cache.get(name, now + after * SECOND);
            assert_eq!(found.is_some(), known, "{name} after {after} s");
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_remembered() {
        let (cache, now) = (Cache::default(), Instant::now());
        cache.put("first to go", &[], SECOND, now);
        cache.put("next to go", &[], 2 * SECOND, now);
        for number in 2..MOST {
            cache.put(&number.to_string(), &[], 5 * SECOND, now);
        }
        assert!(cache.get("first to go", now).is_some());
        cache.put("one more", &[], 5 * SECOND, now);
        assert!(cache.get("first to go", now).is_none());
        assert!(cache.get("next to go", now).is_some());
        assert_eq!(cache.lock().len(), MOST);
        // Expired entries go first, all of them.
        cache.put("another", &[], SECOND, now + 5 * SECOND);
        assert_eq!(cache.lock().len(), 1);
    }
}
