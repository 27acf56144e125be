//! The exchange of messages between generations, as this one reads and writes them. Used by
//! `receive`.

use std::net::IpAddr;

use boringtun::noise::{Packet, Tunn};
use watm_core::{Host, Instant};
use watm_netstack::{FlowKey, PacketSink};

use super::WireGuard;
use super::sink::Arrival;
use crate::counters::{Counter, Counters};
use crate::generations::{Errand, Generations, Key, Message, Note};
use crate::outgoing::Endpoint;
use crate::peer::{Arrived, Message as Datagram, Peer};

/// Batches of mail in one call.
const MAIL_ROUNDS: usize = 4;

impl WireGuard {
    /// Read the messages of other generations.
    pub(super) fn read_mail(&mut self, host: &mut dyn Host) {
        for _ in 0..MAIL_ROUNDS {
            if !self.generations.has_mail() {
                return;
            }
            let Some(post) = self.generations.post() else {
                return;
            };
            let mail = post.receive();
            for (from, bytes) in mail.messages.iter() {
                match Message::parse(bytes) {
                    Some(message) => self.read(from, message, host),
                    None => self.counters.count(Counter::MailStrange),
                }
            }
            for generation in mail.ended {
                self.forget(generation);
            }
        }
    }

    /// Forget older generations that ended before they could be heard.
    pub(super) fn forget_silent(&mut self, now: Instant) {
        for generation in self.generations.silent(now) {
            self.forget(generation);
        }
    }

    /// Send the messages gathered for other generations.
    pub(super) fn send_mail(&mut self) {
        if let Some(post) = self.generations.post() {
            post.flush(&mut self.counters);
        }
    }

    fn read(&mut self, from: u32, message: Message<'_>, host: &mut dyn Host) {
        match message {
            Message::Outer { from, datagram } => self.read_outer(from, datagram, host),
            Message::Packet(errand, key, packet) => {
                self.read_packet(from, errand, &key, packet, host);
            }
            Message::Note(note, key) => self.read_note(from, note, &key, host),
            Message::Peer {
                key,
                endpoint,
                initiation,
            } => {
                let Some((_, peer)) = self.peers.by_key_mut(&key) else {
                    return self.counters.count(Counter::MailStrange);
                };
                if let Some(initiation) = initiation {
                    peer.inherit_initiation(&initiation, Some(from));
                    peer.set_changed();
                }
                if let Some(endpoint) = endpoint
                    && (!self.generations.is_serving() || !peer.has_session())
                {
                    peer.is_at(endpoint, self.address);
                }
            }
            Message::Flow {
                key,
                protocol,
                source,
                destination,
            } => {
                let Some((peer, _)) = self.peers.by_key(&key) else {
                    return self.counters.count(Counter::MailStrange);
                };
                let flow = FlowKey {
                    protocol,
                    peer,
                    source,
                    destination,
                };
                self.generations.heard(from);
                self.netstack.put_elsewhere(flow, from);
            }
            Message::Present => self.generations.heard(from),
            Message::Released => self.forget_sessions(from),
        }
    }

    /// Handle a datagram of a session here. Handshakes are not forwarded.
    fn read_outer(&mut self, from: Endpoint, datagram: &[u8], host: &mut dyn Host) {
        let index = match Tunn::parse_incoming_packet(datagram) {
            Ok(Packet::PacketData(data)) => data.receiver_idx,
            _ => return self.counters.count(Counter::MailStrange),
        };
        match self.peers.id_of_index(index) {
            Some(id) => {
                let arrived = Arrived::alone(Datagram::Data(index), datagram, from);
                self.deliver(id, arrived, host);
            }
            None => self.counters.count(Counter::NoSession),
        }
    }

    fn read_packet(
        &mut self,
        from: u32,
        errand: Errand,
        key: &Key,
        packet: &[u8],
        host: &mut dyn Host,
    ) {
        let Some((id, peer)) = self.peers.by_key_mut(key) else {
            return self.counters.count(Counter::MailStrange);
        };
        let now = host.now();
        let arrival = match errand {
            Errand::Send if self.generations.is_serving() => {
                let (_, mut sink) = self.netstack_and_sink(now);
                return sink.send(id, packet);
            }
            Errand::Send => {
                // The sender has just stopped serving.
                let message = Message::Packet(Errand::Send, *key, packet);
                let serving = self.generations.serving();
                return self.tell(serving, &message);
            }
            Errand::Encrypt => {
                let (_, sink) = &mut self.netstack_and_sink(now);
                if let Some(peer) = sink.peers.get_mut(id) {
                    peer.encrypt(packet, &mut sink.io);
                }
                return;
            }
            Errand::Arrived => {
                peer.received_elsewhere(packet.len());
                Arrival::SessionOf(from)
            }
            Errand::Returned => Arrival::Returned,
            Errand::Inner if self.generations.is_serving() => Arrival::SessionOf(from),
            Errand::Inner => Arrival::Handed,
        };
        let origin = peer.origin().clone();
        if !source_address(packet).is_some_and(|source| self.peers.owns(id, source)) {
            return self.counters.count(Counter::SourceNotAllowed);
        }
        let (netstack, mut sink) = self.netstack_and_sink(now);
        sink.arrival = arrival;
        netstack.handle_packet(&origin, packet, host, &mut sink);
    }

    fn read_note(&mut self, from: u32, note: Note, key: &Key, host: &mut dyn Host) {
        let Some((id, peer)) = self.peers.by_key_mut(key) else {
            return self.counters.count(Counter::MailStrange);
        };
        let serves = self.generations.is_serving();
        match note {
            Note::TakenOver if !serves => peer.taken_over(host.now()),
            Note::Removed if !serves => {
                peer.release();
                let (netstack, mut sink) = self.netstack_and_sink(host.now());
                netstack.remove_peer(id, host, &mut sink);
                sink.network.forget(id);
            }
            Note::Unconfirmed if serves => {
                let (_, sink) = &mut self.netstack_and_sink(host.now());
                if let Some(peer) = sink.peers.get_mut(id) {
                    peer.confirm(&mut sink.io);
                }
            }
            Note::Holding if serves && !peer.has_session() => {
                self.generations.heard(from);
                peer.set_holder(Some(from));
            }
            // The note is from before or after a change of the serving generation.
            _ => self.counters.count(Counter::MailStrange),
        }
    }

    /// Forget a generation that is gone.
    fn forget(&mut self, generation: u32) {
        if self.generations.ended(generation) {
            self.netstack.forget_elsewhere(generation);
            self.forget_sessions(generation);
        }
    }

    /// Forget the sessions of a generation that has none any more.
    fn forget_sessions(&mut self, generation: u32) {
        for (_, peer) in self.peers.iter_mut() {
            if peer.holder() == Some(generation) {
                peer.set_holder(None);
            }
        }
    }
}

/// The results of a datagram that other generations should know.
pub(super) struct Moved {
    /// True if the peer's endpoint has changed, or it has begun a session.
    pub news: bool,
    /// True if a session was completed here.
    pub handshake: bool,
    /// True if it was a packet of a session.
    pub packet: bool,
}

impl Generations {
    /// Report the results to the other generations.
    pub(super) fn tell_of(
        &mut self,
        peer: &mut Peer,
        moved: Moved,
        now: Instant,
        counters: &mut Counters,
    ) {
        if moved.handshake
            && let Some(holder) = peer.set_holder(None)
        {
            let note = Message::Note(Note::TakenOver, peer.key());
            self.tell(holder, &note, counters);
        }
        let draining = !self.is_serving();
        let reader = match draining {
            true => Some(self.serving()),
            false => self.predecessor(),
        };
        let Some(reader) = reader else {
            return;
        };
        if moved.news {
            self.tell(reader, &about(peer), counters);
        }
        if draining && moved.handshake {
            let note = Message::Note(Note::Holding, peer.key());
            self.tell(reader, &note, counters);
        } else if draining && moved.packet && peer.is_unconfirmed(now) {
            let note = Message::Note(Note::Unconfirmed, peer.key());
            self.tell(reader, &note, counters);
        }
    }
}

/// The message with a peer's endpoint and its last accepted initiation.
fn about(peer: &Peer) -> Message<'static> {
    let (endpoint, initiation) = peer.whereabouts();
    Message::Peer {
        key: peer.key(),
        endpoint,
        initiation,
    }
}

/// The source address of an IP packet.
pub(super) fn source_address(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(*packet.get(12..)?.first_chunk::<4>()?)),
        6 => Some(IpAddr::from(*packet.get(8..)?.first_chunk::<16>()?)),
        _ => None,
    }
}
