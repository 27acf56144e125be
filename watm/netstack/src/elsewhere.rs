//! Flows of other stacks that serve the same peers.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::ip::Packet;
use crate::offload;
use crate::table::{Key, Protocol};
use crate::{PacketSink, PeerId};

/// The most remembered flows of other stacks: those of eight stacks with the default limit. Packets
/// of further flows are handled as if no stack had their flow.
const LIMIT: usize = 1 << 17;

/// The identity of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The peer. It is part of the key, because peers may use the same addresses.
    pub peer: PeerId,
    /// The peer's end, whichever end opened the flow.
    pub source: SocketAddr,
    /// The other end.
    pub destination: SocketAddr,
}

/// The conditions under which a packet may open a flow.
pub(crate) struct Admission<'a> {
    /// True if there are not too many flows.
    pub room: bool,
    /// The flows of other stacks, which must not have it.
    pub elsewhere: &'a mut Elsewhere,
}

/// The holder of each flow. Ordered by key, so that peers cannot make entries collide.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere(BTreeMap<FlowKey, u32>);

impl Elsewhere {
    pub(crate) fn insert(&mut self, flow: FlowKey, holder: u32) {
        if self.0.len() < LIMIT || self.0.contains_key(&flow) {
            self.0.insert(flow, holder);
        }
    }

    pub(crate) fn has(&self, protocol: Protocol, key: &Key) -> bool {
        !self.0.is_empty() && self.0.contains_key(&key.of(protocol))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowKey, u32)> {
        self.0.iter().map(|(flow, holder)| (*flow, *holder))
    }

    /// Forget the flows of this holder.
    pub(crate) fn forget_holder(&mut self, holder: u32) {
        self.0.retain(|_, of| *of != holder);
    }

    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        self.0.retain(|flow, _| flow.peer != peer);
    }

    /// Returns true if another stack takes a packet that has no flow here. If none does, the flow
    /// is this stack's from now on.
    pub(crate) fn takes(
        &mut self,
        protocol: Protocol,
        key: &Key,
        packet: &Packet<'_>,
        sink: &mut dyn PacketSink,
    ) -> bool {
        let flow = key.of(protocol);
        let holder = match self.0.is_empty() {
            true => None,
            false => self.0.get(&flow).copied(),
        };
        let mut declined = false;
        offload::divide(packet, |packet| {
            declined |= sink.decline(key.peer, packet, holder)
        });
        if declined {
            return true;
        }
        if holder.is_some() {
            self.0.remove(&flow);
        }
        false
    }
}
