//! Datagrams over one socket: a server's, from many clients, and a client's, to one server. Used by
//! `snapshot` and `transport`.

mod client;
mod packet;
mod remembered;
mod server;
mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use watm_core::{
    DatagramFlow, DatagramSocket, Datagrams as Batch, Destination, ErrorCode, Host, Instant, Level,
    Token, Wakeup,
};
use watm_stream::Outgoing;

use self::client::Client;
pub(crate) use self::remembered::Remembered;
use self::server::Server;
use crate::config::Config;
use crate::refused::Refused;

/// The top bit, which tokens of datagrams have and those of streams have not.
const OURS: Token = 1 << 63;

/// The target of log records.
const TARGET: &str = "shadowsocks";

/// The socket's token.
pub const SOCKET: Token = OURS;

/// The token of the lookup of the server's name. No flow's number is as high.
const LOOKUP: Token = OURS | 1 << 62;

/// The most flows at a time. Each belongs to a holder of a key.
const MAX_FLOWS: usize = 16_384;

/// The most that one call receives: about two hundred full packets, about a millisecond's work.
const RECEIVE_DATAGRAMS: u32 = 64;
const RECEIVE_BYTES: u32 = 128 << 10;
const RECEIVE_ROUNDS: usize = 4;

/// Flows whose application is read in one call, and the reads of each.
const TURNS: usize = 256;
const FLOW_ROUNDS: usize = 4;

/// The time that the flows of a replaced module have for datagrams on their way.
const RETIRED: Duration = Duration::from_secs(5);

/// Counts of events, reported in the status.
#[derive(Debug, Default)]
struct Counters {
    received: u64,
    sent: u64,
    /// Datagrams of strangers, or damaged ones.
    refused: u64,
    replays: u64,
    /// Datagrams dropped because the application took no more of a flow, or no more flows.
    dropped: u64,
    /// Datagrams dropped because the network took no more.
    unsent: u64,
}

/// A flow of the application.
struct Flow {
    stream: Box<dyn DatagramFlow>,
    owner: Owner,
    /// The time when a datagram last moved.
    active: Instant,
    queued: bool,
}

/// The owner of a flow.
enum Owner {
    /// A client of this server: the number of its session, and the destination, encoded as in
    /// SOCKS5 and parsed.
    Session(u64, Vec<u8>, Destination),
    /// The application, which dialled it.
    Dialled,
}

/// All datagram flows, of the server and of the client.
pub struct Datagrams {
    config: Rc<Config>,
    socket: Outgoing,
    local: SocketAddr,
    readable: bool,
    flows: BTreeMap<u64, Flow>,
    /// The number of the last flow or session.
    last: u64,
    /// Flows in which the application may have sent something.
    due: VecDeque<u64>,
    /// The times at which to check a flow or a session. Active ones are rescheduled then.
    deadlines: BTreeSet<(Instant, u64)>,
    server: Server,
    client: Client,
    retired: bool,
    counters: Counters,
}

impl Datagrams {
    /// Makes the flows of this socket.
    pub fn new(config: Rc<Config>, socket: Box<dyn DatagramSocket>, serves: bool) -> Datagrams {
        Datagrams {
            local: socket.local_address(),
            socket: Outgoing::new(socket),
            readable: serves,
            flows: BTreeMap::new(),
            last: 0,
            due: VecDeque::new(),
            deadlines: BTreeSet::new(),
            server: Server::default(),
            client: Client::default(),
            retired: !serves,
            counters: Counters::default(),
            config,
        }
    }

    /// Returns true if this token belongs to datagrams.
    pub fn owns(token: Token) -> bool {
        token & OURS != 0
    }

    /// Take over the memory of the generation before.
    pub fn succeed(&mut self, remembered: Remembered, now: Instant) {
        self.client.succeed(remembered.client);
        self.server
            .succeed(remembered.server, remembered.windows, now);
    }

    /// Append the state that [`Remembered::read`] reads.
    pub fn snapshot(&self, now: Instant, to: &mut Vec<u8>) {
        let (server, client) = (self.server.salts(), self.client.salts());
        Remembered::write(server, client, self.server.windows(now), to);
    }

    /// Replace the configuration. Sessions whose key is gone end.
    pub fn reconfigure(&mut self, config: Rc<Config>) {
        self.config = config;
        self.server.reconfigure(&self.config);
        self.client.clear();
        let (flows, server) = (&mut self.flows, &self.server);
        flows.retain(|_, flow| match &flow.owner {
            Owner::Session(session, ..) => server.has(*session),
            Owner::Dialled => false,
        });
    }

    /// Record whether another generation serves from now on. The flows dialled here end then,
    /// because their answers would go to that generation.
    pub fn set_retired(&mut self, retired: bool, now: Instant) {
        self.retired = retired;
        self.readable = !retired;
        if retired {
            for number in self.client.flows() {
                self.remove(number);
            }
            let due = now + RETIRED;
            self.deadlines
                .extend(self.flows.keys().map(|&number| (due, number)));
        }
    }

    /// Open a flow to the server in the configuration.
    pub fn dial(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn DatagramFlow>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        let destination = destination.or(self.config.target.as_ref()).ok_or_else(|| {
            ErrorCode::Other("target: missing, and no destination was given".to_owned())
        })?;
        if self.flows.len() >= MAX_FLOWS {
            return Err(ErrorCode::LimitReached);
        }
        let number = self.last + 1;
        self.client.open(&self.config, number, destination, host)?;
        self.insert(application, Owner::Dialled, host.now());
        Ok(OURS | number)
    }

    /// Make progress on these tokens, and on due timers.
    pub fn process(&mut self, ready: &[Token], host: &mut dyn Host) {
        for &token in ready.iter().filter(|&&token| Datagrams::owns(token)) {
            match token {
                SOCKET => {
                    self.readable = !self.retired;
                    self.socket.unblock();
                }
                LOOKUP => self.looked_up(host),
                _ => self.enqueue(token & !OURS),
            }
        }
        self.receive(host);
        self.send(host.now());
        self.expire(host.now());
        self.counters.unsent += self.socket.flush();
    }

    /// The time of the next call.
    pub fn wakeup(&self) -> Wakeup {
        if self.readable || !self.due.is_empty() && !self.socket.is_blocked() {
            return Wakeup::Again;
        }
        if self.retired && self.flows.is_empty() {
            return Wakeup::Finished;
        }
        match self.deadlines.first() {
            Some(&(due, _)) => Wakeup::At(due),
            None => Wakeup::OnReady,
        }
    }

    /// The number of open flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Counters by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("datagrams.received", self.counters.received),
            ("datagrams.sent", self.counters.sent),
            ("datagrams.refused", self.counters.refused),
            ("datagrams.replays", self.counters.replays),
            ("datagrams.dropped", self.counters.dropped),
            ("datagrams.unsent", self.counters.unsent),
            ("datagrams.sessions", self.server.len() as u64),
        ]
    }

    /// Handle the result of the lookup: the waiting flows continue, or end.
    fn looked_up(&mut self, host: &mut dyn Host) {
        let found = self.client.looked_up(host.now());
        for number in self.client.flows() {
            match found {
                Ok(()) => self.enqueue(number),
                Err(_) => self.remove(number),
            }
        }
        if let Err(error) = found
            && host.log_enabled(Level::Warn)
        {
            host.log(Level::Warn, TARGET, &format!("server: {error}"));
        }
    }

    fn insert(&mut self, stream: Box<dyn DatagramFlow>, owner: Owner, now: Instant) -> u64 {
        self.last += 1;
        let flow = Flow {
            stream,
            owner,
            active: now,
            queued: false,
        };
        self.flows.insert(self.last, flow);
        self.deadlines
            .insert((now + self.config.udp_idle_timeout, self.last));
        self.enqueue(self.last);
        self.last
    }

    fn enqueue(&mut self, number: u64) {
        if let Some(flow) = self.flows.get_mut(&number)
            && !std::mem::replace(&mut flow.queued, true)
        {
            self.due.push_back(number);
        }
    }

    /// Receive from the network.
    fn receive(&mut self, host: &mut dyn Host) {
        let mut arrived: BTreeMap<u64, Batch> = BTreeMap::new();
        let mut buffer = Vec::new();
        for _ in 0..RECEIVE_ROUNDS {
            if !self.readable {
                break;
            }
            let batch = match self.socket.receive(RECEIVE_DATAGRAMS, RECEIVE_BYTES) {
                Ok(batch) if !batch.is_empty() => batch,
                _ => {
                    self.readable = false;
                    break;
                }
            };
            for (info, datagram) in batch.iter() {
                buffer.clear();
                buffer.extend_from_slice(datagram);
                match self.take(info.remote, &mut buffer, &mut arrived, host) {
                    Ok(()) => self.counters.received += 1,
                    Err(Refused::Replayed) => self.counters.replays += 1,
                    Err(_) => self.counters.refused += 1,
                }
            }
        }
        for (number, batch) in arrived {
            let Some(flow) = self.flows.get_mut(&number) else {
                continue;
            };
            flow.active = host.now();
            let taken = flow.stream.send(&batch).unwrap_or(0) as usize;
            self.counters.dropped += batch.lengths.len().saturating_sub(taken) as u64;
        }
    }

    /// Handle one datagram. `arrived` collects the payloads by flow.
    fn take(
        &mut self,
        remote: SocketAddr,
        datagram: &mut [u8],
        arrived: &mut BTreeMap<u64, Batch>,
        host: &mut dyn Host,
    ) -> Result<(), Refused> {
        if self.client.is_from_server(remote) {
            let (number, payload) = self.client.open_answer(&self.config, datagram)?;
            arrived.entry(number).or_default().push(payload);
            return Ok(());
        }
        if !self.config.mode.datagrams() {
            return Err(Refused::Kind);
        }
        let (session, opened) =
            self.server
                .open(&self.config, remote, datagram, &mut self.last, host.now())?;
        let number = match self.server.flow(session, &opened.address) {
            Some(number) => number,
            None => {
                let has_room = self.flows.len() < MAX_FLOWS && self.server.has_room(session);
                let offered = match has_room {
                    true => {
                        let info = self.server.info(session, &opened.address, self.local);
                        let token = OURS | (self.last + 1);
                        host.open_datagrams(&info, token).ok()
                    }
                    false => None,
                };
                let Some((stream, address)) = offered.zip(packet::written(&opened.address)) else {
                    self.counters.dropped += 1;
                    // A session without a flow ends by this deadline.
                    let due = host.now() + self.config.udp_idle_timeout;
                    self.deadlines.insert((due, session));
                    return Ok(());
                };
                let owner = Owner::Session(session, address, opened.address.clone());
                let number = self.insert(stream, owner, host.now());
                self.server.set_flow(session, opened.address, number);
                number
            }
        };
        arrived.entry(number).or_default().push(opened.payload);
        Ok(())
    }

    /// Send the datagrams of the application.
    fn send(&mut self, now: Instant) {
        for _ in 0..self.due.len().min(TURNS) {
            if self.socket.is_blocked() {
                return;
            }
            let Some(number) = self.due.pop_front() else {
                return;
            };
            if let Some(flow) = self.flows.get_mut(&number) {
                flow.queued = false;
            }
            for round in 0..FLOW_ROUNDS {
                match self.send_some(number, now) {
                    Sent::All => break,
                    Sent::Ended => {
                        self.remove(number);
                        break;
                    }
                    Sent::Some if round + 1 == FLOW_ROUNDS => self.enqueue(number),
                    Sent::Some => {}
                }
            }
        }
    }

    fn send_some(&mut self, number: u64, now: Instant) -> Sent {
        let Some(flow) = self.flows.get_mut(&number) else {
            return Sent::All;
        };
        if matches!(flow.owner, Owner::Dialled) && !self.client.has_server() {
            // The application is read once the server's address is known.
            return Sent::All;
        }
        let batch = match flow.stream.receive(RECEIVE_DATAGRAMS, RECEIVE_BYTES) {
            Ok(Some(batch)) => batch,
            Ok(None) | Err(_) => return Sent::Ended,
        };
        if batch.lengths.is_empty() {
            return Sent::All;
        }
        flow.active = now;
        for payload in batch.iter() {
            let sealed = match &flow.owner {
                Owner::Session(session, address, _) => {
                    self.server
                        .seal(&self.config, *session, address, payload, &mut self.socket)
                }
                Owner::Dialled => self
                    .client
                    .seal(&self.config, number, payload, &mut self.socket),
            };
            match sealed {
                true => self.counters.sent += 1,
                false => self.counters.unsent += 1,
            }
        }
        self.counters.unsent += self.socket.flush_if_full();
        Sent::Some
    }

    /// End flows and sessions after their idle timeout.
    fn expire(&mut self, now: Instant) {
        let idle = match self.retired {
            true => RETIRED,
            false => self.config.udp_idle_timeout,
        };
        while let Some(&(due, number)) = self.deadlines.first() {
            if due > now {
                return;
            }
            self.deadlines.pop_first();
            let active = match self.flows.get(&number) {
                Some(flow) => Some(flow.active),
                None => self.server.active(number),
            };
            match active {
                Some(active) if active + idle > now => {
                    self.deadlines.insert((active + idle, number));
                }
                Some(_) => self.remove(number),
                None => {}
            }
        }
    }

    /// End a flow or a session.
    fn remove(&mut self, number: u64) {
        match self.flows.remove(&number).map(|flow| flow.owner) {
            Some(Owner::Session(session, _, destination)) => {
                if let Some(due) = self.server.forget_flow(session, &destination) {
                    let due = due + self.config.udp_idle_timeout;
                    self.deadlines.insert((due, session));
                }
            }
            Some(Owner::Dialled) => self.client.remove(number),
            None => self.server.remove(number),
        }
    }
}

/// The part of a flow's datagrams that was sent.
enum Sent {
    All,
    Some,
    Ended,
}
