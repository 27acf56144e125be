//! The application's flows through a server.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{Destination, ErrorCode, Host, Instant, Lookup};

use super::outgoing::Outgoing;
use super::window::Window;
use super::{LOOKUP, packet};
use crate::config::Config;
use crate::salts::Salts;
use crate::stream::Refused;

/// Sessions of a server's in which one flow is answered: a server that was started again has
/// another, and what is on its way is the old one's.
const ANSWERING: usize = 2;

/// A client's flows. Each is a session of its own, so that the server's answer says which flow
/// it is for; methods of SIP004 have no sessions, and there the answer's address says it.
pub struct Client {
    flows: BTreeMap<u64, Flow>,
    server: Server,
    /// SIP022: the flow of a session of ours, and of one of the server's.
    by_session: HashMap<u64, u64>,
    by_answer: HashMap<u64, u64>,
    /// SIP004: the flows by where they go.
    by_address: HashMap<Destination, u64>,
    /// Those that go to a name, by the port: whose answers come from an address.
    by_port: BTreeMap<u16, Vec<u64>>,
    /// Of datagrams of SIP004.
    salts: Salts,
}

struct Flow {
    destination: Destination,
    address: Vec<u8>,
    /// Of SIP022.
    session: Option<packet::Session>,
    next: u64,
    /// The server's sessions, the newest first.
    answering: Vec<(packet::Session, Window)>,
}

impl Default for Client {
    fn default() -> Client {
        Client {
            flows: BTreeMap::new(),
            server: Server::default(),
            by_session: HashMap::new(),
            by_answer: HashMap::new(),
            by_address: HashMap::new(),
            by_port: BTreeMap::new(),
            salts: Salts::new(false),
        }
    }
}

/// For how long the address that a name had is used for new flows.
const FRESH: Duration = Duration::from_secs(300);

/// Where the server is.
#[derive(Default)]
struct Server {
    address: Option<SocketAddr>,
    /// When it was looked up.
    since: Option<Instant>,
    lookup: Option<Box<dyn Lookup>>,
}

impl Client {
    /// Know the salts that the generation before this one knew.
    pub fn succeed(&mut self, salts: Salts) {
        self.salts = salts;
    }

    /// The salts that are remembered.
    pub fn salts(&self) -> &Salts {
        &self.salts
    }

    /// Begin the flow with this number.
    pub fn open(
        &mut self,
        config: &Config,
        number: u64,
        destination: &Destination,
        host: &mut dyn Host,
    ) -> Result<(), ErrorCode> {
        if !config.mode.datagrams() || config.insecure {
            return Err(ErrorCode::NotSupported);
        }
        self.find_server(config, host)?;
        let address = packet::written(destination).ok_or(ErrorCode::InvalidArgument)?;
        let session = config
            .method
            .is_2022()
            .then(|| packet::Session::fresh(config.method, config.last_key()));
        match &session {
            Some(session) => {
                self.by_session.insert(session.id, number);
            }
            None => {
                self.by_address.entry(destination.clone()).or_insert(number);
                if let Destination::Name(_, port) = destination {
                    self.by_port.entry(*port).or_default().push(number);
                }
            }
        }
        let flow = Flow {
            destination: destination.clone(),
            address,
            session,
            next: 0,
            answering: Vec::new(),
        };
        self.flows.insert(number, flow);
        Ok(())
    }

    /// Have the address of the server, or ask for it.
    fn find_server(&mut self, config: &Config, host: &mut dyn Host) -> Result<(), ErrorCode> {
        let now = host.now();
        match &config.server {
            None => return Err(ErrorCode::Other("server: missing".to_owned())),
            Some(Destination::Address(address)) => self.server.address = Some(*address),
            Some(Destination::Name(name, port)) => {
                let fresh = self.server.since.is_some_and(|since| since + FRESH > now);
                if self.server.lookup.is_none() && !fresh {
                    self.server.lookup = Some(host.lookup(name, *port, LOOKUP)?);
                }
            }
        }
        Ok(())
    }

    /// There may be an answer to who looks up the server. Fails if nobody knows where it is.
    pub fn looked_up(&mut self, now: Instant) -> Result<(), ErrorCode> {
        let Some(lookup) = &mut self.server.lookup else {
            return Ok(());
        };
        let found = match lookup.addresses() {
            Ok(None) => return Ok(()),
            Ok(Some(addresses)) => addresses
                .first()
                .copied()
                .ok_or(ErrorCode::NameUnresolvable),
            Err(error) => Err(error),
        };
        self.server.lookup = None;
        match (found, self.server.address) {
            (Ok(address), _) => self.server.address = Some(address),
            // What it was before is better than nothing.
            (Err(_), Some(_)) => {}
            (Err(error), None) => return Err(error),
        }
        self.server.since = Some(now);
        Ok(())
    }

    /// Whether the server's address is known.
    pub fn has_server(&self) -> bool {
        self.server.address.is_some()
    }

    /// The numbers of the flows.
    pub fn flows(&self) -> Vec<u64> {
        self.flows.keys().copied().collect()
    }

    /// Whether a datagram from there is an answer.
    pub fn is_from_server(&self, remote: SocketAddr) -> bool {
        let server = self.server.address;
        !self.flows.is_empty() && server.is_some_and(|server| packet::is_same(server, remote))
    }

    /// Open an answer. Returns the flow that it is for, and what it says.
    pub fn open_answer<'a>(
        &mut self,
        config: &Config,
        datagram: &'a mut [u8],
    ) -> Result<(u64, &'a [u8]), Refused> {
        if !config.method.is_2022() {
            let (salt, opened) = packet::open_2017(config.method, config.last_key(), datagram)?;
            if !self.salts.admit(salt.bytes(), 0) {
                return Err(Refused::Replayed);
            }
            let number = self.route(opened.address).ok_or(Refused::Answer)?;
            return Ok((number, opened.payload));
        }
        let announced = packet::announced_answer(config, datagram)?;
        let header = announced.header;
        let known = self.by_answer.get(&header.session).copied();
        if let Some((number, flow)) =
            known.and_then(|number| Some((number, self.flows.get_mut(&number)?)))
            && let Some((session, window)) = flow
                .answering
                .iter_mut()
                .find(|(session, _)| session.id == header.session)
        {
            if !window.is_new(header.packet) {
                return Err(Refused::Replayed);
            }
            let opened = packet::open(config.method, &announced, session, true, datagram)?;
            if self.by_session.get(&opened.answers.unwrap_or_default()) != Some(&number) {
                return Err(Refused::Answer);
            }
            window.admit(header.packet);
            return Ok((number, opened.payload));
        }
        let session = packet::Session::new(config.method, config.last_key(), header.session);
        let opened = packet::open(config.method, &announced, &session, true, datagram)?;
        let number = opened
            .answers
            .and_then(|id| self.by_session.get(&id).copied());
        let (number, flow) = number
            .and_then(|number| Some((number, self.flows.get_mut(&number)?)))
            .ok_or(Refused::Answer)?;
        let mut window = Window::default();
        if !window.admit(header.packet) {
            return Err(Refused::Replayed);
        }
        flow.answering.insert(0, (session, window));
        self.by_answer.insert(header.session, number);
        for (old, _) in flow.answering.drain(ANSWERING.min(flow.answering.len())..) {
            self.by_answer.remove(&old.id);
        }
        Ok((number, opened.payload))
    }

    /// SIP004: the flow that an answer from there is for. One to a name is known by its port,
    /// if no other one is to a name with that port.
    fn route(&self, address: Destination) -> Option<u64> {
        if let Some(&number) = self.by_address.get(&address) {
            return Some(number);
        }
        let Destination::Address(address) = address else {
            return None;
        };
        match self.by_port.get(&address.port())?.as_slice() {
            &[number] => Some(number),
            _ => None,
        }
    }

    /// Queue what a flow says.
    pub fn seal(
        &mut self,
        config: &Config,
        number: u64,
        payload: &[u8],
        out: &mut Outgoing,
    ) -> bool {
        let (Some(flow), Some(server)) = (self.flows.get_mut(&number), self.server.address) else {
            return false;
        };
        let salts = &mut self.salts;
        match &flow.session {
            Some(session) => {
                let packet = flow.next;
                flow.next += 1;
                out.push(server, payload.len(), |to| {
                    let message = packet::Message {
                        packet,
                        answers: None,
                        address: &flow.address,
                        payload,
                    };
                    packet::seal(config, &config.keys, session, &message, to);
                })
            }
            None => out.push(server, payload.len(), |to| {
                let key = config.last_key();
                let salt = packet::seal_2017(config.method, key, &flow.address, payload, to);
                salts.admit(salt.bytes(), 0);
            }),
        }
    }

    /// End a flow.
    pub fn remove(&mut self, number: u64) {
        let Some(flow) = self.flows.remove(&number) else {
            return;
        };
        if let Some(session) = &flow.session {
            self.by_session.remove(&session.id);
        }
        for (session, _) in &flow.answering {
            self.by_answer.remove(&session.id);
        }
        if self.by_address.get(&flow.destination) == Some(&number) {
            self.by_address.remove(&flow.destination);
        }
        if let Destination::Name(_, port) = flow.destination
            && let Some(numbers) = self.by_port.get_mut(&port)
        {
            numbers.retain(|&other| other != number);
            if numbers.is_empty() {
                self.by_port.remove(&port);
            }
        }
    }

    /// End all flows.
    pub fn clear(&mut self) {
        let salts = std::mem::replace(&mut self.salts, Salts::new(false));
        *self = Client {
            salts,
            ..Client::default()
        };
    }
}
