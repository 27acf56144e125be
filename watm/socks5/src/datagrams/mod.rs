//! Datagrams over one socket: those of clients, and those that the application sends through the proxy.

mod client;
mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use watm_core::{
    DatagramFlow, DatagramSocket, Datagrams as Batch, Destination, ErrorCode, Host, Instant, Level,
    Token, Wakeup,
};
use watm_socks_wire::{Unfit, split};
use watm_stream::{Outgoing, Streams};

use self::client::Client;
use self::server::Server;
use crate::codec::SocksStreams;
use crate::config::Config;
use crate::destination;
use crate::shared::{Event, Shared};

/// The top bit, which tokens of datagrams have and those of streams have not.
const OURS: Token = 1 << 63;

/// The bit of the token of a lookup for a flow. No flow's number is as high.
const LOOKUP: Token = 1 << 62;

/// The socket's token. No flow has the number 0.
pub const SOCKET: Token = OURS;

/// The target of log records.
const TARGET: &str = "socks5";

/// The most flows at a time.
const MAX_FLOWS: usize = 16_384;

/// The most that one call receives: about a millisecond's work.
const RECEIVE_DATAGRAMS: u32 = 64;
const RECEIVE_BYTES: u32 = 128 << 10;
const RECEIVE_ROUNDS: usize = 4;

/// Flows whose application is read in one call, and the reads of each.
const TURNS: usize = 256;
const FLOW_ROUNDS: usize = 4;

/// Counts of events, reported in the status.
#[derive(Debug, Default)]
struct Counters {
    received: u64,
    sent: u64,
    /// Datagrams of strangers, or without a header.
    refused: u64,
    fragments: u64,
    /// Datagrams dropped because the application took no more of a flow, or no more flows.
    dropped: u64,
    /// Datagrams dropped because the network took no more.
    unsent: u64,
}

/// A flow of the application.
struct Flow {
    stream: Box<dyn DatagramFlow>,
    owner: Owner,
    /// The header of its datagrams on the network.
    head: Vec<u8>,
    /// The time when a datagram last moved.
    active: Instant,
    queued: bool,
}

/// The owner of a flow.
enum Owner {
    /// A client of this server: its association, the address of its datagrams, and their destination.
    Association(u64, SocketAddr, Destination),
    /// The application, which dialled it.
    Dialled,
}

/// The reason why a datagram is dropped.
enum Refused {
    Stranger,
    Fragment,
    Full,
}

/// All datagram flows, of the server and of the client.
pub struct Datagrams {
    config: Rc<Config>,
    shared: Rc<Shared>,
    socket: Outgoing,
    local: SocketAddr,
    readable: bool,
    flows: BTreeMap<u64, Flow>,
    /// The number of the last flow.
    last: u64,
    /// Flows in which the application may have sent something.
    due: VecDeque<u64>,
    /// The times at which to check a flow. Active ones are rescheduled then.
    deadlines: BTreeSet<(Instant, u64)>,
    server: Server,
    client: Client,
    retired: bool,
    counters: Counters,
    /// The last reason for which the proxy has refused an association, so that the log has it once.
    complaint: Option<String>,
}

impl Datagrams {
    /// Makes the flows of this socket.
    pub fn new(streams: &SocksStreams, socket: Box<dyn DatagramSocket>, serves: bool) -> Datagrams {
        let local = socket.local_address();
        streams.shared().socket.set(Some(local));
        Datagrams {
            config: Rc::clone(streams.config()),
            shared: Rc::clone(streams.shared()),
            socket: Outgoing::new(socket),
            local,
            readable: serves,
            flows: BTreeMap::new(),
            last: 0,
            due: VecDeque::new(),
            deadlines: BTreeSet::new(),
            server: Server::default(),
            client: Client::default(),
            retired: !serves,
            counters: Counters::default(),
            complaint: None,
        }
    }

    /// Returns true if this token belongs to datagrams.
    pub fn owns(token: Token) -> bool {
        token & OURS != 0
    }

    /// Replace the configuration, for flows and associations that follow.
    pub fn reconfigure(&mut self, config: &Rc<Config>) {
        self.config = Rc::clone(config);
    }

    /// Record whether another generation serves from now on. All flows end then, because the socket is that generation's.
    pub fn set_retired(&mut self, retired: bool) {
        self.retired = retired;
        self.readable = !retired;
        if retired {
            self.flows.clear();
            self.server = Server::default();
            self.client = Client::default();
        }
    }

    /// Open a flow through the proxy in the configuration.
    pub fn dial(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn DatagramFlow>,
        streams: &mut Streams<SocksStreams>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        let proxy = self.config.proxy().map_err(ErrorCode::Other)?;
        let target = self.config.target(destination).map_err(ErrorCode::Other)?;
        let head = watm_socks_wire::head(destination::address(target))
            .ok_or(ErrorCode::InvalidArgument)?;
        if self.flows.len() >= MAX_FLOWS {
            return Err(ErrorCode::LimitReached);
        }
        let number = self.last + 1;
        self.client.open(number, proxy, target, streams, host)?;
        self.insert(application, Owner::Dialled, head, host.now());
        Ok(OURS | number)
    }

    /// Make progress on these tokens, and on due timers.
    pub fn process(
        &mut self,
        ready: &[Token],
        streams: &mut Streams<SocksStreams>,
        host: &mut dyn Host,
    ) {
        for &token in ready.iter().filter(|&&token| Datagrams::owns(token)) {
            let number = token & !(OURS | LOOKUP);
            if token == SOCKET {
                self.readable = !self.retired;
                self.socket.unblock();
            } else if token & LOOKUP != 0 {
                self.looked_up(number, streams, host);
            } else {
                self.enqueue(number);
            }
        }
        self.follow(streams, host);
        self.receive(host);
        self.send(streams, host.now());
        self.expire(streams, host.now());
        self.counters.unsent += self.socket.flush();
    }

    /// The time of the next call.
    pub fn wakeup(&self) -> Wakeup {
        if self.readable || !self.due.is_empty() && !self.socket.is_blocked() {
            return Wakeup::Again;
        }
        if self.retired {
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
            ("datagrams.fragments", self.counters.fragments),
            ("datagrams.dropped", self.counters.dropped),
            ("datagrams.unsent", self.counters.unsent),
            (
                "datagrams.associations",
                self.shared.clients.borrow().len() as u64,
            ),
        ]
    }

    /// Follow the news of associations.
    fn follow(&mut self, streams: &mut Streams<SocksStreams>, host: &mut dyn Host) {
        let ended = self.shared.clients.borrow_mut().take_ended();
        for number in ended
            .into_iter()
            .flat_map(|association| self.server.end(association))
        {
            self.flows.remove(&number);
        }
        for (number, event) in self.shared.take_events() {
            match event {
                Event::Ready(relay) => {
                    self.complaint = None;
                    let proxy = self.config.proxy.as_ref().map(|proxy| &proxy.address);
                    let begun = self.client.granted(number, relay, proxy, host);
                    self.went_on(number, begun, streams, host);
                }
                Event::Refused(why) => self.complain(&why, host),
                Event::Ended => self.remove(number, streams),
            }
        }
    }

    fn looked_up(&mut self, number: u64, streams: &mut Streams<SocksStreams>, host: &mut dyn Host) {
        let found = self.client.looked_up(number);
        self.went_on(number, found, streams, host);
    }

    /// Read the application of a flow whose relay has been found, or end the flow.
    fn went_on(
        &mut self,
        number: u64,
        result: Result<(), ErrorCode>,
        streams: &mut Streams<SocksStreams>,
        host: &mut dyn Host,
    ) {
        match result {
            Ok(()) => self.enqueue(number),
            Err(error) => {
                self.complain(&format!("the relay of the SOCKS5 proxy: {error}"), host);
                self.remove(number, streams);
            }
        }
    }

    /// Log why an association failed, unless that was the reason of the last failure.
    fn complain(&mut self, why: &str, host: &mut dyn Host) {
        if self.complaint.as_deref() != Some(why) {
            host.log(Level::Warn, TARGET, &format!("no UDP: {why}"));
            self.complaint = Some(why.to_owned());
        }
    }

    fn insert(
        &mut self,
        stream: Box<dyn DatagramFlow>,
        owner: Owner,
        head: Vec<u8>,
        now: Instant,
    ) -> u64 {
        self.last += 1;
        let flow = Flow {
            stream,
            owner,
            head,
            active: now,
            queued: false,
        };
        self.flows.insert(self.last, flow);
        self.deadlines
            .insert((now + self.config.udp_idle, self.last));
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
                match self.take(info.remote, datagram, host) {
                    Ok((number, payload)) => {
                        self.counters.received += 1;
                        arrived.entry(number).or_default().push(payload);
                    }
                    Err(Refused::Stranger) => self.counters.refused += 1,
                    Err(Refused::Fragment) => self.counters.fragments += 1,
                    Err(Refused::Full) => self.counters.dropped += 1,
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

    /// Finds the flow of one datagram, and its payload.
    fn take<'a>(
        &mut self,
        remote: SocketAddr,
        datagram: &'a [u8],
        host: &mut dyn Host,
    ) -> Result<(u64, &'a [u8]), Refused> {
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let is_relay = self.client.is_relay(remote);
        let association = match is_relay {
            true => None,
            false => Some(
                self.shared
                    .clients
                    .borrow_mut()
                    .find(remote)
                    .ok_or(Refused::Stranger)?,
            ),
        };
        let (address, payload) = split(datagram)?;
        let to = destination::of(address).ok_or(Refused::Stranger)?;
        let Some(association) = association else {
            let number = self.client.route(remote, &to).ok_or(Refused::Stranger)?;
            return Ok((number, payload));
        };
        if let Some(number) = self.server.flow(association, &to) {
            return Ok((number, payload));
        }
        if self.flows.len() >= MAX_FLOWS || !self.server.has_room(association) {
            return Err(Refused::Full);
        }
        let user = self.shared.clients.borrow().user(association).cloned();
        let info = server::info(remote, self.local, &to, user);
        let opened = host.open_datagrams(&info, OURS | (self.last + 1));
        let stream = opened.map_err(|_| Refused::Full)?;
        let head = datagram[..datagram.len() - payload.len()].to_vec();
        let owner = Owner::Association(association, remote, to.clone());
        let number = self.insert(stream, owner, head, host.now());
        self.server.insert(association, to, number);
        Ok((number, payload))
    }

    /// Send the datagrams of the application.
    fn send(&mut self, streams: &mut Streams<SocksStreams>, now: Instant) {
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
                        self.remove(number, streams);
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
        let to = match &flow.owner {
            Owner::Association(_, source, _) => *source,
            Owner::Dialled => match self.client.relay(number) {
                Some(relay) => relay,
                // The application is read once the place is known.
                None => return Sent::All,
            },
        };
        let batch = match flow.stream.receive(RECEIVE_DATAGRAMS, RECEIVE_BYTES) {
            Ok(Some(batch)) => batch,
            Ok(None) | Err(_) => return Sent::Ended,
        };
        if batch.lengths.is_empty() {
            return Sent::All;
        }
        flow.active = now;
        for payload in batch.iter() {
            let length = flow.head.len() + payload.len();
            let queued = self.socket.push(to, length, |out| {
                out.extend_from_slice(&flow.head);
                out.extend_from_slice(payload);
            });
            match queued {
                true => self.counters.sent += 1,
                false => self.counters.unsent += 1,
            }
        }
        self.counters.unsent += self.socket.flush_if_full();
        Sent::Some
    }

    /// End flows after their idle timeout.
    fn expire(&mut self, streams: &mut Streams<SocksStreams>, now: Instant) {
        let idle = self.config.udp_idle;
        while let Some(&(due, number)) = self.deadlines.first() {
            if due > now {
                return;
            }
            self.deadlines.pop_first();
            match self.flows.get(&number).map(|flow| flow.active + idle) {
                Some(due) if due > now => {
                    self.deadlines.insert((due, number));
                }
                Some(_) => self.remove(number, streams),
                None => {}
            }
        }
    }

    /// End a flow, and the association that was made for it.
    fn remove(&mut self, number: u64, streams: &mut Streams<SocksStreams>) {
        match self.flows.remove(&number).map(|flow| flow.owner) {
            Some(Owner::Association(association, _, destination)) => {
                self.server.forget(association, &destination)
            }
            Some(Owner::Dialled) => {
                if let Some(control) = self.client.remove(number) {
                    streams.end(control);
                }
            }
            None => {}
        }
    }
}

impl From<Unfit> for Refused {
    fn from(unfit: Unfit) -> Refused {
        match unfit {
            Unfit::Fragment => Refused::Fragment,
            Unfit::Malformed => Refused::Stranger,
        }
    }
}

/// The part of a flow's datagrams that was sent.
enum Sent {
    All,
    Some,
    Ended,
}
