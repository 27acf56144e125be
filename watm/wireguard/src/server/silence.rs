//! Peers that do not answer, and what becomes of connections through them.

use watm_core::{ErrorCode, Host, Level};
use watm_netstack::PeerId;

use super::{TARGET, WireGuard};
use crate::key;
use crate::peer::{Peer, Silence};

impl WireGuard {
    /// A peer has not answered several handshakes. It is looked for elsewhere; without another
    /// address, connections are given up that have waited all the time. Handshakes go on for as
    /// long as there is something to send, or a keepalive.
    pub(super) fn bear_silence(&mut self, id: PeerId, silence: Silence, host: &mut dyn Host) {
        // Of a name the addresses that it has by now may be others, so that connections have to
        // have waited for all that the last look had.
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
                "peer {name}{place} answers with what its keys do not fit: its PublicKey is \
                 another, or the PresharedKey is not the one that it has for us"
            )
        } else {
            // WireGuard does not answer whoever it does not know.
            format!(
                "peer {name}{place} does not answer: nobody is there, or its PublicKey is another, \
                 or it does not know ours, which is {}",
                key::encode(self.config.public_key.as_bytes())
            )
        };
        let reason = match silence.strange {
            true => ErrorCode::Other(why.clone()),
            false => ErrorCode::Timeout,
        };
        let failed = self.netstack.fail_connecting(id, since, &reason);
        let peer = self.peers.get_mut(id);
        let matters = |peer: &&mut Peer| failed > 0 || peer.is_unknown();
        if peer.filter(matters).is_some_and(Peer::is_first_complaint) {
            host.log(Level::Warn, TARGET, &why);
        }
    }
}
