//! The table of flows by key and by number, which TCP and UDP each have.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use watm_core::Token;

use crate::PeerId;
use crate::elsewhere::FlowKey;
use crate::hash::{Keyed, Map};

/// The identity of a flow among those of its protocol. The peer is part of it, because peers may
/// use the same addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub peer: PeerId,
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

/// A slot in a [`Table`], with the generation of the flow in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FlowId {
    slot: u32,
    generation: u32,
}

/// The protocol of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP (RFC 9293).
    Tcp,
    /// UDP (RFC 768).
    Udp,
}

impl Key {
    /// The identity among the flows of all protocols.
    pub(crate) fn of(&self, protocol: Protocol) -> FlowKey {
        FlowKey {
            protocol,
            peer: self.peer,
            source: self.source,
            destination: self.destination,
        }
    }
}

const OURS: u64 = 1 << 63;
const UDP: u64 = 1 << 62;
/// The number of generations. Tokens have 30 bits for them.
const GENERATIONS: u32 = (1 << 30) - 1;

impl FlowId {
    pub(crate) fn token(self, protocol: Protocol) -> Token {
        let bit = match protocol {
            Protocol::Tcp => 0,
            Protocol::Udp => UDP,
        };
        OURS | bit | u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    pub(crate) fn from_token(token: Token) -> Option<(Protocol, FlowId)> {
        if token & OURS == 0 {
            return None;
        }
        let protocol = if token & UDP == 0 {
            Protocol::Tcp
        } else {
            Protocol::Udp
        };
        let id = FlowId {
            slot: token as u32,
            generation: (token >> 32) as u32 & GENERATIONS,
        };
        Some((protocol, id))
    }
}

/// Flows by key and by id. The id of a removed flow finds nothing.
#[derive(Debug)]
pub(crate) struct Table<F> {
    slots: Vec<Slot<F>>,
    free: Vec<u32>,
    ids: Map<Key, FlowId>,
    /// The number of flows of each peer that has any.
    by_peer: BTreeMap<PeerId, usize>,
}

#[derive(Debug)]
struct Slot<F> {
    generation: u32,
    flow: Option<(Key, F)>,
}

impl<F> Table<F> {
    pub(crate) fn new(hash: Keyed) -> Self {
        Table {
            slots: Vec::new(),
            free: Vec::new(),
            ids: Map::with_hasher(hash),
            by_peer: BTreeMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The number of this peer's flows.
    pub(crate) fn len_of(&self, peer: PeerId) -> usize {
        self.by_peer.get(&peer).copied().unwrap_or(0)
    }

    /// The most flows of any peer, and that peer.
    pub(crate) fn most_of_a_peer(&self) -> Option<(usize, PeerId)> {
        self.by_peer.iter().map(|(peer, held)| (*held, *peer)).max()
    }

    pub(crate) fn find(&self, key: &Key) -> Option<FlowId> {
        self.ids.get(key).copied()
    }

    pub(crate) fn key(&self, id: FlowId) -> Option<&Key> {
        Some(&self.slot(id)?.flow.as_ref()?.0)
    }

    pub(crate) fn get_mut(&mut self, id: FlowId) -> Option<&mut F> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        Some(&mut slot.flow.as_mut()?.1)
    }

    fn slot(&self, id: FlowId) -> Option<&Slot<F>> {
        let slot = self.slots.get(id.slot as usize)?;
        (slot.generation == id.generation).then_some(slot)
    }

    /// The id of the next flow.
    pub(crate) fn next_id(&self) -> FlowId {
        match self.free.last() {
            Some(&slot) => FlowId {
                slot,
                generation: self.slots[slot as usize].generation,
            },
            None => FlowId {
                slot: u32::try_from(self.slots.len()).expect("fewer flows than 2^32"),
                generation: 0,
            },
        }
    }

    /// Add a flow. The key must be new.
    pub(crate) fn insert(&mut self, key: Key, flow: F) -> FlowId {
        let id = self.next_id();
        if self.free.pop().is_none() {
            self.slots.push(Slot {
                generation: id.generation,
                flow: None,
            });
        }
        self.slots[id.slot as usize].flow = Some((key, flow));
        self.ids.insert(key, id);
        *self.by_peer.entry(key.peer).or_default() += 1;
        id
    }

    pub(crate) fn remove(&mut self, id: FlowId) -> Option<(Key, F)> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let (key, flow) = slot.flow.take()?;
        slot.generation = (slot.generation + 1) & GENERATIONS;
        self.free.push(id.slot);
        self.ids.remove(&key);
        match self.by_peer.get_mut(&key.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.by_peer.remove(&key.peer);
            }
        }
        Some((key, flow))
    }

    /// All flows of a peer.
    pub(crate) fn of_peer(&self, peer: PeerId) -> Vec<FlowId> {
        self.iter()
            .filter(|(_, key, _)| key.peer == peer)
            .map(|(id, _, _)| id)
            .collect()
    }

    /// All flows, or those of one peer, each with its peer.
    pub(crate) fn of(&self, peer: Option<PeerId>) -> Vec<(FlowId, PeerId)> {
        self.iter()
            .map(|(id, key, _)| (id, key.peer))
            .filter(|(_, of)| peer.is_none_or(|peer| peer == *of))
            .collect()
    }

    /// All flows, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowId, &Key, &F)> {
        self.slots.iter().zip(0..).filter_map(|(slot, number)| {
            let (key, flow) = slot.flow.as_ref()?;
            let id = FlowId {
                slot: number,
                generation: slot.generation,
            };
            Some((id, key, flow))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> Key {
        Key {
            peer: 1,
            source: SocketAddr::from(([10, 0, 0, 1], port)),
            destination: SocketAddr::from(([10, 0, 0, 2], 80)),
        }
    }

    #[test]
    fn an_id_finds_only_the_flow_it_was_given_to() {
        let mut table = Table::new(Keyed::new(7));
        let first = table.insert(key(1), "first");
        assert_eq!(table.remove(first), Some((key(1), "first")));
        let second = table.insert(key(2), "second");
        assert_eq!(second.slot, first.slot, "the place is used again");
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.find(&key(1)), None);
        assert_eq!((table.len_of(1), table.len_of(2)), (1, 0));
        assert_eq!(table.get_mut(second), Some(&mut "second"));
        table.remove(second);
        assert!(table.by_peer.is_empty());
    }

    #[test]
    fn tokens_keep_protocol_and_id() {
        let id = FlowId {
            slot: u32::MAX,
            generation: GENERATIONS,
        };
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let token = id.token(protocol);
            assert_eq!(token >> 63, 1);
            assert_eq!(FlowId::from_token(token), Some((protocol, id)));
        }
        assert_eq!(FlowId::from_token(5), None);
    }

    #[test]
    fn generations_wrap() {
        let mut table = Table::new(Keyed::new(7));
        let id = table.insert(key(1), ());
        table.remove(id);
        table.slots[0].generation = GENERATIONS;
        let last = table.insert(key(1), ());
        table.remove(last);
        assert_eq!(table.insert(key(1), ()).generation, 0);
    }
}
