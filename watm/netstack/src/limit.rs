//! Rate limits by peer, for answers that strangers can trigger.

use watm_core::Instant;

use crate::PeerId;
use crate::hash::{Keyed, Map};

/// Limits an action for each peer: a burst, then a rate.
#[derive(Debug)]
pub(crate) struct Limiter {
    burst: u32,
    /// The nanoseconds that earn one more action.
    period: u64,
    peers: Map<PeerId, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    /// The time up to which permissions have been earned.
    since: Instant,
}

impl Limiter {
    /// Allows `burst` at once, then `per_second`, both at least 1.
    pub(crate) fn new(burst: u32, per_second: u32, hash: Keyed) -> Self {
        Limiter {
            burst,
            period: 1_000_000_000 / u64::from(per_second),
            peers: Map::with_hasher(hash),
        }
    }

    /// Returns true if the action is allowed once more for this peer.
    pub(crate) fn permits(&mut self, peer: PeerId, now: Instant) -> bool {
        let bucket = self.peers.entry(peer).or_insert(Bucket {
            left: self.burst,
            since: now,
        });
        let earned = now.0.saturating_sub(bucket.since.0) / self.period;
        if earned > 0 {
            let room = u64::from(self.burst - bucket.left);
            bucket.left += u32::try_from(earned.min(room)).unwrap_or(0);
            bucket.since = Instant(bucket.since.0.saturating_add(earned * self.period));
        }
        let permits = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        permits
    }

    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.peers.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_then_a_rate_for_each_peer() {
        let mut limiter = Limiter::new(3, 10, Keyed::new(1));
        let start = Instant(5);
        let count = |limiter: &mut Limiter, peer, now| {
            (0..10).filter(|_| limiter.permits(peer, now)).count()
        };
        assert_eq!(count(&mut limiter, 1, start), 3);
        assert_eq!(count(&mut limiter, 2, start), 3);
        assert_eq!(count(&mut limiter, 1, start + Duration::from_millis(99)), 0);
        assert_eq!(
            count(&mut limiter, 1, start + Duration::from_millis(200)),
            2
        );
        assert_eq!(count(&mut limiter, 1, start + Duration::from_secs(3600)), 3);
    }
}
