//! Reports when the tunnel's peers complete their first handshake. Used by `tunnel`.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;
use watm_runtime::Dialer;

use crate::logging::PROGRAM;

/// The interval of checks at first, the interval later, and the number of early checks. A peer that
/// answers does so at once, or when it is back.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(2);
const FIRST: u32 = 50;

/// Logs the first handshake of each peer. The module itself logs which peers do not answer, and
/// why, when it has tried long enough. Never returns.
pub(super) async fn tell(dialer: &Dialer) {
    let mut told = BTreeSet::new();
    for look in 0u32.. {
        sleep(if look < FIRST { SOON } else { LATER }).await;
        // No status is available between two instances.
        let Ok(status) = dialer.status().await else {
            continue;
        };
        for peer in &status.peers {
            if peer.last_handshake.is_some() && told.insert(peer.name.clone()) {
                let place = peer.endpoint.as_deref().unwrap_or("an unknown endpoint");
                let name = &peer.name;
                tracing::info!(
                    target: PROGRAM,
                    peer = name,
                    endpoint = place,
                    "the tunnel to {name} at {place} is up"
                );
            }
        }
        if !status.peers.is_empty() && told.len() == status.peers.len() {
            break;
        }
    }
    std::future::pending().await
}
