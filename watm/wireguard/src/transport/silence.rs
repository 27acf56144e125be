//! Peers that do not answer, and the end of connections through them.

use watm_core::{ErrorCode, Host, Level};
use watm_netstack::PeerId;

use super::{TARGET, WireGuard, collects_unreachable};
use crate::key;
use crate::peer::{Peer, Silence};

impl WireGuard {
    /// Handle reports of unreachable ports. If a peer is expected at such a host and has not
    /// answered, everything that waits for it is given up. Anybody can forge such a report; nothing
    /// else follows from it, and handshakes go on.
    pub(super) fn handle_unreachable(&mut self, host: &mut dyn Host) {
        if self.streams.is_some() || !collects_unreachable(&self.config) {
            return;
        }
        for machine in self.out.socket().take_unreachable() {
            let there = |(id, peer): (_, &Peer)| {
                let endpoint = peer.endpoint().filter(|at| at.ip() == machine)?;
                peer.is_called().then_some((id, endpoint))
            };
            let there: Vec<_> = self.peers.iter().filter_map(there).collect();
            for (id, endpoint) in there {
                if self.look_elsewhere(id, host) {
                    continue;
                }
                let Some(peer) = self.peers.get_mut(id) else {
                    continue;
                };
                let name = peer.origin().name.clone();
                let why = format!(
                    "peer {name} is unreachable: nothing listens at {endpoint} (ICMP port \
                     unreachable)"
                );
                if peer.is_first_complaint() {
                    host.log(Level::Warn, TARGET, &why);
                }
                let reason = ErrorCode::Other(why);
                self.netstack.fail_connecting(id, host.now(), &reason);
            }
        }
    }

    /// Handle a peer that has not answered several handshakes. Its other addresses are tried.
    /// Without another address, connections that have waited all the time are given up. Handshakes
    /// go on while there is something to send, or a keepalive.
    pub(super) fn handle_unresponsive(
        &mut self,
        id: PeerId,
        silence: Silence,
        host: &mut dyn Host,
    ) {
        // A name may have other addresses by now: give up only connections that have waited for all
        // addresses of the last lookup.
        let since = self.names.known_since(id).unwrap_or(silence.since);
        if self.look_elsewhere(id, host) {
            return;
        }
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let name = peer.origin().name.clone();
        let place = peer
            .endpoint()
            .map_or_else(String::new, |at| format!(" at {at}"));
        let why = if silence.strange {
            format!(
                "peer {name}{place} answers, but its handshake is not valid: check its PublicKey \
                 and the PresharedKey, which must match the peer's configuration"
            )
        } else {
            // WireGuard does not answer strangers.
            format!(
                "peer {name}{place} does not answer: check that it is running, that its PublicKey \
                 is right, and that it knows our public key {}",
                key::encode(self.config.public_key.as_bytes())
            )
        };
        let reason = match silence.strange {
            true => ErrorCode::Other(why.clone()),
            false => ErrorCode::Timeout,
        };
        let failed = self.netstack.fail_connecting(id, since, &reason);
        let peer = self.peers.get_mut(id);
        let matters = |peer: &&mut Peer| failed > 0 || peer.is_awaited();
        if peer.filter(matters).is_some_and(Peer::is_first_complaint) {
            host.log(Level::Warn, TARGET, &why);
        }
    }
}
