//! The path MTU of each peer: the largest packets that its path carries without fragments.

use watm_core::{Host, Level};
use watm_netstack::PeerId;

use super::{TARGET, WireGuard};
use crate::config::DEFAULT_MTU;
use crate::counters::Counter;
use crate::peer::OVERHEAD;

/// Packets are padded to a multiple of this (WireGuard paper, section 5.4.6).
const PADDING: usize = 16;

impl WireGuard {
    /// Ask for the MTU of the paths that may have changed. Returns true if one has changed, so that
    /// flows may have something to send.
    pub(super) fn learn_paths(&mut self, host: &mut dyn Host) -> bool {
        if !self.out.has_doubts() {
            return false;
        }
        let (mut ids, remotes) = self.out.take_doubts();
        for remote in remotes {
            ids.extend(self.peers.at(remote));
        }
        let mut news = false;
        for id in ids {
            news |= self.learn_path(id, host);
        }
        news
    }

    /// Like [`learn_paths`](Self::learn_paths), for one peer.
    pub(super) fn learn_path(&mut self, id: PeerId, host: &mut dyn Host) -> bool {
        let Some(peer) = self.peers.get_mut(id) else {
            return false;
        };
        let Some(remote) = peer.endpoint() else {
            return false;
        };
        let longest = self.out.socket().longest(remote);
        // An MTU above the default makes no difference, and its exact value is not needed.
        let largest = usize::from(self.config.mtu.unwrap_or(DEFAULT_MTU));
        let room = longest
            .map(|bytes| (bytes as usize).saturating_sub(OVERHEAD))
            .filter(|&room| room < largest)
            .map(|room| match self.config.mtu {
                Some(_) => room,
                // The peer's packets are as large, and most implementations pad them.
                None => room / PADDING * PADDING,
            });
        let before = peer.room().flatten();
        let asked = peer.room().is_some();
        peer.set_room(Some(room));
        if asked && before == room {
            return false;
        }
        if room.is_some_and(|room| room < before.unwrap_or(largest)) {
            self.counters.count(Counter::Narrower);
        }
        let name = &peer.origin().name;
        match (self.config.mtu, room) {
            (None, room) => {
                if room != before && host.log_enabled(Level::Debug) {
                    let bytes = room.unwrap_or(largest);
                    let text = format!("the path MTU to peer {name} at {remote} is {bytes} bytes");
                    host.log(Level::Debug, TARGET, &text);
                }
                self.netstack.set_path_mtu(id, room);
                room != before
            }
            (Some(mtu), Some(room)) => {
                let text = format!(
                    "[Interface] MTU is {mtu}, but the path MTU to peer {name} at {remote} is \
                     {room} bytes: larger packets are fragmented; remove MTU from the file to \
                     discover it"
                );
                host.log(Level::Warn, TARGET, &text);
                false
            }
            (Some(_), None) => false,
        }
    }

    /// Forget all path MTUs after a change of the configuration, which may set or remove the MTU.
    pub(super) fn forget_paths(&mut self) {
        self.out
            .socket()
            .set_dont_fragment(self.config.mtu.is_none());
        for (id, peer) in self.peers.iter_mut() {
            if peer.room().is_some() {
                peer.set_room(None);
                self.netstack.set_path_mtu(id, None);
                self.out.doubt(id);
            }
        }
    }
}
