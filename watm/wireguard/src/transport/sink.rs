//! The sink of the network stack: its packets go to peers or to other generations. Used by `mail`
//! and `receive`.

use boringtun::noise::Tunn;
use watm_netem::{Direction, Netem};
use watm_netstack::{PacketSink, PeerId};
use watm_stream::FramedTokens;

use crate::counters::Counter;
use crate::generations::{Errand, Generations, Message, Role};
use crate::peer::Io;
use crate::peers::Peers;

/// The origin of an inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// A session of this generation.
    Session,
    /// A session of another generation, which has no flow for it.
    SessionOf(u32),
    /// The serving generation, for a flow that should be here.
    Handed,
    /// A generation that should have its flow and does not.
    Returned,
}

/// Handles the packets of the network stack.
pub struct Sink<'a> {
    pub peers: &'a mut Peers,
    pub generations: &'a mut Generations,
    pub streams: Option<&'a FramedTokens>,
    pub network: &'a mut Netem,
    pub io: Io<'a>,
    /// The origin of the packet that the stack is handling.
    pub arrival: Arrival,
}

impl PacketSink for Sink<'_> {
    fn send(&mut self, id: PeerId, packet: &[u8]) {
        let allowed =
            Tunn::dst_address(packet).is_some_and(|destination| self.peers.owns(id, destination));
        let Some(peer) = self.peers.get_mut(id).filter(|_| allowed) else {
            self.io.counters.count(Counter::DestinationNotAllowed);
            return;
        };
        let connected = |streams: &FramedTokens| {
            !peer.is_taken_over()
                && peer
                    .endpoint()
                    .is_some_and(|remote| streams.is_connected(remote))
        };
        if self.generations.is_serving() || self.streams.is_some_and(connected) {
            self.dispatch(id, packet);
        } else {
            let message = Message::Packet(Errand::Send, peer.key(), packet);
            let serving = self.generations.serving();
            self.generations.tell(serving, &message, self.io.counters);
        }
    }

    fn decline(&mut self, id: PeerId, packet: &[u8], holder: Option<u32>) -> bool {
        let (to, errand) = match (self.generations.role(), self.arrival) {
            (Role::Serving | Role::Waiting, arrival) => match (holder, arrival) {
                (None, _) | (_, Arrival::Returned) => return false,
                (Some(holder), Arrival::SessionOf(other)) if holder == other => return false,
                (Some(holder), _) => (holder, Errand::Inner),
            },
            (Role::Draining { .. }, Arrival::Handed) => {
                (self.generations.serving(), Errand::Returned)
            }
            (Role::Draining { .. }, _) => (self.generations.serving(), Errand::Arrived),
        };
        if let Some(peer) = self.peers.get_mut(id) {
            let message = Message::Packet(errand, peer.key(), packet);
            self.generations.tell(to, &message, self.io.counters);
        }
        true
    }
}

impl Sink<'_> {
    /// Passes a packet through the bad network, if there is one, and encrypts it.
    pub fn dispatch(&mut self, id: PeerId, packet: &[u8]) {
        if !self.network.is_idle()
            && let Some(peer) = self.peers.get_mut(id)
        {
            let name = &*peer.origin().name;
            let (way, now) = (Direction::ToPeer, self.io.now.0);
            if self.network.take(way, (id, name), packet, now) {
                return;
            }
        }
        self.encrypt(id, packet);
    }

    /// Encrypts a packet, or has it encrypted by the generation with a session of the peer.
    pub fn encrypt(&mut self, id: PeerId, packet: &[u8]) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        match peer.holder() {
            Some(holder) if !peer.has_session() => {
                peer.sent_elsewhere(packet.len());
                let message = Message::Packet(Errand::Encrypt, peer.key(), packet);
                self.generations.tell(holder, &message, self.io.counters);
            }
            _ => peer.send(packet, &mut self.io),
        }
    }
}
