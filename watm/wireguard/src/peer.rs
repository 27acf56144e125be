//! One peer: boringtun's state machine, and what it leaves to its caller.

mod handover;
mod tunnel;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use boringtun::noise::TunnResult;
use boringtun::noise::errors::WireGuardError;
use watm_core::{Instant, PeerStatus};
use watm_netstack::{Origin, PeerId};

use self::handover::Handover;
pub use self::tunnel::Identity;
use self::tunnel::Tunnel;
use crate::config::{AllowedIps, PeerConfig};
use crate::counters::{Counter, Counters};
use crate::floor::{Floor, Initiation, initiation};
use crate::key;
use crate::outgoing::{Endpoint, Outgoing};

/// What WireGuard adds to an inner packet.
const OVERHEAD: usize = 32;

/// The largest message of a handshake.
const INITIATION: usize = 148;

/// The largest packet that can wait for a session, encrypted: see `config::value::MTU`.
const LARGEST: usize = 65_507;

/// Timers of the protocol (WireGuard paper, section 6.1).
const REKEY_TIMEOUT: Duration = Duration::from_secs(5);
const REKEY_ATTEMPT_TIME: Duration = Duration::from_secs(90);
const REJECT_AFTER_TIME: Duration = Duration::from_secs(180);

/// What a peer works with, during one call.
pub struct Io<'a> {
    pub out: &'a mut Outgoing,
    pub counters: &'a mut Counters,
    pub now: Instant,
    /// When the peers' timers run next; `None` while no peer has any.
    pub next_tick: &'a mut Option<Instant>,
    /// Whether handshakes may be begun here.
    pub begins: bool,
}

/// How exactly what happens is dated.
const PRECISION: Duration = Duration::from_millis(250);

/// How often the timers run. The protocol's are of five seconds and more.
const TICK: Duration = Duration::from_secs(1);

impl Io<'_> {
    /// A peer has timers: let them run within a second.
    pub fn wake(&mut self) {
        self.next_tick.get_or_insert(self.now + TICK);
    }
}

/// What a datagram is, by its first byte and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    Initiation,
    Response,
    Cookie,
    /// A packet of the session with this index of ours.
    Data(u32),
}

/// What has come of a datagram.
#[derive(Default)]
pub struct Received<'b> {
    /// The inner IP packet, and its source.
    pub packet: Option<(&'b [u8], IpAddr)>,
    /// It has completed a handshake, the first with this peer or another.
    pub handshake: Option<Handshake>,
    /// Other generations should know: the peer is at another address, or one of its
    /// initiations was accepted.
    pub news: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    First,
    Another,
}

/// See the module's page.
pub struct Peer {
    config: PeerConfig,
    origin: Origin,
    tunnel: Tunnel,
    endpoint: Option<Endpoint>,
    /// There is a session or a handshake under way, so there are timers to run.
    live: bool,
    timers_ran: Instant,
    /// The session we have offered as responder and not yet seen used, and since when.
    offered: Option<(u32, Instant)>,
    /// The last handshake was the peer's. boringtun takes that for one under way, for as
    /// long as the session lives: it begins none by itself when there is need.
    responder: bool,
    /// A handshake of ours begun in that state.
    attempt: Option<Attempt>,
    /// When the newest session was made.
    session_since: Option<Instant>,
    last_handshake: Option<Instant>,
    last_sent: Option<Instant>,
    received_bytes: u64,
    sent_bytes: u64,
    /// What initiations must be newer than.
    floor: Floor,
    handover: Handover,
}

/// A handshake that we began as the responder of the one before. boringtun reckons its
/// age from an earlier attempt, or from the beginning of time, and so would give up and
/// drop the sessions with the next run of its timers. They rest meanwhile, and what they
/// would do is done here.
struct Attempt {
    /// The end of all attempts, and of the session that is still in use.
    until: Instant,
    last_sent: Instant,
}

impl Peer {
    /// A peer that has not been heard yet.
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
            endpoint: config.endpoint.map(|remote| Endpoint {
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
            floor: Floor::default(),
            handover: Handover::default(),
        }
    }

    /// The same peer under other keys: what it was accepted with stays so.
    pub fn with_floor_of(mut self, old: &Peer) -> Self {
        self.floor = old.floor.clone();
        self.floor.disown();
        self
    }

    /// Take over another configuration with the same keys.
    pub fn reconfigure(&mut self, config: PeerConfig) {
        if config.endpoint != self.config.endpoint
            && let Some(remote) = config.endpoint
        {
            self.set_endpoint(remote);
        }
        self.config = config;
    }

    /// The key that its sessions depend on besides its own.
    pub fn preshared_key(&self) -> Option<&[u8; 32]> {
        self.config.preshared_key.as_ref()
    }

    /// Who its flows come from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Where it is, as far as that is known.
    pub fn endpoint(&self) -> Option<SocketAddr> {
        self.endpoint.map(|endpoint| endpoint.remote)
    }

    /// It is there.
    pub fn set_endpoint(&mut self, remote: SocketAddr) {
        if self.endpoint() != Some(remote) {
            self.endpoint = Some(Endpoint {
                remote,
                local: None,
            });
        }
    }

    /// Whether any inner address is its own.
    pub fn may_use_any_address(&self) -> bool {
        self.config.allowed_ips == AllowedIps::Any
    }

    /// Take a datagram that is for this peer, as far as can be told from outside. The
    /// inner packet is decrypted into `buffer`, which holds the largest datagram.
    pub fn receive<'b>(
        &mut self,
        message: Message,
        datagram: &[u8],
        from: Endpoint,
        server: SocketAddr,
        buffer: &'b mut [u8],
        io: &mut Io<'_>,
    ) -> Received<'b> {
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
        let result = self.tunnel.get(self.origin.peer, &self.config).decapsulate(
            Some(from.remote.ip()),
            datagram,
            buffer,
        );
        let packet = match result {
            TunnResult::Err(error) => {
                io.counters.count(reason(&error));
                return Received::default();
            }
            TunnResult::Done if message == Message::Cookie => return Received::default(),
            TunnResult::Done => {
                io.counters.count(Counter::KeepalivesReceived);
                None
            }
            TunnResult::WriteToNetwork(reply) => {
                io.out.push(reply, from, io.counters);
                self.last_sent = Some(io.now);
                if let Some(begun) = begun {
                    self.floor.accepted(*begun);
                    self.offered = session_index(reply).map(|index| (index, io.now));
                }
                None
            }
            TunnResult::WriteToTunnelV4(packet, source) => Some((&*packet, IpAddr::V4(source))),
            TunnResult::WriteToTunnelV6(packet, source) => Some((&*packet, IpAddr::V6(source))),
        };
        if let Some((packet, _)) = packet {
            self.received_bytes += packet.len() as u64;
        }
        let moved = self.authenticated(from, server, io);
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

    /// Send an inner packet, or keep it while a handshake is made.
    pub fn send(&mut self, packet: &[u8], io: &mut Io<'_>) {
        let Some(endpoint) = self.endpoint else {
            io.counters.count(Counter::NoEndpoint);
            return;
        };
        self.catch_up(io);
        let size = (packet.len() + OVERHEAD).max(INITIATION);
        let Some(room) = io.out.room(size, io.counters) else {
            return;
        };
        match self
            .tunnel
            .get(self.origin.peer, &self.config)
            .encapsulate(packet, room)
        {
            TunnResult::WriteToNetwork(message) => {
                let sent = Sent::of(message);
                self.commit(sent, endpoint, io);
            }
            // Kept. If boringtun wrongly takes a handshake to be under way, begin one.
            TunnResult::Done if self.waits_in_vain(io.now) => self.initiate(io),
            _ => {}
        }
    }

    /// Run the timers that are due. To be called once a second while
    /// [`has_timers`](Self::has_timers).
    pub fn tick(&mut self, io: &mut Io<'_>) {
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

    /// Whether [`tick`](Self::tick) may have something to do.
    pub fn has_timers(&self) -> bool {
        self.live || (self.endpoint.is_some() && self.config.persistent_keepalive.is_some())
    }

    /// How the peer is doing.
    pub fn status(&self, now: Instant) -> PeerStatus {
        PeerStatus {
            name: self.origin.name.to_string(),
            endpoint: self.endpoint(),
            last_handshake: self.last_handshake.map(|then| now - then),
            received_bytes: self.received_bytes,
            sent_bytes: self.sent_bytes,
        }
    }

    /// boringtun takes the time at each run of its timers, and dates what happens by it.
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
        let tunn = self.tunnel.get(self.origin.peer, &self.config);
        if tunn.time_since_last_handshake().is_none() {
            // With each interval anew, until the peer is back.
            if !self.live || self.waits_in_vain(io.now) {
                self.initiate(io);
            }
            return;
        }
        let Some(room) = io.out.room(INITIATION, io.counters) else {
            return;
        };
        if let TunnResult::WriteToNetwork(message) = tunn.encapsulate(&[], room) {
            let sent = Sent::of(message);
            self.commit(sent, endpoint, io);
        }
    }

    /// Whether boringtun takes the handshake that we answered last for one under way,
    /// though its session is gone or was never used.
    fn waits_in_vain(&self, now: Instant) -> bool {
        self.responder
            && self
                .offered
                .is_none_or(|(_, since)| now - since >= REKEY_TIMEOUT)
    }

    /// Send a handshake initiation, whether or not one is under way.
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

    /// Send what boringtun has written into the room.
    fn commit(&mut self, sent: Sent, endpoint: Endpoint, io: &mut Io<'_>) {
        io.out.commit(sent.len, endpoint);
        self.last_sent = Some(io.now);
        match sent.inner {
            Some(0) => io.counters.count(Counter::KeepalivesSent),
            Some(bytes) => self.sent_bytes += bytes as u64,
            None => {
                io.counters.count(Counter::InitiationsSent);
                self.initiated(io);
            }
        }
    }

    fn initiated(&mut self, io: &mut Io<'_>) {
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

    /// Whether the peer is elsewhere than it was.
    fn authenticated(&mut self, from: Endpoint, server: SocketAddr, io: &mut Io<'_>) -> bool {
        self.live = true;
        io.wake();
        if self.endpoint == Some(from) && self.origin.underlay.is_some() {
            return false;
        }
        if self.endpoint.is_some_and(|old| old.remote != from.remote) {
            io.counters.count(Counter::Roamed);
        }
        self.endpoint = Some(from);
        self.origin.underlay = Some(underlay(from, server));
        true
    }

    /// Whether an initiation is newer than those that other generations have accepted.
    fn admits(&mut self, initiation: &Initiation) -> bool {
        let (identity, key) = (&self.tunnel.identity, &self.config.public_key);
        self.floor
            .admits(initiation, |message| identity.time(key, message))
    }

    /// What follows from an authentic message.
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
        self.handover.renewed();
        self.send_waiting(io);
        match self.last_handshake.replace(io.now) {
            None => Handshake::First,
            Some(_) => Handshake::Another,
        }
    }

    /// Send the packets that waited for a session. Each round takes one off a queue of
    /// boringtun's that holds 256.
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

/// The outer addresses, remote and ours.
fn underlay(endpoint: Endpoint, server: SocketAddr) -> (SocketAddr, SocketAddr) {
    let local = endpoint.local.unwrap_or(server.ip());
    (endpoint.remote, SocketAddr::new(local, server.port()))
}

/// A message that boringtun has written.
struct Sent {
    len: usize,
    /// Bytes of the inner packet, if it carries one.
    inner: Option<usize>,
}

impl Sent {
    fn of(message: &[u8]) -> Self {
        const DATA: u8 = 4;
        Sent {
            len: message.len(),
            inner: (message.first() == Some(&DATA)).then(|| message.len() - OVERHEAD),
        }
    }
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
