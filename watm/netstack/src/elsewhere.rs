//! Flows that other stacks have, to which the packets of the same peers belong.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::ip::Packet;
use crate::table::{Key, Protocol};
use crate::{PacketSink, PeerId};

/// Most flows of others that are remembered: those of eight stacks with the default limit.
/// Packets of more are handled as if nobody had their flow.
const LIMIT: usize = 1 << 17;

/// What tells a flow from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// The peer. It is part of the key: peers may use the same addresses.
    pub peer: PeerId,
    /// The peer's end, whoever opened the flow.
    pub source: SocketAddr,
    /// The other end.
    pub destination: SocketAddr,
}

/// What decides whether a packet may open a flow.
pub(crate) struct Admission<'a> {
    /// There are not too many.
    pub room: bool,
    /// Nobody else has it.
    pub elsewhere: &'a mut Elsewhere,
}

/// Who has which flow. In the order of the keys, so that peers cannot make entries collide.
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

    /// Forget what this one has.
    pub(crate) fn forget_holder(&mut self, holder: u32) {
        self.0.retain(|_, of| *of != holder);
    }

    pub(crate) fn forget_peer(&mut self, peer: PeerId) {
        self.0.retain(|flow, _| flow.peer != peer);
    }

    /// Whether somebody else takes a packet for which there is no flow here. If not, it is
    /// ours from now on.
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
        if sink.decline(key.peer, packet.whole, holder) {
            return true;
        }
        if holder.is_some() {
            self.0.remove(&flow);
        }
        false
    }
}
