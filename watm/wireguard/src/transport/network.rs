//! The bad network that the configuration asks for: packets that it has held go on to the stack or
//! to their peers. Called by `process`.

use watm_core::Host;
use watm_netem::{Arrived, Direction};

use super::WireGuard;
use super::mail::source_address;

impl WireGuard {
    /// Lets packets go on whose time in the bad network has come.
    pub(super) fn carry_arrived(&mut self, host: &mut dyn Host) {
        let now = host.now().0;
        if self.network.deadline().is_none_or(|due| due > now) {
            return;
        }
        for arrived in self.network.arrived(now) {
            self.carry(&arrived, host);
        }
    }

    fn carry(&mut self, arrived: &Arrived, host: &mut dyn Host) {
        let Arrived {
            peer: id, packet, ..
        } = arrived;
        // The peer may have been removed, or have lost the address, while the packet waited.
        let owned = source_address(packet).is_some_and(|source| self.peers.owns(*id, source));
        let (netstack, mut sink) = self.netstack_and_sink(host.now());
        match arrived.direction {
            Direction::ToPeer => sink.encrypt(*id, packet),
            Direction::FromPeer if owned => {
                let Some(origin) = sink.peers.get_mut(*id).map(|peer| peer.origin().clone()) else {
                    return;
                };
                netstack.handle_packet(&origin, packet, host, &mut sink);
            }
            Direction::FromPeer => {}
        }
    }
}
