//! The bound on incomplete handshakes, which [`Tcp`](super::Tcp) keeps.

use std::collections::BTreeSet;
use std::time::Duration;

use watm_core::Instant;

use crate::PeerId;
use crate::hash::{Keyed, Map};
use crate::table::FlowId;

/// The time after which a handshake is given up: three SYN-ACKs, after 0, 1 and 3 seconds, had time
/// to be answered.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The limit of all peers: about 2 MiB of flows without buffers.
const LIMIT: usize = 1024;
/// The limit of one peer: a browser that restores its tabs opens some hundred connections at once.
const LIMIT_PER_PEER: usize = 256;

/// Flows whose handshake is not complete. A new one replaces the oldest: under a flood of SYNs an
/// honest handshake still has as long as the flood takes to send `LIMIT` more.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    all: BTreeSet<(Instant, FlowId)>,
    by_peer: Map<PeerId, BTreeSet<(Instant, FlowId)>>,
}

impl HalfOpen {
    pub(crate) fn new(hash: Keyed) -> Self {
        HalfOpen {
            all: BTreeSet::new(),
            by_peer: Map::with_hasher(hash),
        }
    }

    /// The flow to remove before another one of this peer is added, if the limit is reached.
    pub(crate) fn in_the_way(&self, peer: PeerId) -> Option<FlowId> {
        let own = self.by_peer.get(&peer);
        let oldest = if own.is_some_and(|own| own.len() >= LIMIT_PER_PEER) {
            own.and_then(BTreeSet::first)
        } else if self.all.len() >= LIMIT {
            self.all.first()
        } else {
            None
        };
        oldest.map(|(_, id)| *id)
    }

    pub(crate) fn insert(&mut self, peer: PeerId, since: Instant, id: FlowId) {
        self.all.insert((since, id));
        self.by_peer.entry(peer).or_default().insert((since, id));
    }

    pub(crate) fn remove(&mut self, peer: PeerId, since: Instant, id: FlowId) {
        self.all.remove(&(since, id));
        if let Some(own) = self.by_peer.get_mut(&peer) {
            own.remove(&(since, id));
            if own.is_empty() {
                self.by_peer.remove(&peer);
            }
        }
    }

    /// A flow whose handshake has timed out.
    pub(crate) fn due(&self, now: Instant) -> Option<FlowId> {
        let (since, id) = self.all.first()?;
        (*since + TIMEOUT <= now).then_some(*id)
    }

    /// The time of the next timeout.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.all.first().map(|(since, _)| *since + TIMEOUT)
    }
}
