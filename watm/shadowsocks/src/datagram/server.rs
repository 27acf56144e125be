//! The sessions of clients, and their datagrams. Used by `remembered`.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use watm_core::{Destination, FlowInfo, Instant};
use watm_stream::Outgoing;

use super::packet::{self, Opened};
use super::remembered::Inherited;
use super::window::Window;
use crate::cipher::Key;
use crate::config::Config;
use crate::refused::Refused;
use crate::salts::Salts;

/// The most sessions at a time. Each belongs to a holder of a key.
pub const MAX_SESSIONS: usize = 16_384;

/// The most destinations of one session at a time.
const MAX_DESTINATIONS: usize = 1024;

/// The identity of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The source address (SIP004).
    Address(SocketAddr),
    /// The session's number, and the name of its user's key (SIP022).
    Session(u64, [u8; 16]),
}

/// The clients of a server.
pub struct Server {
    sessions: BTreeMap<u64, Session>,
    by_origin: HashMap<Origin, u64>,
    /// The salts of datagrams of SIP004.
    salts: Salts,
    inherited: Inherited,
}

struct Session {
    origin: Origin,
    /// The key for answers, and the user's name.
    key: Key,
    user: Option<String>,
    /// The address from which it was last heard.
    remote: SocketAddr,
    active: Instant,
    flows: HashMap<Destination, u64>,
    /// The state of a session of SIP022.
    state: Option<State>,
}

struct State {
    incoming: packet::Session,
    window: Window,
    outgoing: packet::Session,
    /// The number of the next packet.
    next: u64,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            sessions: BTreeMap::new(),
            by_origin: HashMap::new(),
            salts: Salts::new(false),
            inherited: Inherited::default(),
        }
    }
}

impl Server {
    /// Take over the salts and windows of the generation before.
    pub fn succeed(&mut self, salts: Salts, windows: BTreeMap<Origin, Window>, now: Instant) {
        self.salts = salts;
        self.inherited = Inherited::new(windows, now);
    }

    /// The remembered salts.
    pub fn salts(&self) -> &Salts {
        &self.salts
    }

    /// The windows of all sessions, and inherited ones of sessions that have not begun here.
    pub fn windows(&self, now: Instant) -> impl Iterator<Item = (Origin, &Window)> {
        let here = self.sessions.values();
        let here =
            here.filter_map(|session| Some((session.origin, &session.state.as_ref()?.window)));
        let before = self.inherited.windows(now);
        let before = before.filter(|(origin, _)| !self.by_origin.contains_key(origin));
        here.chain(before.map(|(&origin, window)| (origin, window)))
            .take(MAX_SESSIONS)
    }

    /// Open a datagram from this address. Returns the number of its session; a new session gets the
    /// number after `last`.
    pub fn open<'a>(
        &mut self,
        config: &Config,
        remote: SocketAddr,
        datagram: &'a mut [u8],
        last: &mut u64,
        now: Instant,
    ) -> Result<(u64, Opened<'a>), Refused> {
        match config.method.is_2022() {
            true => self.open_2022(config, remote, datagram, last, now),
            false => self.open_2017(config, remote, datagram, last, now),
        }
    }

    fn open_2017<'a>(
        &mut self,
        config: &Config,
        remote: SocketAddr,
        datagram: &'a mut [u8],
        last: &mut u64,
        now: Instant,
    ) -> Result<(u64, Opened<'a>), Refused> {
        let (salt, opened) = packet::open_2017(config.method, config.key(), datagram)?;
        if !self.salts.admit(salt.bytes(), 0) {
            return Err(Refused::Replayed);
        }
        let origin = Origin::Address(remote);
        let number = match self.by_origin.get(&origin) {
            Some(&number) => number,
            None => self.insert(origin, *config.key(), None, remote, None, last, now)?,
        };
        self.heard(number, remote, now);
        Ok((number, opened))
    }

    fn open_2022<'a>(
        &mut self,
        config: &Config,
        remote: SocketAddr,
        datagram: &'a mut [u8],
        last: &mut u64,
        now: Instant,
    ) -> Result<(u64, Opened<'a>), Refused> {
        let announced = packet::announced(config, datagram)?;
        let user = announced.user.and_then(|index| config.users.get(index));
        let key = user.map_or(*config.key(), |user| user.key);
        let id = user.map_or([0; 16], |user| user.id);
        let header = announced.header;
        let origin = Origin::Session(header.session, id);
        let known = self.by_origin.get(&origin).copied();
        if let Some(session) = known.and_then(|number| self.sessions.get_mut(&number))
            && let Some(state) = &mut session.state
        {
            if !state.window.is_new(header.packet) {
                return Err(Refused::Replayed);
            }
            let opened = packet::open(config.method, &announced, &state.incoming, false, datagram)?;
            state.window.admit(header.packet);
            session.remote = remote;
            session.active = now;
            return Ok((known.unwrap_or_default(), opened));
        }
        let incoming = packet::Session::new(config.method, &key, header.session);
        let opened = packet::open(config.method, &announced, &incoming, false, datagram)?;
        let mut window = self.inherited.window(&origin, now);
        if !window.admit(header.packet) {
            return Err(Refused::Replayed);
        }
        let state = State {
            incoming,
            window,
            outgoing: packet::Session::fresh(config.method, &key),
            next: 0,
        };
        let user = user.map(|user| user.name.clone());
        let number = self.insert(origin, key, user, remote, Some(state), last, now)?;
        Ok((number, opened))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "they are what a session is made of"
    )]
    fn insert(
        &mut self,
        origin: Origin,
        key: Key,
        user: Option<String>,
        remote: SocketAddr,
        state: Option<State>,
        last: &mut u64,
        now: Instant,
    ) -> Result<u64, Refused> {
        if self.sessions.len() >= MAX_SESSIONS {
            return Err(Refused::Full);
        }
        *last += 1;
        self.by_origin.insert(origin, *last);
        let session = Session {
            origin,
            key,
            user,
            remote,
            active: now,
            flows: HashMap::new(),
            state,
        };
        self.sessions.insert(*last, session);
        Ok(*last)
    }

    fn heard(&mut self, number: u64, remote: SocketAddr, now: Instant) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.remote = remote;
            session.active = now;
        }
    }

    /// The flow of a session to this destination.
    pub fn flow(&self, number: u64, destination: &Destination) -> Option<u64> {
        self.sessions.get(&number)?.flows.get(destination).copied()
    }

    /// Returns true if a session may have another flow.
    pub fn has_room(&self, number: u64) -> bool {
        let session = self.sessions.get(&number);
        session.is_some_and(|session| session.flows.len() < MAX_DESTINATIONS)
    }

    /// Record a session's flow to this destination.
    pub fn set_flow(&mut self, number: u64, destination: Destination, flow: u64) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.flows.insert(destination, flow);
        }
    }

    /// Record the end of a flow to this destination. Returns the time when the session was last
    /// heard, if this was its last flow.
    pub fn forget_flow(&mut self, number: u64, destination: &Destination) -> Option<Instant> {
        let session = self.sessions.get_mut(&number)?;
        session.flows.remove(destination);
        session.flows.is_empty().then_some(session.active)
    }

    /// The description of a flow for the application.
    pub fn info(&self, number: u64, destination: &Destination, local: SocketAddr) -> FlowInfo {
        let session = self.sessions.get(&number);
        let source = session.map_or(local, |session| session.remote);
        FlowInfo {
            source,
            destination: destination.clone(),
            peer: session.and_then(|session| session.user.clone()),
            underlay: Some((source, local)),
            attributes: Vec::new(),
        }
    }

    /// Queue an answer in a session, from `address`, which is encoded as in SOCKS5.
    pub fn seal(
        &mut self,
        config: &Config,
        number: u64,
        address: &[u8],
        payload: &[u8],
        out: &mut Outgoing,
    ) -> bool {
        let Some(session) = self.sessions.get_mut(&number) else {
            return false;
        };
        let (key, salts) = (session.key, &mut self.salts);
        match (&mut session.state, session.origin) {
            (Some(state), Origin::Session(client, _)) => {
                let packet = state.next;
                state.next += 1;
                out.push(session.remote, payload.len() + packet::OVERHEAD, |to| {
                    let message = packet::Message {
                        packet,
                        answers: Some(client),
                        address,
                        payload,
                    };
                    packet::seal(config, &[key], &state.outgoing, &message, to);
                })
            }
            _ => out.push(session.remote, payload.len() + packet::OVERHEAD, |to| {
                let salt = packet::seal_2017(config.method, &key, address, payload, to);
                // Refuse the same salt if somebody sends it back.
                salts.admit(salt.bytes(), 0);
            }),
        }
    }

    /// The time when a session was last heard. `None` if it does not exist or has flows.
    pub fn active(&self, number: u64) -> Option<Instant> {
        let session = self.sessions.get(&number)?;
        session.flows.is_empty().then_some(session.active)
    }

    /// End a session.
    pub fn remove(&mut self, number: u64) {
        if let Some(session) = self.sessions.remove(&number) {
            self.by_origin.remove(&session.origin);
        }
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns true if there is a session with this number.
    pub fn has(&self, number: u64) -> bool {
        self.sessions.contains_key(&number)
    }

    /// End the sessions whose key is not in this configuration.
    pub fn reconfigure(&mut self, config: &Config) {
        let stay = |session: &Session| match session.origin {
            Origin::Address(_) => !config.method.is_2022() && session.key == *config.key(),
            Origin::Session(_, id) => {
                config.method.is_2022()
                    && match config.user(&id) {
                        Some(user) => user.key == session.key,
                        None => config.users.is_empty() && session.key == *config.key(),
                    }
            }
        };
        let gone: Vec<u64> = self
            .sessions
            .iter()
            .filter(|(_, session)| !stay(session))
            .map(|(&number, _)| number)
            .collect();
        for number in gone {
            self.remove(number);
        }
    }
}
