//! The change from one generation to another. See `generations` for the rules.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use watm_core::{Host, Instant, Level};
use watm_netstack::{FlowKey, PeerId};

use super::{TARGET, WireGuard};
use crate::generations::{FlowRecord, Key, Message, Note, Role, SESSIONS_KEPT, Snapshot};

/// Handshakes begun in one call: about twenty milliseconds' work.
const CALL_HANDSHAKES: usize = 32;

/// The interval of the timers of a generation that drains.
const TICK: Duration = Duration::from_secs(1);

/// The inheritance of a serving generation.
#[derive(Default)]
pub struct Inheritance {
    /// Peers of the predecessor that the configuration lacks, to be reported on taking over.
    removed: Vec<Key>,
    /// Peers with which a handshake must begin.
    begin: VecDeque<PeerId>,
    /// The flows in the last snapshot.
    told: Vec<FlowKey>,
    /// Flows opened between that snapshot and the end of service.
    late: Vec<FlowKey>,
}

impl Inheritance {
    /// Begin handshakes with these peers too, in turn.
    pub fn begin(&mut self, ids: Vec<PeerId>) {
        let known: BTreeSet<_> = self.begin.iter().copied().collect();
        self.begin
            .extend(ids.into_iter().filter(|id| !known.contains(id)));
    }
}

impl WireGuard {
    /// Take over the content of a snapshot.
    pub(super) fn inherit(&mut self, snapshot: &Snapshot, now: Instant) {
        let same_key = snapshot.public_key == self.config.public_key.to_bytes();
        let mut ids = Vec::with_capacity(snapshot.peers.len());
        for record in &snapshot.peers {
            let found = self.peers.by_key_mut(&record.key);
            let Some((id, peer)) = found else {
                self.inheritance.removed.push(record.key);
                ids.push(None);
                continue;
            };
            let same = same_key && peer.preshared_tag() == record.preshared_tag;
            if same_key {
                peer.inherit(record, same, self.address, now);
            }
            if !same {
                self.inheritance.removed.push(record.key);
            } else if record.live {
                self.inheritance.begin.push_back(id);
            }
            ids.push(same.then_some(id));
        }
        for flow in &snapshot.flows {
            if let Some(Some(peer)) = ids.get(flow.peer as usize) {
                let key = FlowKey {
                    protocol: flow.protocol,
                    peer: *peer,
                    source: flow.source,
                    destination: flow.destination,
                };
                self.netstack.put_elsewhere(key, flow.holder);
            }
        }
    }

    /// The snapshot for the next generation.
    pub(super) fn take_snapshot(&mut self, now: Instant) -> Vec<u8> {
        let own = self.generations.own();
        let told: Vec<FlowKey> = self.netstack.known().collect();
        let flows = told.iter().map(|flow| (*flow, own));
        let flows: Vec<_> = flows.chain(self.netstack.elsewhere()).collect();
        let mut places: BTreeMap<PeerId, u32> =
            flows.iter().map(|(flow, _)| (flow.peer, 0)).collect();
        let mut peers = Vec::new();
        for (id, peer) in self.peers.iter_mut() {
            let place = places.get_mut(&id);
            if place.is_none() && peer.is_unheard() {
                continue;
            }
            if let Some(place) = place {
                *place = peers.len() as u32;
            }
            peers.push(peer.record(own, now));
        }
        let record = |(flow, holder): (FlowKey, u32)| {
            Some(FlowRecord {
                protocol: flow.protocol,
                peer: *places.get(&flow.peer)?,
                source: flow.source,
                destination: flow.destination,
                holder,
            })
        };
        let snapshot = Snapshot {
            generation: own,
            public_key: self.config.public_key.to_bytes(),
            ahead: self.dates.ahead(),
            others: self.generations.older().iter().copied().collect(),
            flows: flows.into_iter().filter_map(record).collect(),
            peers,
        };
        self.inheritance.told = told;
        self.inheritance.told.sort_unstable();
        snapshot.write()
    }

    /// Serve from now on.
    pub(super) fn take_over(&mut self, host: &mut dyn Host) {
        let now = host.now();
        if let Role::Draining { .. } = self.generations.role() {
            // Read the last messages of the failed generation first.
            if let Some(post) = self.generations.post() {
                post.ready();
            }
            self.read_mail(host);
        }
        let before = self.generations.serve(now);
        if before == Role::Serving {
            return;
        }
        self.readable = true;
        self.passed = self.has_others;
        self.next_tick = Some(now);
        self.netstack.set_accepting(true);
        if let Some(streams) = &self.streams {
            streams.set_accepting(true);
            // A peer over streams is not connected to this generation yet, or is so already.
            self.inheritance.begin.clear();
        }
        for key in std::mem::take(&mut self.inheritance.removed) {
            self.tell_older(&Message::Note(Note::Removed, key));
        }
        if let Role::Draining { .. } = before {
            self.dates.go_on();
            if host.log_enabled(Level::Warn) {
                host.log(Level::Warn, TARGET, "serving again after a rollback");
            }
            for (id, peer) in self.peers.iter_mut() {
                if peer.is_taken_over() {
                    peer.release();
                } else if !peer.is_live() {
                    continue;
                }
                if self.streams.is_none() {
                    self.inheritance.begin.push_back(id);
                }
            }
        }
        self.send_mail();
    }

    /// Stop serving: `serving` serves from now on.
    pub(super) fn retire(&mut self, serving: u32, host: &mut dyn Host) {
        let now = host.now();
        let before = self.generations.retire(serving, now);
        self.tell(serving, &Message::Present);
        self.netstack.set_accepting(false);
        self.inheritance.begin.clear();
        self.next_tick = Some(now);
        self.tick_from = None;
        self.passed = false;
        match &self.streams {
            Some(streams) => streams.set_accepting(false),
            None => self.readable = false,
        }
        let served = before == Role::Serving;
        if served {
            let told = std::mem::take(&mut self.inheritance.told);
            let flows = self.netstack.known();
            let late = flows.filter(|flow| told.binary_search(flow).is_err());
            self.inheritance.late = late.collect();
        }
        self.tell_since(serving, served);
        if !self.peers.iter().any(|(_, peer)| peer.is_live()) {
            self.tell(serving, &Message::Released);
        }
        self.send_mail();
    }

    /// Report everything since the snapshot. It may have been reported to another generation
    /// before, which served and failed; the one that serves now knows only the same snapshot. Only
    /// a generation that has just `served` knows the peers' endpoints.
    fn tell_since(&mut self, serving: u32, served: bool) {
        for (_, peer) in self.peers.iter_mut() {
            if !peer.has_changed() {
                continue;
            }
            let (endpoint, initiation) = peer.whereabouts();
            let message = Message::Peer {
                key: peer.key(),
                endpoint: endpoint.filter(|_| served),
                initiation,
            };
            self.generations.tell(serving, &message, &mut self.counters);
            if peer.has_session() && !peer.is_taken_over() {
                let note = Message::Note(Note::Holding, peer.key());
                self.generations.tell(serving, &note, &mut self.counters);
            }
        }
        for flow in &self.inheritance.late {
            if let Some(peer) = self.peers.get_mut(flow.peer) {
                let message = Message::Flow {
                    key: peer.key(),
                    protocol: flow.protocol,
                    source: flow.source,
                    destination: flow.destination,
                };
                self.generations.tell(serving, &message, &mut self.counters);
            }
        }
    }

    /// Begin some of the handshakes that move sessions.
    pub(super) fn begin_handshakes(&mut self, now: Instant) {
        for _ in 0..CALL_HANDSHAKES {
            let Some(id) = self.inheritance.begin.pop_front() else {
                return;
            };
            let (_, sink) = &mut self.netstack_and_sink(now);
            if let Some(peer) = sink.peers.get_mut(id) {
                peer.begin(&mut sink.io);
            }
        }
    }

    /// Returns true if some are left.
    pub(super) fn has_handshakes(&self) -> bool {
        !self.inheritance.begin.is_empty()
    }

    /// Do the due work while another generation serves.
    pub(super) fn drain(&mut self, since: Instant, now: Instant) {
        let until = since + SESSIONS_KEPT;
        let before = self.peers.iter().any(|(_, peer)| peer.is_live());
        let (_, sink) = &mut self.netstack_and_sink(now);
        let streams = sink.streams;
        for (_, peer) in sink.peers.iter_mut().filter(|(_, peer)| peer.is_live()) {
            let connected = streams
                .zip(peer.endpoint())
                .is_some_and(|(streams, remote)| streams.is_connected(remote));
            if connected && !peer.is_taken_over() {
                peer.tick(&mut sink.io);
            } else {
                peer.drain(until, &mut sink.io);
            }
        }
        let after = self.peers.iter().any(|(_, peer)| peer.is_live());
        self.next_tick = after.then(|| now + TICK);
        if before && !after {
            let serving = self.generations.serving();
            self.tell(serving, &Message::Released);
        }
    }

    /// Returns true if nothing is left to do here.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.generations.role(), Role::Draining { .. })
            && self.netstack.is_idle()
            && self.network.deadline().is_none()
            && !self.generations.has_unsent()
            && self.out.is_empty()
            && !self.peers.iter().any(|(_, peer)| peer.is_live())
    }

    /// Report removed peers to older generations.
    pub(super) fn tell_removed(&mut self, ids: &[PeerId]) {
        if self.generations.older().is_empty() {
            return;
        }
        for &id in ids {
            if let Some(key) = self.peers.get_mut(id).map(|peer| peer.key()) {
                self.tell_older(&Message::Note(Note::Removed, key));
            }
        }
    }

    pub(super) fn tell(&mut self, to: u32, message: &Message<'_>) {
        self.generations.tell(to, message, &mut self.counters);
    }

    fn tell_older(&mut self, message: &Message<'_>) {
        let older: Vec<u32> = self.generations.older().iter().copied().collect();
        for generation in older {
            self.tell(generation, message);
        }
    }
}
