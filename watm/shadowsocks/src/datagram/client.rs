//! The datagram flows that the application dials through a server.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{Destination, ErrorCode, Host, Instant, Lookup};
use watm_stream::Outgoing;

use super::window::Window;
use super::{LOOKUP, packet};
use crate::config::Config;
use crate::refused::Refused;
use crate::salts::Salts;

/// The server's sessions in which one flow may be answered: a restarted server has a new one, while
/// answers of the old one are on their way.
const ANSWERING: usize = 2;

/// A client's flows. Each is its own session, so that an answer of the server identifies its flow.
/// Methods of SIP004 have no sessions, and the answer's address identifies the flow.
pub struct Client {
    flows: BTreeMap<u64, Flow>,
    server: Server,
    /// The flow of a client session, and of a server session (SIP022).
    by_session: HashMap<u64, u64>,
    by_answer: HashMap<u64, u64>,
    /// The flows by destination (SIP004).
    by_address: HashMap<Destination, u64>,
    /// The flows to names, by port: their answers come from an address.
    by_port: BTreeMap<u16, Vec<u64>>,
    /// The salts of datagrams of SIP004.
    salts: Salts,
}

struct Flow {
    destination: Destination,
    address: Vec<u8>,
    /// The session (SIP022).
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

/// The time for which the address of the server's name is used for new flows.
const FRESH: Duration = Duration::from_secs(300);

/// The address of the server.
#[derive(Default)]
struct Server {
    address: Option<SocketAddr>,
    /// The time of the last lookup.
    since: Option<Instant>,
    lookup: Option<Box<dyn Lookup>>,
}

impl Client {
    /// Take over the salts of the generation before.
    pub fn succeed(&mut self, salts: Salts) {
        self.salts = salts;
    }

    /// The remembered salts.
    pub fn salts(&self) -> &Salts {
        &self.salts
    }

    /// Open the flow with this number.
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

    /// Find the address of the server, or begin a lookup.
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

    /// Handle a possible answer to the lookup of the server. Fails if its address is unknown.
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
            // Keep the old address if the lookup fails.
            (Err(_), Some(_)) => {}
            (Err(error), None) => return Err(error),
        }
        self.server.since = Some(now);
        Ok(())
    }

    /// Returns true if the server's address is known.
    pub fn has_server(&self) -> bool {
        self.server.address.is_some()
    }

    /// The numbers of the flows.
    pub fn flows(&self) -> Vec<u64> {
        self.flows.keys().copied().collect()
    }

    /// Returns true if a datagram from this address is an answer.
    pub fn is_from_server(&self, remote: SocketAddr) -> bool {
        let server = self.server.address;
        !self.flows.is_empty() && server.is_some_and(|server| packet::is_same(server, remote))
    }

    /// Open an answer. Returns its flow and its payload.
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

    /// Finds the flow of an answer from this address (SIP004). A flow to a name is found by its
    /// port, if no other flow goes to a name with that port.
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

    /// Queue a datagram of a flow. Returns false if it cannot be queued.
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
                out.push(server, payload.len() + packet::OVERHEAD, |to| {
                    let message = packet::Message {
                        packet,
                        answers: None,
                        address: &flow.address,
                        payload,
                    };
                    packet::seal(config, &config.keys, session, &message, to);
                })
            }
            None => out.push(server, payload.len() + packet::OVERHEAD, |to| {
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
