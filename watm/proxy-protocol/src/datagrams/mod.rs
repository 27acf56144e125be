//! Datagrams of clients behind a proxy, as one flow for each client. Used by `transport`.

mod handover;
mod opening;
mod outgoing;
mod table;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use watm_core::{
    ConfigError, Datagram, DatagramSocket, ErrorCode, FlowInfo, Host, Instant, Level, StartOptions,
    Token, Wakeup,
};

use crate::account::{Account, Event};
use crate::config::{Config, Mode};
use crate::facts::Facts;
use crate::reason::Reason;
use crate::spp::{SPP_LENGTH, write_spp};
use opening::open;
use outgoing::Outgoing;
use table::{Association, Key, Table};

/// The label of the socket.
const LABEL: &str = "listen";

/// The target of log records.
const TARGET: &str = "datagrams";

/// The bit of all tokens here: the socket's token has no other bit, an association's adds its
/// number.
const TOKENS: Token = 1 << 62;

/// The datagrams and bytes requested in one receive, and the receives in one turn: a few
/// milliseconds' work.
const RECEIVE_DATAGRAMS: u32 = 512;
const RECEIVE_BYTES: u32 = 512 << 10;
const RECEIVE_ROUNDS: usize = 4;

/// The longest datagram in bytes. A receive with less room left may have left one in the socket.
const LARGEST: usize = 65_535;

/// The datagrams and bytes requested from an application's flow at once: one of the longest fits.
const FLOW_DATAGRAMS: u32 = 64;
const FLOW_BYTES: u32 = 128 << 10;

/// The memory that a flow keeps for its next datagrams: a few of the usual size.
const KEPT_BYTES: usize = 4 << 10;

/// The flows read in one turn, each once or twice.
const TURNS: usize = 1024;

/// The socket, and the clients behind the proxies that send to it.
pub struct Datagrams {
    socket: Box<dyn DatagramSocket>,
    local: SocketAddr,
    config: Rc<Config>,
    account: Rc<Account>,
    table: Table,
    /// Flows that the application has written to, each once.
    due: VecDeque<u64>,
    readable: bool,
    outgoing: Outgoing,
    /// The addresses of the generation before whose datagrams come without a header, and the end of
    /// their validity.
    remembered: BTreeMap<SocketAddr, Key>,
    remembered_until: Instant,
    generation: u32,
    retired: bool,
}

impl Datagrams {
    /// Returns true if the token belongs to datagrams.
    pub fn is_token(token: Token) -> bool {
        token & TOKENS != 0
    }

    /// Takes the socket granted as `listen`. `None` if there is none.
    pub fn start(
        config: Rc<Config>,
        account: Rc<Account>,
        options: &StartOptions,
        host: &mut dyn Host,
    ) -> Result<Option<Datagrams>, ConfigError> {
        let socket = match host.datagram_socket(LABEL, TOKENS) {
            Ok(socket) => socket,
            Err(ErrorCode::AccessDenied) => return Ok(None),
            Err(error) => {
                return Err(ConfigError::Other(format!(
                    "the datagram socket granted as '{LABEL}': {error}"
                )));
            }
        };
        let snapshot = options.predecessor.as_deref().unwrap_or_default();
        Ok(Some(Datagrams {
            local: socket.local_address(),
            socket,
            account,
            table: Table::default(),
            due: VecDeque::new(),
            readable: true,
            outgoing: Outgoing::default(),
            remembered: handover::read(snapshot, config.datagrams.flows),
            remembered_until: host.now() + config.datagrams.idle,
            config,
            generation: options.generation,
            // Until a call of `serving` says otherwise.
            retired: options.predecessor.is_some(),
        }))
    }

    /// Replace the configuration, from the next datagram on.
    pub fn reconfigure(&mut self, config: Rc<Config>) {
        self.config = config;
    }

    pub fn serving(&mut self, generation: u32) {
        self.retired = generation != self.generation;
        self.readable = true;
    }

    pub fn snapshot(&self) -> Vec<u8> {
        handover::write(self.table.bound())
    }

    /// The number of open flows.
    pub fn flows(&self) -> usize {
        self.table.len()
    }

    /// See [`watm_core::Transport::process`].
    pub fn process(&mut self, ready: impl Iterator<Item = Token>, host: &mut dyn Host) -> Wakeup {
        for token in ready {
            match token & !TOKENS {
                0 => {
                    self.readable = true;
                    self.outgoing.unblock();
                }
                number => self.enqueue(number),
            }
        }
        self.receive(host);
        self.send(host.now());
        self.expire(host.now());
        self.wakeup()
    }

    fn receive(&mut self, host: &mut dyn Host) {
        let mut touched = Vec::new();
        for _ in 0..RECEIVE_ROUNDS {
            if !self.readable {
                return;
            }
            // An error means that the socket is gone.
            let batch = self
                .socket
                .receive(RECEIVE_DATAGRAMS, RECEIVE_BYTES)
                .unwrap_or_default();
            self.readable = batch.datagrams.len() == RECEIVE_DATAGRAMS as usize
                || batch.payload.len() + LARGEST > RECEIVE_BYTES as usize;
            for (entry, datagram) in batch.iter() {
                match self.take(entry, datagram, host) {
                    Ok(Some(number)) => touched.push(number),
                    Ok(None) => {}
                    Err(reason) => {
                        self.account.refused(reason);
                        if host.log_enabled(Level::Debug) {
                            let text = format!("a datagram from {}: {reason}", entry.remote);
                            host.log(Level::Debug, TARGET, &text);
                        }
                    }
                }
            }
            for number in touched.drain(..) {
                self.deliver(number);
            }
        }
    }

    /// Gather a datagram for its association. Returns the association's number for its first
    /// datagram.
    fn take(
        &mut self,
        entry: &Datagram,
        datagram: &[u8],
        host: &mut dyn Host,
    ) -> Result<Option<u64>, Reason> {
        if !self.config.from.admit(Some(entry.remote)) {
            return Err(Reason::Source);
        }
        let first = self.config.datagrams.mode == Mode::First;
        let bound = if first { self.bound(entry, host) } else { None };
        let (number, payload) = match bound {
            Some(number) => (number, datagram),
            None => {
                let config = self.config.clone();
                let opened = open(datagram, &config)?;
                let key = self.key(entry, opened.ends);
                let number = match self.table.of_key(&key) {
                    Some(number) => Some(number),
                    None => self.associate(key, &opened.facts(), entry, host),
                };
                let Some(number) = number else {
                    return Ok(None);
                };
                if first {
                    self.table.bind_proxy(entry.remote, number, host.now());
                }
                (number, opened.payload)
            }
        };
        let idle = self.config.datagrams.idle;
        let Some(association) = self.table.touch(number, host.now(), idle) else {
            return Ok(None);
        };
        association.proxy = entry.remote;
        association.local = entry.local;
        association.gathered.push(payload);
        self.account
            .bytes(association.key.client.ip(), payload.len(), 0);
        Ok((association.gathered.lengths.len() == 1).then_some(number))
    }

    /// The association whose datagrams come from this address without a header.
    fn bound(&mut self, entry: &Datagram, host: &mut dyn Host) -> Option<u64> {
        let (now, idle) = (host.now(), self.config.datagrams.idle);
        if let Some(number) = self.table.of_proxy(&entry.remote, now, idle) {
            return Some(number);
        }
        let key = self.remembered.remove(&entry.remote)?;
        if host.now() > self.remembered_until {
            self.remembered.clear();
            return None;
        }
        let number = match self.table.of_key(&key) {
            Some(number) => number,
            None => {
                let facts = Facts::between(key.client, key.destination);
                self.associate(key, &facts, entry, host)?
            }
        };
        self.table.bind_proxy(entry.remote, number, host.now());
        Some(number)
    }

    fn key(&self, entry: &Datagram, ends: Option<(SocketAddr, SocketAddr)>) -> Key {
        let (client, destination) = ends.unwrap_or((entry.remote, self.local_of(entry)));
        Key {
            proxy: entry.remote.ip(),
            client,
            destination,
        }
    }

    /// The local address that a datagram was sent to.
    fn local_of(&self, entry: &Datagram) -> SocketAddr {
        let address: IpAddr = entry.local.unwrap_or(self.local.ip());
        SocketAddr::new(address, self.local.port())
    }

    /// Offer a flow to the application. `None` if it refuses.
    fn associate(
        &mut self,
        key: Key,
        facts: &Facts,
        entry: &Datagram,
        host: &mut dyn Host,
    ) -> Option<u64> {
        while self.table.len() >= self.config.datagrams.flows
            && let Some((_, oldest)) = self.table.oldest()
        {
            self.account.count(Event::Displaced);
            self.table.remove(oldest);
        }
        let local = self.local_of(entry);
        let mut info = FlowInfo {
            source: key.client,
            destination: key.destination.into(),
            peer: None,
            underlay: Some((entry.remote, local)),
            attributes: Vec::new(),
        };
        facts.describe(&mut info, &[]);
        let Ok(flow) = host.open_datagrams(&info, TOKENS | self.table.next()) else {
            self.account.count(Event::NotTaken);
            return None;
        };
        self.account.count(Event::Datagrams);
        let association = Association::new(key, entry.remote, entry.local, flow, host.now());
        Some(self.table.insert(association))
    }

    /// Hand the gathered datagrams to the application.
    fn deliver(&mut self, number: u64) {
        let Some(association) = self.table.get(number) else {
            return;
        };
        let gathered = &mut association.gathered;
        match association.flow.send(gathered) {
            Ok(taken) => {
                for _ in taken as usize..gathered.lengths.len() {
                    self.account.count(Event::Overrun);
                }
                let lengths = gathered.lengths.capacity() * size_of::<u32>();
                match gathered.payload.capacity().max(lengths) > KEPT_BYTES {
                    true => *gathered = watm_core::Datagrams::default(),
                    false => {
                        gathered.payload.clear();
                        gathered.lengths.clear();
                    }
                }
            }
            // The application has closed the flow; the client's next datagram opens another one.
            Err(_) => self.table.remove(number),
        }
    }

    fn enqueue(&mut self, number: u64) {
        if let Some(association) = self.table.get(number)
            && !std::mem::replace(&mut association.queued, true)
        {
            self.due.push_back(number);
        }
    }

    /// Move the application's datagrams to the network.
    fn send(&mut self, now: Instant) {
        self.outgoing.flush(&mut *self.socket);
        for _ in 0..self.due.len().min(TURNS) {
            if self.outgoing.is_blocked() {
                return;
            }
            let Some(number) = self.due.pop_front() else {
                break;
            };
            self.send_of(number, now);
            if self.outgoing.is_full() {
                self.outgoing.flush(&mut *self.socket);
            }
        }
        self.outgoing.flush(&mut *self.socket);
    }

    fn send_of(&mut self, number: u64, now: Instant) {
        let Some(association) = self.table.get(number) else {
            return;
        };
        association.queued = false;
        let Ok(Some(datagrams)) = association.flow.receive(FLOW_DATAGRAMS, FLOW_BYTES) else {
            // The application has closed the flow.
            self.table.remove(number);
            return;
        };
        if datagrams.lengths.is_empty() {
            return;
        }
        let header = spp_header(&self.config, &association.key);
        let header = header.as_ref().map_or(&[][..], |header| header);
        for datagram in datagrams.iter() {
            self.outgoing
                .push(header, datagram, association.proxy, association.local);
        }
        let client = association.key.client.ip();
        self.account.bytes(client, 0, datagrams.payload.len());
        let proxy = association.proxy;
        self.table.touch(number, now, self.config.datagrams.idle);
        self.table.touch_proxy(&proxy, now);
        // The token announces the remaining datagrams, unless this read was full.
        if datagrams.lengths.len() == FLOW_DATAGRAMS as usize {
            self.enqueue(number);
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((since, number)) = self.table.oldest()
            && since + self.config.datagrams.idle <= now
        {
            self.account.count(Event::Idle);
            self.table.remove(number);
        }
    }

    fn wakeup(&self) -> Wakeup {
        if self.retired && self.table.is_empty() && self.outgoing.is_empty() {
            return Wakeup::Finished;
        }
        if self.readable || !self.due.is_empty() && !self.outgoing.is_blocked() {
            return Wakeup::Again;
        }
        match self.table.oldest() {
            Some((since, _)) => Wakeup::At(since + self.config.datagrams.idle),
            None => Wakeup::OnReady,
        }
    }
}

/// The header of an answer.
fn spp_header(config: &Config, key: &Key) -> Option<[u8; SPP_LENGTH]> {
    let spp = config.datagrams.mode == Mode::Spp;
    spp.then(|| write_spp(key.client, key.destination))
}
