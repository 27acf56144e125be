//! The destinations that a module asked for. The policy's `access` notes them.

use std::sync::{Mutex, PoisonError};

use crate::UsedDestination;

/// The most destinations: more than a person looks at.
const MOST: usize = 64;

/// The destinations that a module asked to connect to, the latest last. Beyond 64, the one that was
/// asked for longest ago is dropped.
#[derive(Default)]
pub struct Destinations(Mutex<Vec<UsedDestination>>);

impl Destinations {
    /// Notes a request, and its success.
    pub fn note(&self, target: &str, connected: bool) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entry = match list.iter().rposition(|known| known.target == target) {
            Some(index) => list.remove(index),
            None => UsedDestination {
                target: target.to_owned(),
                connections: 0,
                failures: 0,
            },
        };
        match connected {
            true => entry.connections += 1,
            false => entry.failures += 1,
        }
        if list.len() == MOST {
            list.remove(0);
        }
        list.push(entry);
    }

    /// Returns the destinations, the latest first.
    pub fn list(&self) -> Vec<UsedDestination> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_and_the_oldest_is_forgotten() {
        let destinations = Destinations::default();
        for number in 0..100 {
            destinations.note(&format!("tcp://192.0.2.1:{number}"), true);
            destinations.note("tcp://example.com:443", number % 2 == 0);
        }
        let list = destinations.list();
        assert_eq!(list.len(), MOST);
        assert_eq!(
            list[0],
            UsedDestination {
                target: "tcp://example.com:443".to_owned(),
                connections: 50,
                failures: 50,
            }
        );
        assert_eq!(list[1].target, "tcp://192.0.2.1:99");
        assert_eq!(list[MOST - 1].target, "tcp://192.0.2.1:37");
    }
}
