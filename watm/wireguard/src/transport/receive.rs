//! The receive path: from the socket to the peer, and from there to the network stack.

use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::{HandshakeInit, Packet, Tunn};
use watm_core::{Datagram, DatagramBatch, Ecn, Host, Level};
use watm_netem::Direction;
use watm_netstack::PeerId;

use super::mail::Moved;
use super::sink::{Arrival, Sink};
use super::{LARGEST, RECEIVE_BYTES, RECEIVE_DATAGRAMS, RECEIVE_ROUNDS, TARGET, WireGuard};
use crate::admission::{COOKIE_REPLY, Verdict};
use crate::ahead::Decrypted;
use crate::counters::Counter;
use crate::generations::{Key, Message as Letter};
use crate::key;
use crate::outgoing::Endpoint;
use crate::peer::{Arrived, Handshake, Io, Message};

impl WireGuard {
    pub(super) fn receive(&mut self, host: &mut dyn Host) {
        for _ in 0..RECEIVE_ROUNDS {
            if !self.readable {
                return;
            }
            let Ok(batch) = self.out.socket().receive(RECEIVE_DATAGRAMS, RECEIVE_BYTES) else {
                self.counters.count(Counter::SocketError);
                self.readable = false;
                return;
            };
            self.readable = batch.datagrams.len() == RECEIVE_DATAGRAMS as usize
                || batch.payload.len() + LARGEST > RECEIVE_BYTES as usize;
            let decrypted = Decrypted::of(&batch, |index| {
                let id = self.peers.id_of_index(index)?;
                self.peers.get(id)?.opener(index)
            });
            for (number, (entry, datagram)) in batch.iter().enumerate() {
                let from = Endpoint {
                    remote: entry.remote,
                    local: entry.local,
                };
                self.counters.count(Counter::DatagramsReceived);
                self.counters
                    .add(Counter::BytesReceived, datagram.len() as u64);
                if let Some((id, message)) = self.recipient(datagram, from, host) {
                    let arrived = Arrived {
                        marked: entry.ecn == Ecn::Ce,
                        ahead: decrypted.get(number),
                        ..Arrived::alone(message, datagram, from)
                    };
                    self.deliver(id, arrived, host);
                }
            }
        }
    }

    /// Receives the initiations that other workers have admitted for peers of this one.
    pub(super) fn receive_passed(&mut self, host: &mut dyn Host) {
        if !self.passed {
            return;
        }
        let batch = self.out.socket().passed(RECEIVE_DATAGRAMS, RECEIVE_BYTES);
        self.passed = batch.datagrams.len() == RECEIVE_DATAGRAMS as usize;
        for (entry, datagram) in batch.iter() {
            let from = Endpoint {
                remote: entry.remote,
                local: entry.local,
            };
            let Ok(Packet::HandshakeInit(initiation)) = Tunn::parse_incoming_packet(datagram)
            else {
                self.counters.count(Counter::NotWireGuard);
                continue;
            };
            if !self.admission.admits_passed() {
                self.counters.count(Counter::HandshakeLimit);
                continue;
            }
            let Some(key) = self.initiator(&initiation) else {
                continue;
            };
            match self.peers.by_key(&key) {
                Some((id, _)) => {
                    let arrived = Arrived::alone(Message::Initiation, datagram, from);
                    self.deliver(id, arrived, host);
                }
                // A reload has reached the other worker at another time.
                None => self.counters.count(Counter::UnknownPeer),
            }
        }
    }

    /// Finds the peer of a datagram. Other datagrams are counted, or answered with a cookie.
    fn recipient(
        &mut self,
        datagram: &[u8],
        from: Endpoint,
        host: &mut dyn Host,
    ) -> Option<(PeerId, Message)> {
        let (index, message) = match Tunn::parse_incoming_packet(datagram) {
            Ok(Packet::HandshakeInit(initiation)) => {
                let id = self.recipient_of_initiation(&initiation, datagram, from, host)?;
                return Some((id, Message::Initiation));
            }
            Ok(Packet::HandshakeResponse(response)) => (response.receiver_idx, Message::Response),
            Ok(Packet::PacketCookieReply(cookie)) => (cookie.receiver_idx, Message::Cookie),
            Ok(Packet::PacketData(data)) => (data.receiver_idx, Message::Data(data.receiver_idx)),
            Err(_) => {
                self.counters.count(Counter::NotWireGuard);
                if host.log_enabled(Level::Debug) {
                    let text = format!("Received invalid WireGuard packet from {}", from.remote);
                    host.log(Level::Debug, TARGET, &text);
                }
                return None;
            }
        };
        let Some(id) = self.peers.id_of_index(index) else {
            match (self.generations.of_index(index), message) {
                (Some(other), Message::Data(_)) => {
                    let letter = Letter::Outer { from, datagram };
                    self.generations.tell(other, &letter, &mut self.counters);
                }
                _ => self.counters.count(Counter::NoSession),
            }
            return None;
        };
        if message == Message::Response && !self.admit(datagram, from, host) {
            return None;
        }
        Some((id, message))
    }

    /// The key of the peer that sent a handshake initiation, which takes a key exchange.
    fn initiator(&mut self, initiation: &HandshakeInit<'_>) -> Option<Key> {
        let (private_key, public_key) = (&self.config.private_key, &self.config.public_key);
        match parse_handshake_anon(private_key, public_key, initiation) {
            Ok(half) => Some(half.peer_static_public),
            Err(_) => {
                self.counters.count(Counter::NotAuthentic);
                None
            }
        }
    }

    /// Finds the peer that sent a handshake initiation. If another worker has the peer, the datagram
    /// goes there.
    fn recipient_of_initiation(
        &mut self,
        initiation: &HandshakeInit<'_>,
        datagram: &[u8],
        from: Endpoint,
        host: &mut dyn Host,
    ) -> Option<PeerId> {
        if !self.admit(datagram, from, host) {
            return None;
        }
        let key = self.initiator(initiation)?;
        if let Some(home) = self.peers.home_elsewhere(&key) {
            self.pass(home, datagram, from);
            return None;
        }
        let id = self.peers.by_key(&key).map(|(id, _)| id);
        if id.is_none() {
            self.counters.count(Counter::UnknownPeer);
            if host.log_enabled(Level::Debug) {
                let text = format!(
                    "handshake from {} with the unknown public key {}",
                    from.remote,
                    key::encode(&key)
                );
                host.log(Level::Debug, TARGET, &text);
            }
        }
        id
    }

    /// Passes a datagram to another worker.
    fn pass(&mut self, worker: u32, datagram: &[u8], from: Endpoint) {
        let batch = DatagramBatch {
            payload: datagram.to_vec(),
            datagrams: vec![Datagram {
                len: datagram.len() as u32,
                segment_size: None,
                remote: from.remote,
                local: from.local,
                ecn: Ecn::NotEct,
            }],
        };
        match self.out.socket().pass(worker, &batch) {
            Ok(()) => self.counters.count(Counter::Passed),
            Err(_) => self.counters.count(Counter::SocketError),
        }
    }

    /// Returns true if a handshake message may cost key exchanges. Sends a cookie reply if the
    /// sender must prove its address first.
    fn admit(&mut self, datagram: &[u8], from: Endpoint, host: &mut dyn Host) -> bool {
        let mut reply = [0; COOKIE_REPLY];
        match self
            .admission
            .judge(datagram, from.remote, host.now(), &mut reply)
        {
            Verdict::Answer => return true,
            Verdict::Prove(reply) => {
                self.out.push(reply, from, &mut self.counters);
                self.counters.count(Counter::CookiesSent);
            }
            Verdict::InvalidMac => {
                self.counters.count(Counter::InvalidMac);
                if host.log_enabled(Level::Debug) {
                    let text = format!(
                        "handshake from {} that is not for our public key",
                        from.remote
                    );
                    host.log(Level::Debug, TARGET, &text);
                }
            }
            Verdict::Malformed => self.counters.count(Counter::NotWireGuard),
            Verdict::TooMany => self.counters.count(Counter::HandshakeLimit),
        }
        false
    }

    /// Pass a datagram to its peer, and its inner packet to the network stack.
    pub(super) fn deliver(&mut self, id: PeerId, arrived: Arrived<'_>, host: &mut dyn Host) {
        let Arrived { message, from, .. } = arrived;
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let now = host.now();
        let begins = self.generations.is_serving() || self.streams.is_some();
        let mut io = Io {
            out: &mut self.out,
            counters: &mut self.counters,
            now,
            next_tick: &mut self.next_tick,
            begins,
            tries: super::tries(&self.config),
            capture: self.capture.as_deref(),
        };
        let received = peer.receive(arrived, self.address, &mut self.buffer, &mut io);
        let moved = Moved {
            news: received.news,
            handshake: received.handshake.is_some(),
            packet: matches!(message, Message::Data(_)),
        };
        self.generations.tell_of(peer, moved, now, io.counters);
        let origin = peer.origin();
        match received.handshake {
            Some(Handshake::First) if host.log_enabled(Level::Info) => {
                let text = match message {
                    // The peer was called from here.
                    Message::Response => {
                        format!(
                            "handshake with peer {} at {} completed",
                            origin.name, from.remote
                        )
                    }
                    _ => format!("peer {} connected from {}", origin.name, from.remote),
                };
                host.log(Level::Info, TARGET, &text);
            }
            Some(Handshake::Another) if host.log_enabled(Level::Debug) => {
                let text = format!("peer {} has new session keys", origin.name);
                host.log(Level::Debug, TARGET, &text);
            }
            _ => {}
        }
        let Some((packet, source)) = received.packet else {
            return;
        };
        let origin = origin.clone();
        if self.peers.owns(id, source) {
            let way = Direction::FromPeer;
            if !self.network.is_idle() && self.network.take(way, (id, &origin.name), packet, now.0)
            {
                return;
            }
            let mut sink = Sink {
                peers: &mut self.peers,
                generations: &mut self.generations,
                streams: self.streams.as_ref(),
                network: &mut self.network,
                io,
                arrival: Arrival::Session,
            };
            self.netstack
                .handle_packet(&origin, packet, host, &mut sink);
        } else {
            io.counters.count(Counter::SourceNotAllowed);
        }
    }
}
