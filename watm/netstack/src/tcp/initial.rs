//! Initial sequence numbers (RFC 6528): a keyed hash of the connection's ends, and a clock.

use std::hash::BuildHasher;

use watm_core::Instant;

use super::sequence::Sequence;
use crate::hash::Keyed;
use crate::table::Key;

/// The nanoseconds of a clock tick (RFC 9293 section 3.4.1).
const TICK: u64 = 4000;

/// Chooses initial sequence numbers. Only the holder of the secret can derive those of one
/// connection from those of another.
#[derive(Debug)]
pub(super) struct Initial {
    secret: Keyed,
}

impl Initial {
    pub(super) fn new(secret: u64) -> Self {
        Initial {
            secret: Keyed::new(secret),
        }
    }

    /// The number of the local SYN on a connection that begins now. Later connections between the
    /// same ends have later numbers.
    pub(super) fn of(&self, key: &Key, now: Instant) -> Sequence {
        let ticks = now.0 / TICK;
        // The sum is taken modulo 2^32.
        Sequence(self.secret.hash_one(key).wrapping_add(ticks) as u32)
    }

    /// A secret number of a connection, for the offset of its timestamp clock (RFC 7323
    /// section 5.4) and for random choices. It depends on the ends alone, so that the clock of a
    /// later connection between the same ends goes on.
    pub(super) fn secret_of(&self, key: &Key) -> u64 {
        self.secret.hash_one((key, "timestamps"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;

    fn key(peer: u32, source: u16, destination: u16) -> Key {
        Key {
            peer,
            source: SocketAddr::from(([10, 0, 0, 2], source)),
            destination: SocketAddr::from(([192, 0, 2, 1], destination)),
        }
    }

    #[test]
    fn a_clock_of_four_microseconds_moves_the_numbers_of_a_connection() {
        let initial = Initial::new(1);
        let key = key(1, 1000, 80);
        let start = Instant(1 << 50);
        let first = initial.of(&key, start);
        let later = initial.of(&key, start + Duration::from_secs(1));
        assert_eq!(first.until(later), 250_000);
    }

    #[test]
    fn every_end_and_the_secret_count() {
        let now = Instant(0);
        let number = Initial::new(1).of(&key(1, 1000, 80), now);
        for other in [key(2, 1000, 80), key(1, 1001, 80), key(1, 1000, 81)] {
            assert_ne!(Initial::new(1).of(&other, now), number);
        }
        assert_ne!(Initial::new(2).of(&key(1, 1000, 80), now), number);
    }
}
