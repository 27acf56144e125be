//! The peers, and the assignment of datagrams and packets to them. Used by `sink` and `transport`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use watm_core::{Instant, PeerStatus};
use watm_netstack::PeerId;

use crate::config::Config;
use crate::generations::{Key, PEER_BITS};
use crate::home::Place;
use crate::peer::{Identity, Io, Peer, Silence};
use crate::routes::Routes;

/// The bits of a peer's number in an index. boringtun numbers a peer's sessions with the low eight
/// bits, which leaves the others for the peer.
const ID_BITS: u32 = 24;

/// The first number in `routes` of the peers of other workers. No index has it.
const ELSEWHERE: PeerId = 1 << ID_BITS;

/// The table of peers. See the module's documentation.
pub struct Peers {
    peers: BTreeMap<PeerId, Peer>,
    by_key: BTreeMap<[u8; 32], PeerId>,
    /// The peers in the order of the configuration.
    order: Vec<PeerId>,
    /// The peers whose home is another worker.
    elsewhere: BTreeSet<Key>,
    /// The owners of inner addresses, on all workers.
    routes: Routes,
    /// The next number. Numbers are assigned in turn, so that none is reused soon: a session of a
    /// removed peer must not reach another one.
    next_id: PeerId,
    tag: u32,
    place: Place,
}

impl Peers {
    /// Makes an empty table for a generation of this worker. The first peer's number comes from
    /// `seed`.
    pub fn new(place: Place, generation: u32, seed: u32) -> Self {
        let tag = place.tag(generation) << PEER_BITS;
        Peers {
            peers: BTreeMap::new(),
            by_key: BTreeMap::new(),
            order: Vec::new(),
            elsewhere: BTreeSet::new(),
            routes: Routes::new(),
            tag,
            place,
            next_id: tag | (seed % (1 << PEER_BITS)),
        }
    }

    /// Take over a configuration. Peers whose number is in `keep` continue unchanged. The others of
    /// the configuration whose home is here are new, and peers that are not in it are removed.
    pub fn reconfigure(
        &mut self,
        config: &Config,
        keep: &BTreeSet<PeerId>,
        identity: &Rc<Identity>,
    ) {
        let mut old = std::mem::take(&mut self.peers);
        let by_key = std::mem::take(&mut self.by_key);
        self.order.clear();
        self.elsewhere.clear();
        self.routes = Routes::new();
        for peer_config in &config.peers {
            let key = peer_config.public_key.to_bytes();
            if !self.place.is_home(&key) {
                // No peer here may use its addresses.
                let id = ELSEWHERE + self.elsewhere.len() as PeerId;
                self.routes.add(id, peer_config);
                self.elsewhere.insert(key);
                continue;
            }
            let kept = by_key
                .get(&key)
                .filter(|id| keep.contains(id))
                .and_then(|id| old.remove_entry(id));
            let (id, peer) = match kept {
                Some((id, mut peer)) => {
                    peer.reconfigure(peer_config.clone());
                    (id, peer)
                }
                None => {
                    let id = self.unused_id(&old);
                    let peer = Peer::new(id, Rc::clone(identity), peer_config.clone());
                    let before = by_key.get(&key).and_then(|id| old.get(id));
                    match before {
                        Some(old) => (id, peer.with_floor_of(old)),
                        None => (id, peer),
                    }
                }
            };
            self.routes.add(id, peer_config);
            self.peers.insert(id, peer);
            self.by_key.insert(key, id);
            self.order.push(id);
        }
    }

    /// Call all peers that were not called yet and can be.
    pub fn want_all(&mut self) {
        for peer in self.peers.values_mut() {
            peer.want();
        }
    }

    /// The peer whose session or handshake has this local index.
    pub fn id_of_index(&self, index: u32) -> Option<PeerId> {
        let id = index >> (u32::BITS - ID_BITS);
        self.peers.contains_key(&id).then_some(id)
    }

    /// The peer with this key, and its number.
    pub fn by_key(&self, key: &[u8; 32]) -> Option<(PeerId, &Peer)> {
        self.by_key
            .get(key)
            .and_then(|id| Some((*id, self.peers.get(id)?)))
    }

    /// The other worker that has the peer with this key.
    pub fn home_elsewhere(&self, key: &Key) -> Option<u32> {
        self.elsewhere.get(key).map(|key| self.place.home(key))
    }

    /// The peer with this number.
    pub fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(&id)
    }

    /// The peer with this number.
    pub fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(&id)
    }

    /// The peer with this key, and its number.
    pub fn by_key_mut(&mut self, key: &[u8; 32]) -> Option<(PeerId, &mut Peer)> {
        let id = *self.by_key.get(key)?;
        Some((id, self.peers.get_mut(&id)?))
    }

    /// All peers, by number.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (PeerId, &mut Peer)> {
        self.peers.iter_mut().map(|(&id, peer)| (id, peer))
    }

    /// All peers, by number.
    pub fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.peers.iter().map(|(&id, peer)| (id, peer))
    }

    /// The number of peers.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// The peer that owns this inner address.
    pub fn route(&self, address: IpAddr) -> Option<PeerId> {
        self.routes.find(address)
    }

    /// The peers at this outer address.
    pub fn at(&self, endpoint: SocketAddr) -> Vec<PeerId> {
        self.iter()
            .filter(|(_, peer)| peer.endpoint() == Some(endpoint))
            .map(|(id, _)| id)
            .collect()
    }

    /// Returns true if this inner address belongs to the peer with this number.
    pub fn owns(&self, id: PeerId, address: IpAddr) -> bool {
        self.peers.get(&id).is_some_and(Peer::may_use_any_address)
            || self.route(address) == Some(id)
    }

    /// Run the timers of at most `budget` peers, beginning at number `from`. Returns the number to
    /// continue with, or `None` if all had their turn. Adds those that do not answer to `silent`.
    pub fn tick(
        &mut self,
        from: PeerId,
        budget: usize,
        silent: &mut Vec<(PeerId, Silence)>,
        io: &mut Io<'_>,
    ) -> Option<PeerId> {
        let mut due = self
            .peers
            .range_mut(from..)
            .filter(|(_, peer)| peer.has_timers());
        for (&id, peer) in due.by_ref().take(budget) {
            // Check before another handshake goes to the same address.
            silent.extend(peer.take_silence(io.now).map(|silence| (id, silence)));
            peer.tick(io);
            if peer.has_timers() {
                io.wake();
            }
        }
        due.next().map(|(&id, _)| id)
    }

    /// The shortest round trip of all peers with a session. It is zero if a session is new: its
    /// path is not measured, and may be the shortest.
    pub fn least_round_trip(&self) -> Option<Duration> {
        self.peers.values().filter_map(Peer::least_round_trip).min()
    }

    /// The states of the peers, in the order of the configuration.
    pub fn status(&self, now: Instant) -> Vec<PeerStatus> {
        self.order
            .iter()
            .filter_map(|id| self.peers.get(id))
            .map(|peer| peer.status(now))
            .collect()
    }

    fn unused_id(&mut self, old: &BTreeMap<PeerId, Peer>) -> PeerId {
        loop {
            let id = self.next_id;
            self.next_id = self.tag | ((id + 1) % (1 << PEER_BITS));
            // The loop ends, because a configuration has at most half as many peers.
            if !self.peers.contains_key(&id) && !old.contains_key(&id) {
                return id;
            }
        }
    }
}
