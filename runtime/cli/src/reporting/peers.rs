//! Peers in `/status`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use watm_runtime::{PeerStatus, Status};

/// The most peers on a page.
const LISTED: usize = 4096;

/// Merges the peers of all workers, each of which knows those it has heard from.
pub(crate) fn merged(statuses: &[Status]) -> Vec<PeerStatus> {
    let mut places = BTreeMap::new();
    let mut peers = Vec::<PeerStatus>::new();
    for peer in statuses.iter().flat_map(|status| &status.peers) {
        let place = *places.entry(peer.name.clone()).or_insert(peers.len());
        let Some(known) = peers.get_mut(place) else {
            peers.push(peer.clone());
            continue;
        };
        let bytes = |one: u64, other: u64| one.saturating_add(other);
        known.received_bytes = bytes(known.received_bytes, peer.received_bytes);
        known.sent_bytes = bytes(known.sent_bytes, peer.sent_bytes);
        let newer = match (known.last_handshake, peer.last_handshake) {
            (None, Some(_)) => true,
            (Some(known), Some(other)) => other < known,
            (_, None) => false,
        };
        if newer {
            known.last_handshake = peer.last_handshake;
            known.endpoint = peer.endpoint.clone();
            known.round_trip = peer.round_trip;
            known.loss_permille = peer.loss_permille;
        }
    }
    peers
}

/// Describes peers in JSON.
pub(crate) fn listed(peers: &[PeerStatus]) -> Vec<Value> {
    let one = |peer: &PeerStatus| {
        json!({
            "name": peer.name,
            "endpoint": peer.endpoint,
            "last_handshake_seconds": peer.last_handshake.map(|age| age.as_secs_f64()),
            "received_bytes": peer.received_bytes,
            "sent_bytes": peer.sent_bytes,
            "round_trip_seconds": peer.round_trip.map(|time| time.as_secs_f64()),
            "loss": peer.loss_permille.map(|loss| f64::from(loss) / 1000.0),
        })
    };
    peers.iter().take(LISTED).map(one).collect()
}
