//! Whether the tunnel is up.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;
use watm_runtime::Dialer;

use crate::logging::PROGRAM;

/// How often to look at first, and from when on less often: who answers does so at once, or when it
/// is back.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(2);
const FIRST: u32 = 50;

/// Say of each peer when its first handshake is done. The module tells of those that do not answer,
/// and why, when it has tried long enough. Never ready.
pub(super) async fn tell(dialer: &Dialer) {
    let mut told = BTreeSet::new();
    for look in 0u32.. {
        sleep(if look < FIRST { SOON } else { LATER }).await;
        // Between two instances there is none.
        let Ok(status) = dialer.status().await else {
            continue;
        };
        for peer in &status.peers {
            if peer.last_handshake.is_some() && told.insert(peer.name.clone()) {
                let place = peer.endpoint.as_deref().unwrap_or("an unknown place");
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
