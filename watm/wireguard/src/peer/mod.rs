//! One peer: boringtun's state machine, and the duties that it leaves to its caller. Used
//! throughout the crate.

mod handover;
pub mod key_log;
mod path;
mod tunnel;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use boringtun::noise::TunnResult;
use boringtun::noise::errors::WireGuardError;
use boringtun::x25519::PublicKey;
use ring::batch::{self, Ahead};
use watm_core::capture::{Capture, Direction, copy_packet};
use watm_core::crypto::AeadKey;
use watm_core::{Destination, Instant, PeerStatus};
use watm_netstack::{Origin, PeerId, mark_congestion};

use self::handover::Handover;
use self::path::Path;
pub use self::tunnel::Identity;
use self::tunnel::Tunnel;
use crate::ahead::{DATA, Openers};
use crate::config::{AllowedIps, PeerConfig};
use crate::counters::{Counter, Counters};
use crate::floor::{Floor, Initiation, initiation};
use crate::key;
use crate::outgoing::{Endpoint, Outgoing};

/// Bytes that WireGuard adds to an inner packet.
pub const OVERHEAD: usize = 32;

/// The largest message of a handshake, in bytes.
const INITIATION: usize = 148;

/// The largest packet that can wait for a session, encrypted, in bytes: see `config::value::MTU`.
const LARGEST: usize = 65_507;

/// Timers of the protocol (WireGuard paper, section 6.1).
const REKEY_AFTER_TIME: Duration = Duration::from_secs(120);
const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
const REKEY_ATTEMPT_TIME: Duration = Duration::from_secs(90);
const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);

/// The resources of a peer during one call.
pub struct Io<'a> {
    pub out: &'a mut Outgoing,
    pub counters: &'a mut Counters,
    pub now: Instant,
    /// The time of the peers' next timers. `None` while no peer has any.
    pub next_tick: &'a mut Option<Instant>,
    /// True if handshakes may begin here.
    pub begins: bool,
    /// The largest packet, in bytes, if the paths to peers should be probed for their MTU.
    pub tries: Option<u16>,
    /// The captures that the user enabled.
    pub capture: Option<&'a dyn Capture>,
}

/// The precision of the times of events.
const PRECISION: Duration = Duration::from_millis(250);

/// The interval of the timers. Those of the protocol are of five seconds and more.
const TICK: Duration = Duration::from_secs(1);

impl Io<'_> {
    /// Run the timers within a second, because a peer has some.
    pub fn wake(&mut self) {
        self.next_tick.get_or_insert(self.now + TICK);
    }
}

/// Handshakes without an answer after which a peer counts as lost, and the least age of the last
/// one. With one in five seconds this takes a quarter of a minute.
const UNANSWERED: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(4);

/// A peer that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// True if it answered with messages that do not decrypt.
    pub strange: bool,
    /// The start of the first of those handshakes.
    pub since: Instant,
}

/// The kind of a datagram, by its first byte and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    Initiation,
    Response,
    Cookie,
    /// A packet of the session with this local index.
    Data(u32),
}

/// A datagram that seems to be for a peer, judging from outside.
pub struct Arrived<'a> {
    pub message: Message,
    pub datagram: &'a [u8],
    pub from: Endpoint,
    /// True if a router marked it because of congestion.
    pub marked: bool,
    /// The packets that were decrypted ahead, and its number among them, if it is one.
    pub ahead: Option<(Rc<Ahead>, usize)>,
}

impl<'a> Arrived<'a> {
    /// A datagram that was not marked, and not decrypted ahead.
    pub fn alone(message: Message, datagram: &'a [u8], from: Endpoint) -> Self {
        Arrived {
            message,
            datagram,
            from,
            marked: false,
            ahead: None,
        }
    }
}

/// The results of a datagram.
#[derive(Default)]
pub struct Received<'b> {
    /// The inner IP packet, and its source.
    pub packet: Option<(&'b [u8], IpAddr)>,
    /// The handshake that it completed, if it did: the first with this peer or another one.
    pub handshake: Option<Handshake>,
    /// True if other generations should know: the peer's address has changed, or one of its
    /// initiations was accepted.
    pub news: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    First,
    Another,
}

/// A peer. See the module's documentation.
pub struct Peer {
    config: PeerConfig,
    origin: Origin,
    tunnel: Tunnel,
    endpoint: Option<Endpoint>,
    /// True if there is a session or a handshake under way, and thus timers to run.
    live: bool,
    timers_ran: Instant,
    /// The session that was offered as responder and is not in use yet, and the time of the offer.
    offered: Option<(u32, Instant)>,
    /// True if the peer began the last handshake. boringtun takes that handshake for one under way
    /// while the session lives, and begins none by itself when needed.
    responder: bool,
    /// A handshake begun from here in that state.
    attempt: Option<Attempt>,
    /// The time when the newest session was made.
    session_since: Option<Instant>,
    last_handshake: Option<Instant>,
    last_sent: Option<Instant>,
    received_bytes: u64,
    sent_bytes: u64,
    /// Initiations sent since the peer was last heard.
    unanswered: u32,
    unanswered_since: Instant,
    last_initiation: Option<Instant>,
    /// True if the peer does not answer at its endpoint.
    lost: bool,
    /// True if a handshake from here had an answer that does not decrypt, since the peer was last
    /// heard.
    strange: bool,
    /// True if the user has since been told that the peer does not answer.
    complained: bool,
    /// True if a handshake should begin before there is anything to send.
    wanted: bool,
    path: Path,
    /// The largest packet that the path carries, in bytes. See [`Peer::room`].
    room: Option<Option<usize>>,
    /// The initiations that the next one must be newer than.
    floor: Floor,
    handover: Handover,
    /// The keys of its sessions in the host.
    openers: Openers,
}

/// A handshake that began here after one in which this end was the responder. boringtun computes
/// its age from an earlier attempt, or from the start of the clock; it would give up and drop the
/// sessions with the next run of its timers. Its timers therefore rest meanwhile, and their work is
/// done here.
struct Attempt {
    /// The end of all attempts, and of the session that is still in use.
    until: Instant,
    last_sent: Instant,
}

impl Peer {
    /// Makes a peer that has not been heard yet.
    pub fn new(id: PeerId, identity: Rc<Identity>, config: PeerConfig) -> Self {
        Peer {
            origin: Origin {
                peer: id,
                name: Rc::from(key::encode(config.public_key.as_bytes())),
                underlay: None,
            },
            tunnel: Tunnel {
                identity,
                tunn: None,
            },
            endpoint: config_address(&config).map(|remote| Endpoint {
                remote,
                local: None,
            }),
            config,
            live: false,
            timers_ran: Instant::default(),
            offered: None,
            responder: false,
            attempt: None,
            session_since: None,
            last_handshake: None,
            last_sent: None,
            received_bytes: 0,
            sent_bytes: 0,
            unanswered: 0,
            unanswered_since: Instant::default(),
            last_initiation: None,
            lost: false,
            strange: false,
            complained: false,
            wanted: false,
            path: Path::default(),
            room: None,
            floor: Floor::default(),
            handover: Handover::default(),
            openers: Openers::default(),
        }
    }

    /// Returns the key of the host for its session with this local index, if it is known.
    pub fn opener(&self, index: u32) -> Option<Arc<dyn AeadKey>> {
        self.openers.get(index)
    }

    /// Keep the accepted initiations of the same peer under other keys.
    pub fn with_floor_of(mut self, old: &Peer) -> Self {
        self.floor = old.floor.clone();
        self.floor.disown();
        self
    }

    /// Take over another configuration with the same keys.
    pub fn reconfigure(&mut self, config: PeerConfig) {
        if config.endpoint != self.config.endpoint
            && let Some(remote) = config_address(&config)
        {
            self.set_endpoint(remote);
        }
        self.config = config;
    }

    /// The preshared key, on which its sessions depend besides its own key.
    pub fn preshared_key(&self) -> Option<&[u8; 32]> {
        self.config.preshared_key.as_ref()
    }

    /// The origin of its flows.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Its outer address, if known.
    pub fn endpoint(&self) -> Option<SocketAddr> {
        self.endpoint.map(|endpoint| endpoint.remote)
    }

    /// The name and port of its Endpoint, if it has one that is not an address.
    pub fn named_endpoint(&self) -> Option<(&str, u16)> {
        match &self.config.endpoint {
            Some(Destination::Name(name, port)) => Some((name, *port)),
            _ => None,
        }
    }

    /// Try this address: if the peer was not heard elsewhere, begin a session there for waiting
    /// packets.
    pub fn look_at(&mut self, remote: SocketAddr, io: &mut Io<'_>) {
        if self.has_session() && !self.lost {
            return;
        }
        self.set_endpoint(remote);
        io.out.doubt(self.origin.peer);
        if self.tunnel.tunn.is_some() {
            self.catch_up(io);
            self.initiate(io);
        }
        io.wake();
    }

    /// Returns the silence of a peer that has not answered several handshakes in a row. Returns it
    /// once, until as many more remain unanswered.
    pub fn take_silence(&mut self, now: Instant) -> Option<Silence> {
        let last = self.last_initiation?;
        if self.unanswered < UNANSWERED || now - last < PATIENCE {
            return None;
        }
        self.unanswered = 0;
        self.lost = true;
        Some(Silence {
            strange: self.strange,
            since: self.unanswered_since,
        })
    }

    /// Returns true if a handshake is unanswered so far, and there is no session.
    pub fn is_called(&self) -> bool {
        self.unanswered > 0 && !self.has_session()
    }

    /// Begin a handshake soon, if the peer has an Endpoint and none was tried before. This shows
    /// whether it is there, and the first packet finds a session.
    pub fn want(&mut self) {
        self.wanted = self.is_awaited() && self.last_initiation.is_none();
    }

    /// Returns true if it has an Endpoint, and has never had a session here. A peer without one may go
    /// away at any time, even during a handshake.
    pub fn is_awaited(&self) -> bool {
        self.config.endpoint.is_some() && self.last_handshake.is_none()
    }

    /// Returns true on the first call since the peer was last heard.
    pub fn is_first_complaint(&mut self) -> bool {
        !std::mem::replace(&mut self.complained, true)
    }

    /// Handle a change of the local network: forget the local address that datagrams to the peer
    /// came from. Returns true if the peer is in use, and must learn the new address.
    pub fn on_network_change(&mut self) -> bool {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.local = None;
        }
        let used = self.live && (self.has_session() || self.unanswered > 0);
        used && self.endpoint.is_some() && !self.is_taken_over()
    }

    /// Set its address.
    pub fn set_endpoint(&mut self, remote: SocketAddr) {
        if self.endpoint() != Some(remote) {
            self.endpoint = Some(Endpoint {
                remote,
                local: None,
            });
        }
    }

    /// The largest packet that the path carries, in bytes. The outer `None`: not asked yet; the
    /// inner `None`: unknown, or no smaller than the configured MTU or the default.
    pub fn room(&self) -> Option<Option<usize>> {
        self.room
    }

    /// Set the result of that question.
    pub fn set_room(&mut self, room: Option<Option<usize>>) {
        self.room = room;
    }

    /// Returns true if the peer may use any inner address.
    pub fn may_use_any_address(&self) -> bool {
        self.config.allowed_ips == AllowedIps::Any
    }

    /// Handle a datagram that seems to be for this peer, judging from outside. Decrypts the inner
    /// packet into `buffer`, which holds the largest datagram.
    pub fn receive<'b>(
        &mut self,
        arrived: Arrived<'_>,
        server: SocketAddr,
        buffer: &'b mut [u8],
        io: &mut Io<'_>,
    ) -> Received<'b> {
        let Arrived {
            message,
            datagram,
            from,
            marked,
            ahead,
        } = arrived;
        if message != Message::Initiation && self.tunnel.tunn.is_none() {
            io.counters.count(Counter::NoSession);
            return Received::default();
        }
        let begun = match message {
            Message::Initiation => initiation(datagram),
            _ => None,
        };
        if begun.is_some_and(|begun| !self.admits(begun)) {
            io.counters.count(Counter::Replay);
            return Received::default();
        }
        self.catch_up(io);
        let tunn = self.tunnel.get(self.origin.peer, &self.config);
        let (result, key) = batch::open(ahead, || {
            tunn.decapsulate(Some(from.remote.ip()), datagram, buffer)
        });
        if let (Message::Data(index), Some(key)) = (message, key) {
            self.openers.note(index, &key);
        }
        let packet = match result {
            TunnResult::Err(error) => {
                let reason = reason(&error);
                io.counters.count(reason);
                self.strange |= message == Message::Response && reason == Counter::NotAuthentic;
                return Received::default();
            }
            TunnResult::Done if message == Message::Cookie => return Received::default(),
            TunnResult::Done => {
                io.counters.count(Counter::KeepalivesReceived);
                None
            }
            TunnResult::WriteToNetwork(reply) => {
                io.out.push(reply, from, io.counters);
                self.log_key(ephemeral(reply), io);
                self.last_sent = Some(io.now);
                if let Some(begun) = begun {
                    self.floor.accepted(*begun);
                    self.offered = session_index(reply).map(|index| (index, io.now));
                }
                None
            }
            TunnResult::WriteToTunnelV4(packet, source) => Some((packet, IpAddr::V4(source))),
            TunnResult::WriteToTunnelV6(packet, source) => Some((packet, IpAddr::V6(source))),
        };
        let packet = packet.map(|(packet, source)| {
            if marked {
                mark_congestion(packet);
            }
            (&*packet, source)
        });
        if let Some((packet, _)) = packet {
            self.copy(Direction::FromPeer, packet, io);
            self.received_bytes += packet.len() as u64;
        }
        let moved = self.authenticated(from, server, io);
        match message {
            Message::Data(index) => {
                let offered = self.offered.filter(|(offered, _)| *offered == index);
                let since = offered.map(|(_, since)| since);
                self.path
                    .packet(index, datagram, since, io.now, io.counters);
            }
            Message::Response => self.path.answered(io.now, io.counters),
            Message::Initiation | Message::Cookie => {}
        }
        let handshake = self.advance(message, io);
        let news = moved || begun.is_some();
        if news || handshake.is_some() {
            self.handover.changed();
        }
        Received {
            packet,
            handshake,
            news,
        }
    }

    /// Send an inner packet, or keep it until a handshake is complete.
    pub fn send(&mut self, packet: &[u8], io: &mut Io<'_>) {
        self.copy(Direction::ToPeer, packet, io);
        let Some(endpoint) = self.endpoint else {
            self.keep(packet, io);
            return;
        };
        self.catch_up(io);
        let size = (packet.len() + OVERHEAD).max(INITIATION);
        let Some(room) = io.out.room(size, io.counters) else {
            return;
        };
        let tunn = self.tunnel.get(self.origin.peer, &self.config);
        let (result, left) = batch::seal_later(|| tunn.encapsulate(packet, room));
        match result {
            TunnResult::WriteToNetwork(message) => {
                let sent = Sent::of(message);
                if let Some(left) = left {
                    io.out.seal_later(sent.len, left);
                }
                self.commit(sent, endpoint, io);
            }
            // The packet is kept. Begin a handshake if boringtun wrongly takes one to be under way.
            TunnResult::Done if self.waits_in_vain(io.now) => self.initiate(io),
            _ => {}
        }
    }

    /// Keep a packet until the Endpoint's name is looked up.
    fn keep(&mut self, packet: &[u8], io: &mut Io<'_>) {
        if self.named_endpoint().is_none() {
            io.counters.count(Counter::NoEndpoint);
            return;
        }
        let size = (packet.len() + OVERHEAD).max(INITIATION);
        if let Some(room) = io.out.room(size, io.counters) {
            let tunn = self.tunnel.get(self.origin.peer, &self.config);
            // The handshake that this begins is discarded; another is sent once the address is
            // known.
            let _ = tunn.encapsulate(packet, room);
        }
    }

    /// Run the timers that are due. Call it once a second while [`has_timers`](Self::has_timers).
    pub fn tick(&mut self, io: &mut Io<'_>) {
        if self.endpoint.is_some() && std::mem::take(&mut self.wanted) && !self.live {
            self.initiate(io);
        }
        match &self.attempt {
            Some(attempt) if io.now < attempt.until => {
                if io.now - attempt.last_sent >= REKEY_TIMEOUT {
                    self.initiate(io);
                }
            }
            _ => {
                self.attempt = None;
                self.run_timers(io);
            }
        }
        self.keep_alive(io);
    }

    /// Returns true if [`tick`](Self::tick) may have something to do.
    pub fn has_timers(&self) -> bool {
        let calls = self.wanted || self.config.persistent_keepalive.is_some();
        self.live || (calls && self.endpoint.is_some())
    }

    /// The state of the peer.
    pub fn status(&self, now: Instant) -> PeerStatus {
        PeerStatus {
            name: self.origin.name.to_string(),
            endpoint: self.endpoint(),
            last_handshake: self.last_handshake.map(|then| now - then),
            received_bytes: self.received_bytes,
            sent_bytes: self.sent_bytes,
            round_trip: self.path.round_trip(),
            loss_permille: self.path.loss_permille(now),
        }
    }

    /// The shortest known round trip, if there is a session with it; zero if none was measured.
    pub fn least_round_trip(&self) -> Option<Duration> {
        self.live
            .then(|| self.path.least_round_trip().unwrap_or_default())
    }

    /// Bring boringtun's time up to date: it takes the time at each run of its timers, and dates
    /// events by it.
    fn catch_up(&mut self, io: &mut Io<'_>) {
        if self.attempt.is_none() && io.now - self.timers_ran >= PRECISION {
            self.run_timers(io);
        }
    }

    fn run_timers(&mut self, io: &mut Io<'_>) {
        self.timers_ran = io.now;
        let Some(tunn) = &mut self.tunnel.tunn else {
            return;
        };
        let Some(room) = io.out.room(INITIATION, io.counters) else {
            return;
        };
        match tunn.update_timers(room) {
            TunnResult::WriteToNetwork(message) => {
                let begins = io.begins && !self.handover.is_taken_over();
                if !begins && message.first() == Some(&1) {
                    return;
                }
                let sent = Sent::of(message);
                if let Some(endpoint) = self.endpoint {
                    self.commit(sent, endpoint, io);
                }
            }
            TunnResult::Err(_) if self.live => {
                self.live = false;
                self.responder = false;
                self.offered = None;
                self.session_since = None;
                io.counters.count(Counter::SessionsExpired);
            }
            _ => {}
        }
    }

    fn keep_alive(&mut self, io: &mut Io<'_>) {
        let (Some(interval), Some(endpoint)) = (self.config.persistent_keepalive, self.endpoint)
        else {
            return;
        };
        let interval = Duration::from_secs(interval.into());
        if self.last_sent.is_some_and(|then| io.now - then < interval) {
            return;
        }
        // boringtun renews keys only for data.
        let old = |since: Instant| io.now - since >= REKEY_AFTER_TIME;
        let renew = !self.responder && self.session_since.is_some_and(old);
        if !self.has_session() || renew {
            // A handshake begins with each interval until the peer is back. boringtun repeats it in
            // between.
            if self.waits_in_vain(io.now) || !self.is_calling(io.now) {
                self.initiate(io);
            }
        }
        if !self.has_session() {
            return;
        }
        let tunn = self.tunnel.get(self.origin.peer, &self.config);
        let Some(room) = io.out.room(INITIATION, io.counters) else {
            return;
        };
        if let TunnResult::WriteToNetwork(message) = tunn.encapsulate(&[], room) {
            let sent = Sent::of(message);
            self.commit(sent, endpoint, io);
        }
    }

    /// Returns true if a handshake from here is under way, and repeats by itself.
    fn is_calling(&self, now: Instant) -> bool {
        let last = self.last_initiation.filter(|_| self.live);
        last.is_some_and(|last| now - last < REKEY_TIMEOUT + 2 * TICK)
    }

    /// Returns true if boringtun takes the handshake answered last for one under way, although its
    /// session is gone or was never used.
    fn waits_in_vain(&self, now: Instant) -> bool {
        self.responder
            && self
                .offered
                .is_none_or(|(_, since)| now - since >= REKEY_TIMEOUT)
    }

    /// Send a handshake initiation, even if one is under way.
    fn initiate(&mut self, io: &mut Io<'_>) {
        let Some(endpoint) = self.endpoint else {
            return;
        };
        let Some(room) = io.out.room(INITIATION, io.counters) else {
            return;
        };
        if let TunnResult::WriteToNetwork(message) = self
            .tunnel
            .get(self.origin.peer, &self.config)
            .format_handshake_initiation(room, true)
        {
            let sent = Sent::of(message);
            self.commit(sent, endpoint, io);
        }
    }

    /// Send the message that boringtun has written into the room.
    fn commit(&mut self, sent: Sent, endpoint: Endpoint, io: &mut Io<'_>) {
        io.out.commit(sent.len, endpoint);
        self.log_key(sent.ephemeral, io);
        self.last_sent = Some(io.now);
        match sent.inner {
            Some(0) => io.counters.count(Counter::KeepalivesSent),
            Some(bytes) => self.sent_bytes += bytes as u64,
            None => {
                io.counters.count(Counter::InitiationsSent);
                self.try_way(endpoint, io);
                self.initiated(io);
            }
        }
    }

    /// Capture a packet, if the user enabled it.
    fn copy(&self, direction: Direction, packet: &[u8], io: &Io<'_>) {
        copy_packet(io.capture, &self.origin.name, direction, packet);
    }

    /// Log the key of a handshake, found by the public key in the message from here, if the user
    /// enabled it.
    fn log_key(&self, public: Option<PublicKey>, io: &Io<'_>) {
        if let Some(capture) = io.capture
            && capture.wants_secrets()
            && let Some(public) = public
            && let Some(lines) =
                key_log::lines(&public, &self.tunnel.identity.private_key, &self.config)
        {
            capture.secret(&lines);
        }
    }

    /// Probe the MTU of the path before a handshake. A router that cannot forward a datagram as
    /// long as the later packets reports it, and the host notes it before the handshake is
    /// complete. The probe is for a session that does not exist, so that the peer ignores it.
    fn try_way(&self, endpoint: Endpoint, io: &mut Io<'_>) {
        let Some(largest) = io.tries else {
            return;
        };
        let Some(longest) = io.out.socket().longest(endpoint.remote) else {
            return;
        };
        let size = (usize::from(largest) + OVERHEAD).min(longest as usize);
        if let Some(room) = io.out.room(size.max(OVERHEAD), io.counters) {
            room.fill(0);
            room[0] = DATA;
            // The receiver's index.
            room[4..8].fill(u8::MAX);
            io.out.commit(size.max(OVERHEAD), endpoint);
        }
        io.out.doubt(self.origin.peer);
    }

    fn initiated(&mut self, io: &mut Io<'_>) {
        self.last_initiation = Some(io.now);
        if self.unanswered == 0 {
            self.unanswered_since = io.now;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        self.path.called(io.now);
        self.live = true;
        io.wake();
        if self.responder {
            let give_up = io.now + REKEY_ATTEMPT_TIME;
            let session_end = self
                .session_since
                .map(|since| since + REJECT_AFTER_TIME)
                .filter(|&end| end > io.now);
            self.responder = false;
            self.attempt = Some(Attempt {
                until: session_end.map_or(give_up, |end| end.min(give_up)),
                last_sent: io.now,
            });
        } else if let Some(attempt) = &mut self.attempt {
            attempt.last_sent = io.now;
        }
    }

    /// Record an authentic message. Returns true if the peer's address has changed.
    fn authenticated(&mut self, from: Endpoint, server: SocketAddr, io: &mut Io<'_>) -> bool {
        self.unanswered = 0;
        self.lost = false;
        self.strange = false;
        self.complained = false;
        self.live = true;
        io.wake();
        if self.endpoint == Some(from) && self.origin.underlay.is_some() {
            return false;
        }
        if self.endpoint.is_some_and(|old| old.remote != from.remote) {
            io.counters.count(Counter::Roamed);
            self.path.moved();
        }
        io.out.doubt(self.origin.peer);
        self.endpoint = Some(from);
        self.origin.underlay = Some(underlay(from, server));
        true
    }

    /// Returns true if an initiation is newer than those that other generations have accepted.
    fn admits(&mut self, initiation: &Initiation) -> bool {
        let (identity, key) = (&self.tunnel.identity, &self.config.public_key);
        self.floor
            .admits(initiation, |message| identity.time(key, message))
    }

    /// Handle the consequences of an authentic message.
    fn advance(&mut self, message: Message, io: &mut Io<'_>) -> Option<Handshake> {
        match message {
            Message::Initiation => {
                self.responder = true;
                self.attempt = None;
                self.session_since = Some(io.now);
                self.send_waiting(io);
                None
            }
            Message::Response => {
                self.attempt = None;
                self.session_since = Some(io.now);
                Some(self.completed(io))
            }
            Message::Data(index) if self.offered.is_some_and(|(offered, _)| offered == index) => {
                self.offered = None;
                Some(self.completed(io))
            }
            Message::Data(_) | Message::Cookie => None,
        }
    }

    fn completed(&mut self, io: &mut Io<'_>) -> Handshake {
        io.counters.count(Counter::Handshakes);
        io.out.doubt(self.origin.peer);
        self.handover.renewed();
        self.send_waiting(io);
        match self.last_handshake.replace(io.now) {
            None => Handshake::First,
            Some(_) => Handshake::Another,
        }
    }

    /// Send the packets that waited for a session. Each round takes one from boringtun's queue,
    /// which holds 256.
    fn send_waiting(&mut self, io: &mut Io<'_>) {
        let Some(endpoint) = self.endpoint else {
            return;
        };
        loop {
            let Some(room) = io.out.room(LARGEST, io.counters) else {
                return;
            };
            let tunn = self.tunnel.get(self.origin.peer, &self.config);
            match tunn.decapsulate(None, &[], room) {
                TunnResult::WriteToNetwork(message) => {
                    let sent = Sent::of(message);
                    self.commit(sent, endpoint, io);
                }
                _ => return,
            }
        }
    }
}

/// The address of a peer in the configuration, if there is one.
fn config_address(config: &PeerConfig) -> Option<SocketAddr> {
    match config.endpoint {
        Some(Destination::Address(address)) => Some(address),
        _ => None,
    }
}

/// The outer addresses: remote, then local.
fn underlay(endpoint: Endpoint, server: SocketAddr) -> (SocketAddr, SocketAddr) {
    let local = endpoint.local.unwrap_or(server.ip());
    (endpoint.remote, SocketAddr::new(local, server.port()))
}

/// A message that boringtun has written.
struct Sent {
    len: usize,
    /// The ephemeral key of the session that it begins.
    ephemeral: Option<PublicKey>,
    /// The bytes of the inner packet, if it carries one.
    inner: Option<usize>,
}

impl Sent {
    fn of(message: &[u8]) -> Self {
        Sent {
            len: message.len(),
            ephemeral: ephemeral(message),
            inner: (message.first() == Some(&DATA)).then(|| message.len() - OVERHEAD),
        }
    }
}

/// The sender's ephemeral key in a message of a handshake (WireGuard paper, sections 5.4.2 and
/// 5.4.3).
fn ephemeral(message: &[u8]) -> Option<PublicKey> {
    let key: [u8; 32] = match message.first()? {
        1 => message.get(8..40)?.try_into().ok()?,
        2 => message.get(12..44)?.try_into().ok()?,
        _ => return None,
    };
    Some(key.into())
}

/// The sender's index in a handshake message.
fn session_index(message: &[u8]) -> Option<u32> {
    let bytes = message.get(4..8)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn reason(error: &WireGuardError) -> Counter {
    match error {
        WireGuardError::InvalidMac => Counter::InvalidMac,
        WireGuardError::NoCurrentSession
        | WireGuardError::WrongIndex
        | WireGuardError::UnexpectedPacket
        | WireGuardError::ConnectionExpired => Counter::NoSession,
        WireGuardError::WrongTai64nTimestamp
        | WireGuardError::InvalidCounter
        | WireGuardError::DuplicateCounter => Counter::Replay,
        WireGuardError::InvalidPacket => Counter::NotIp,
        _ => Counter::NotAuthentic,
    }
}
