//! The state of a peer that concerns several generations of the server. See `generations`.

use std::net::SocketAddr;
use std::time::Duration;

use boringtun::noise::TunnResult;
use watm_core::Instant;

use super::{Identity, Io, OVERHEAD, Peer, Sent, underlay};
use crate::counters::Counter;
use crate::floor::Initiation;
use crate::generations::{Key, PeerRecord};
use crate::outgoing::Endpoint;

/// The time for which a session is kept after another generation has taken it over, for datagrams
/// on their way.
const GRACE: Duration = Duration::from_secs(5);

/// The time in which the peer must see the new session confirmed, and the interval of repeating the
/// confirmation.
const UNCONFIRMED: Duration = Duration::from_secs(1);

/// The part of a peer's state that only concerns other generations.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// The other generation that has the newest session.
    holder: Option<u32>,
    /// The time when another generation took over the session here.
    taken_over: Option<Instant>,
    /// The time when the peer was last seen to use the session here since.
    unconfirmed: Option<Instant>,
    /// True if something has changed since the last snapshot.
    changed: bool,
}

impl Handover {
    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    pub(super) fn is_taken_over(&self) -> bool {
        self.taken_over.is_some()
    }

    /// Record a new session here.
    pub(super) fn renewed(&mut self) {
        self.taken_over = None;
        self.unconfirmed = None;
    }
}

impl Peer {
    /// Continue the state of an older generation. With other keys, only the accepted initiations
    /// and the counts stay valid.
    pub fn inherit(
        &mut self,
        record: &PeerRecord,
        same_keys: bool,
        server: SocketAddr,
        now: Instant,
    ) {
        for initiation in &record.initiations {
            self.inherit_initiation(initiation, None);
        }
        self.received_bytes = record.received_bytes;
        self.sent_bytes = record.sent_bytes;
        if !same_keys {
            return;
        }
        let age = record.last_handshake;
        self.last_handshake = age.map(|age| Instant(now.0.saturating_sub(age.as_nanos() as u64)));
        self.handover.holder = record.holder;
        if let Some(endpoint) = record.endpoint {
            self.endpoint = Some(endpoint);
            self.origin.underlay = Some(underlay(endpoint, server));
        }
    }

    /// Record an initiation that another generation has accepted.
    pub fn inherit_initiation(&mut self, initiation: &Initiation, from: Option<u32>) {
        let identity = &self.tunnel.identity;
        let key = &self.config.public_key;
        self.floor
            .inherit(*initiation, from, |message| identity.time(key, message));
    }

    /// The record for the next generation.
    pub fn record(&mut self, own: u32, now: Instant) -> PeerRecord {
        self.handover.changed = false;
        let holder = match self.handover.holder {
            _ if self.has_session() => Some(own),
            None if self.offered.is_some() => Some(own),
            other => other,
        };
        PeerRecord {
            key: self.key(),
            preshared_tag: self.preshared_tag(),
            live: self.live || holder.is_some(),
            endpoint: self.endpoint,
            holder,
            initiations: self.floor.initiations(),
            received_bytes: self.received_bytes,
            sent_bytes: self.sent_bytes,
            last_handshake: self.last_handshake.map(|then| now - then),
        }
    }

    /// The tag that distinguishes its preshared key from others.
    pub fn preshared_tag(&self) -> [u8; 16] {
        self.tunnel.identity.preshared_tag(&self.config)
    }

    /// Its identity in all generations.
    pub fn key(&self) -> Key {
        self.config.public_key.to_bytes()
    }

    /// Count the bytes of a packet from the peer to another generation.
    pub fn received_elsewhere(&mut self, bytes: usize) {
        self.received_bytes += bytes as u64;
    }

    /// Count the bytes of a packet to the peer from another generation.
    pub fn sent_elsewhere(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }

    /// Returns true if a record would contain nothing beyond the configuration.
    pub fn is_unheard(&self) -> bool {
        !self.live
            && self.origin.underlay.is_none()
            && self.handover.holder.is_none()
            && self.received_bytes == 0
            && self.sent_bytes == 0
            && self.floor.initiations().is_empty()
    }

    /// Returns true if the last record is out of date.
    pub fn has_changed(&self) -> bool {
        self.handover.changed
    }

    /// Mark the last record as out of date.
    pub fn set_changed(&mut self) {
        self.handover.changed();
    }

    /// Its endpoint, and its last accepted initiation.
    pub fn whereabouts(&self) -> (Option<Endpoint>, Option<Initiation>) {
        (self.endpoint, self.floor.initiations().pop())
    }

    /// Set the endpoint that another generation reports.
    pub fn is_at(&mut self, endpoint: Endpoint, server: SocketAddr) {
        self.endpoint = Some(endpoint);
        self.origin.underlay = Some(underlay(endpoint, server));
    }

    /// The other generation with the newest session of the peer.
    pub fn holder(&self) -> Option<u32> {
        self.handover.holder
    }

    /// Set that generation, or `None` for this one or no generation. Returns the value before.
    pub fn set_holder(&mut self, holder: Option<u32>) -> Option<u32> {
        std::mem::replace(&mut self.handover.holder, holder)
    }

    /// Returns true if packets can be sent at once.
    pub fn has_session(&self) -> bool {
        let tunn = self.tunnel.tunn.as_ref();
        tunn.is_some_and(|tunn| tunn.time_since_last_handshake().is_some())
    }

    /// Returns true if a tunnel has timers, sessions among them.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Establish a session here as soon as possible.
    pub fn begin(&mut self, io: &mut Io<'_>) {
        if self.tunnel.tunn.is_some() {
            self.catch_up(io);
        }
        self.initiate(io);
    }

    /// Record that another generation's session is now the newer one.
    pub fn taken_over(&mut self, now: Instant) {
        self.handover.taken_over = Some(now);
        self.handover.unconfirmed = Some(now);
    }

    /// Returns true if another generation took over.
    pub fn is_taken_over(&self) -> bool {
        self.handover.is_taken_over()
    }

    /// Handle a packet in a session that was taken over. Returns true if the other generation must
    /// learn that the peer does not use its session yet.
    pub fn is_unconfirmed(&mut self, now: Instant) -> bool {
        let Some(last) = self.handover.unconfirmed else {
            return false;
        };
        let due = now - last >= UNCONFIRMED;
        if due {
            self.handover.taken_over = Some(now);
            self.handover.unconfirmed = Some(now);
        }
        due
    }

    /// Encrypt for another generation. Without a session the packet is lost.
    pub fn encrypt(&mut self, packet: &[u8], io: &mut Io<'_>) {
        self.catch_up(io);
        match (self.has_session(), self.endpoint) {
            (true, Some(endpoint)) => self.encapsulate(packet, endpoint, io),
            _ => io.counters.count(Counter::SessionGone),
        }
    }

    /// Send a keepalive, so that the peer sees the session confirmed.
    pub fn confirm(&mut self, io: &mut Io<'_>) {
        if self.has_session()
            && let Some(endpoint) = self.endpoint
        {
            self.encapsulate(&[], endpoint, io);
        }
    }

    /// Do the due work while another generation serves. `until` is the end of sessions that are not
    /// taken over.
    pub fn drain(&mut self, until: Instant, io: &mut Io<'_>) {
        // See `Attempt`.
        if self.attempt.is_none() {
            self.run_timers(io);
        }
        let over = self.handover.taken_over.map(|then| then + GRACE);
        if io.now >= over.map_or(until, |over| over.min(until)) {
            self.release();
        }
    }

    /// Forget all sessions.
    pub fn release(&mut self) {
        self.tunnel.tunn = None;
        self.floor.disown();
        self.live = false;
        self.offered = None;
        self.responder = false;
        self.attempt = None;
        self.session_since = None;
        self.handover.renewed();
    }

    /// Encrypt in the existing session.
    fn encapsulate(&mut self, packet: &[u8], endpoint: Endpoint, io: &mut Io<'_>) {
        let Some(tunn) = &mut self.tunnel.tunn else {
            return;
        };
        let size = (packet.len() + OVERHEAD).max(super::INITIATION);
        let Some(room) = io.out.room(size, io.counters) else {
            return;
        };
        if let TunnResult::WriteToNetwork(message) = tunn.encapsulate(packet, room) {
            let sent = Sent::of(message);
            self.commit(sent, endpoint, io);
        }
    }
}

impl Identity {
    /// A tag that distinguishes a preshared key, or none, from others, for those that have the
    /// server's key.
    fn preshared_tag(&self, config: &super::PeerConfig) -> [u8; 16] {
        use blake2::Blake2sMac;
        use blake2::digest::consts::U16;
        use blake2::digest::{FixedOutput, Mac};
        let mut mac = <Blake2sMac<U16> as Mac>::new_from_slice(self.private_key.as_bytes())
            .expect("32 bytes are a key");
        mac.update(b"watm preshared key");
        mac.update(config.preshared_key.as_ref().map_or(&[], |key| &key[..]));
        mac.finalize_fixed().into()
    }
}
