//! What a peer is to more than one generation of the server. See `generations`.

use std::net::SocketAddr;
use std::time::Duration;

use boringtun::noise::TunnResult;
use watm_core::Instant;

use super::{Identity, Io, OVERHEAD, Peer, Sent, underlay};
use crate::counters::Counter;
use crate::floor::Initiation;
use crate::generations::{Key, PeerRecord};
use crate::outgoing::Endpoint;

/// How long a session is kept that another generation has taken over, for datagrams that are
/// under way.
const GRACE: Duration = Duration::from_secs(5);

/// How long the peer has for the confirmation of the new session to come, and how often it is
/// repeated if it did not.
const UNCONFIRMED: Duration = Duration::from_secs(1);

/// The part of a peer's state that is of use to other generations only.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// Another generation, which has the newest session.
    holder: Option<u32>,
    /// The session here is another's since then.
    taken_over: Option<Instant>,
    /// When the peer was last seen to use it still.
    unconfirmed: Option<Instant>,
    /// Something has changed since the last snapshot.
    changed: bool,
}

impl Handover {
    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    pub(super) fn is_taken_over(&self) -> bool {
        self.taken_over.is_some()
    }

    /// There is a new session here.
    pub(super) fn renewed(&mut self) {
        self.taken_over = None;
        self.unconfirmed = None;
    }
}

impl Peer {
    /// Go on where an older generation has come to. With other keys, only what was accepted
    /// and counted still holds.
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

    /// An initiation that another generation has accepted.
    pub fn inherit_initiation(&mut self, initiation: &Initiation, from: Option<u32>) {
        let identity = &self.tunnel.identity;
        let key = &self.config.public_key;
        self.floor
            .inherit(*initiation, from, |message| identity.time(key, message));
    }

    /// What the next generation has to know, if there is anything.
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

    /// What tells its preshared key from others.
    pub fn preshared_tag(&self) -> [u8; 16] {
        self.tunnel.identity.preshared_tag(&self.config)
    }

    /// Who it is to all generations.
    pub fn key(&self) -> Key {
        self.config.public_key.to_bytes()
    }

    /// A packet of so many bytes came from it to another generation.
    pub fn received_elsewhere(&mut self, bytes: usize) {
        self.received_bytes += bytes as u64;
    }

    /// A packet of so many bytes goes to it from another generation.
    pub fn sent_elsewhere(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
    }

    /// Whether a record would say nothing that a configuration does not.
    pub fn is_unheard(&self) -> bool {
        !self.live
            && self.origin.underlay.is_none()
            && self.handover.holder.is_none()
            && self.received_bytes == 0
            && self.sent_bytes == 0
            && self.floor.initiations().is_empty()
    }

    /// Whether the last record is not right any more.
    pub fn has_changed(&self) -> bool {
        self.handover.changed
    }

    /// Something has come that the last record does not say.
    pub fn set_changed(&mut self) {
        self.handover.changed();
    }

    /// Where it is, and what it was last accepted with.
    pub fn whereabouts(&self) -> (Option<Endpoint>, Option<Initiation>) {
        (self.endpoint, self.floor.initiations().pop())
    }

    /// Another generation knows where it is.
    pub fn is_at(&mut self, endpoint: Endpoint, server: SocketAddr) {
        self.endpoint = Some(endpoint);
        self.origin.underlay = Some(underlay(endpoint, server));
    }

    /// Who else has the newest session with it.
    pub fn holder(&self) -> Option<u32> {
        self.handover.holder
    }

    /// That is this one now, or nobody.
    pub fn set_holder(&mut self, holder: Option<u32>) -> Option<u32> {
        std::mem::replace(&mut self.handover.holder, holder)
    }

    /// Whether packets can be sent at once.
    pub fn has_session(&self) -> bool {
        let tunn = self.tunnel.tunn.as_ref();
        tunn.is_some_and(|tunn| tunn.time_since_last_handshake().is_some())
    }

    /// Whether there are timers of a tunnel, sessions among them.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Have it come to a session here as soon as possible.
    pub fn begin(&mut self, io: &mut Io<'_>) {
        if self.tunnel.tunn.is_some() {
            self.catch_up(io);
        }
        self.initiate(io);
    }

    /// Another generation's session is the newer one from now on.
    pub fn taken_over(&mut self, now: Instant) {
        self.handover.taken_over = Some(now);
        self.handover.unconfirmed = Some(now);
    }

    /// Whether that was said.
    pub fn is_taken_over(&self) -> bool {
        self.handover.is_taken_over()
    }

    /// A packet came in a session that is another's. Whether that one is to be told that the
    /// peer does not use its session yet.
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

    /// Encrypt for another generation; without a session the packet is lost.
    pub fn encrypt(&mut self, packet: &[u8], io: &mut Io<'_>) {
        self.catch_up(io);
        match (self.has_session(), self.endpoint) {
            (true, Some(endpoint)) => self.encapsulate(packet, endpoint, io),
            _ => io.counters.count(Counter::SessionGone),
        }
    }

    /// Let the peer see that there is a session.
    pub fn confirm(&mut self, io: &mut Io<'_>) {
        if self.has_session()
            && let Some(endpoint) = self.endpoint
        {
            self.encapsulate(&[], endpoint, io);
        }
    }

    /// Do what is due while another generation serves. `until`: the end of what nobody takes
    /// over.
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

    /// Encrypt with the session that there is.
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
    /// What tells a preshared key, or none, from others, to those who have our own key.
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
