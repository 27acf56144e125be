//! A stream transport as a [`Transport`]: the listener, the connections and their turns. The shells
//! of guests run it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{
    ByteStream, ClientConfig, ConfigError, Destination, ErrorCode, FlowInfo, Host, Instant, Level,
    Listener, StartOptions, Status, Token, Transport, Wakeup,
};

use crate::connection::{Connection, Step};
use crate::counters::Counters;
use crate::handshakes::Handshakes;
use crate::{Codec, Progress, StreamTransport};

/// The label of the listener.
const LABEL: &str = "listen";

/// The target of log records.
const TARGET: &str = "streams";

/// The listener's token. Connection n has 2n for the network, 2n + 1 for the application.
const LISTENER: Token = 0;

/// Connections accepted in one call. Fewer than [`TURNS`], so that a new connection is read before
/// many newer ones arrive.
const ACCEPTS: usize = 16;

/// Connections served in one call: with [`Relay::run`](crate::Relay::run)'s most bytes each, about
/// ten milliseconds' work.
const TURNS: usize = 32;

/// Accepted connections in a handshake. For one more, the oldest of the client that has the most
/// is closed. A client that takes all of them with silent connections thus displaces itself alone,
/// and a new connection has as long as it takes the client to open this many more.
const MAX_HANDSHAKES: usize = 1024;

/// The pause of accepting when the host is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A stream transport as a [`Transport`]. It accepts connections on the listener granted as
/// `listen`, if there is one, and dials the connections that the host requests.
///
/// At most 1,024 accepted connections are in their handshake. For one more, the oldest of the client
/// that has the most is closed. A client is an IPv4 address, or the first 64 bits of an IPv6
/// address.
pub struct Streams<T: StreamTransport> {
    transport: T,
    /// The listener with the address that it is bound to.
    listener: Option<(Box<dyn Listener>, SocketAddr)>,
    /// True if the listener may have a connection waiting.
    waiting: bool,
    /// The earliest time of the next accept, after an error of the listener.
    accept_from: Option<Instant>,
    /// The number among the generations behind the same listener, and true if another one serves.
    generation: u32,
    retired: bool,
    connections: BTreeMap<u64, Connection<T::Codec>>,
    /// The number of the last connection.
    last: u64,
    /// Connections with something to do, each once.
    due: VecDeque<u64>,
    /// The times at which to check a connection's limits. Entries of ended or active connections
    /// stay until then.
    deadlines: BTreeSet<(Instant, u64)>,
    handshakes: Handshakes,
    counters: Counters,
}

impl<T: StreamTransport> Transport for Streams<T> {
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError> {
        let mut transport = T::configure(&options.config)?;
        if let Some(snapshot) = &options.predecessor {
            transport.succeed(snapshot);
        }
        warn(transport.warnings(), host);
        let listener = match host.listener(LABEL, LISTENER) {
            Ok(listener) => {
                transport.check_accepting()?;
                let local = listener.local_address();
                Some((listener, local))
            }
            // Without a listener the transport only dials.
            Err(ErrorCode::AccessDenied) => None,
            Err(error) => {
                return Err(ConfigError::Other(format!(
                    "the listener granted as '{LABEL}': {error}"
                )));
            }
        };
        Ok(Streams {
            transport,
            waiting: listener.is_some(),
            accept_from: None,
            listener,
            generation: options.generation,
            // Until a call of `serving` says otherwise.
            retired: options.predecessor.is_some(),
            connections: BTreeMap::new(),
            last: 0,
            due: VecDeque::new(),
            deadlines: BTreeSet::new(),
            handshakes: Handshakes::default(),
            counters: Counters::default(),
        })
    }

    fn reconfigure(&mut self, config: &[u8], host: &mut dyn Host) -> Result<(), ConfigError> {
        if self.listener.is_some() {
            // Check before the configuration in force is replaced.
            T::configure(config)?.check_accepting()?;
        }
        self.transport.reconfigure(config)?;
        warn(self.transport.warnings(), host);
        Ok(())
    }

    fn snapshot(&mut self, _now: Instant) -> Vec<u8> {
        self.transport.snapshot()
    }

    fn process(&mut self, ready: &[Token], host: &mut dyn Host) -> Wakeup {
        for &token in ready {
            if token == LISTENER {
                self.waiting = true;
            } else if let Some(connection) = self.connections.get_mut(&(token / 2)) {
                match token % 2 {
                    0 => connection.ready.network = true,
                    _ => connection.ready.application = true,
                }
                connection.active = host.now();
                self.enqueue(token / 2);
            }
        }
        self.accept(host);
        for _ in 0..self.due.len().min(TURNS) {
            if let Some(number) = self.due.pop_front() {
                self.serve(number, host);
            }
        }
        self.expire(host);
        self.wakeup()
    }

    /// New connections go to the new generation. The connections are independent of each other, and
    /// the open ones stay until they end.
    fn serving(&mut self, generation: u32, _host: &mut dyn Host) {
        self.retired = generation != self.generation;
        self.waiting = !self.retired && self.listener.is_some();
    }

    fn dial(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn ByteStream>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        // An error of the transport says more than the lack of an address.
        let codec = self.transport.dial(destination)?;
        let outer = self.transport.outer(destination).ok_or_else(|| {
            ErrorCode::Other("no destination was given, and the configuration has none".to_owned())
        })?;
        let number = self.last + 1;
        let network = host.connect(&outer, number * 2)?;
        self.counters.dialled += 1;
        let now = host.now();
        let answer_by = now + self.transport.limits().answer;
        let dialled = Connection::dialled(codec, network, application, now, answer_by);
        self.insert(dialled);
        self.watch(number);
        Ok(number * 2 + 1)
    }

    fn status(&self, _now: Instant) -> Status {
        let open = self.connections.values().filter(|c| c.is_open()).count();
        Status {
            peers: Vec::new(),
            flows: u32::try_from(open).unwrap_or(u32::MAX),
            counters: [self.counters.named(), self.transport.counters()].concat(),
        }
    }

    fn client_configs(&self, public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        self.transport.client_configs(public)
    }
}

impl<T: StreamTransport> Streams<T> {
    /// The transport that makes the codecs.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Dial a connection that carries no flow of the application. Returns its number, for
    /// [`end`](Self::end).
    pub fn dial_control(
        &mut self,
        outer: &Destination,
        codec: T::Codec,
        host: &mut dyn Host,
    ) -> Result<u64, ErrorCode> {
        let network = host.connect(outer, (self.last + 1) * 2)?;
        self.counters.dialled += 1;
        let now = host.now();
        let answer_by = now + self.transport.limits().answer;
        let number = self.insert(Connection::control(codec, network, now, answer_by));
        self.watch(number);
        Ok(number)
    }

    /// End a connection, unless it has ended.
    pub fn end(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.expire();
            self.remove(number);
        }
    }

    /// End all connections that carry no flow.
    pub fn end_controls(&mut self) {
        let controls = self.connections.iter().filter(|(_, one)| one.is_control());
        let controls: Vec<u64> = controls.map(|(&number, _)| number).collect();
        controls.into_iter().for_each(|number| self.end(number));
    }

    /// Accept the connections that wait at the listener.
    fn accept(&mut self, host: &mut dyn Host) {
        let Some((listener, local)) = &mut self.listener else {
            return;
        };
        let local = *local;
        if self.accept_from.is_some_and(|from| host.now() < from) {
            return;
        }
        self.accept_from = None;
        let mut accepted = Vec::new();
        while self.waiting && accepted.len() < ACCEPTS {
            let number = self.last + 1 + accepted.len() as u64;
            match listener.accept(number * 2) {
                Ok(Some(network)) => accepted.push(network),
                Ok(None) => self.waiting = false,
                Err(error) => {
                    self.accept_from = Some(host.now() + ACCEPT_PAUSE);
                    host.log(Level::Debug, TARGET, &format!("cannot accept: {error}"));
                    break;
                }
            }
        }
        if !accepted.is_empty() {
            warn(self.transport.news(), host);
        }
        for network in accepted {
            self.counters.accepted += 1;
            let remote = network.remote_address();
            let codec = self.transport.accept(remote).inspect_err(|reason| {
                host.log(Level::Debug, TARGET, &format!("cannot accept: {reason}"));
            });
            let (Some(remote), Ok(codec)) = (remote, codec) else {
                // Dropping the stream resets it.
                self.counters.failed += 1;
                self.last += 1;
                continue;
            };
            let info = FlowInfo {
                source: remote,
                destination: Destination::Address(local),
                peer: None,
                underlay: Some((remote, local)),
                attributes: Vec::new(),
            };
            self.make_way();
            let now = host.now();
            let deadline = now + self.transport.handshake_timeout();
            let accepted = Connection::accepted(codec, network, info, now, deadline);
            let number = self.insert(accepted);
            self.handshakes.begin(number, remote.ip());
            self.watch(number);
        }
    }

    /// Closes a connection in its handshake if the limit is reached.
    fn make_way(&mut self) {
        if self.handshakes.len() < MAX_HANDSHAKES {
            return;
        }
        if let Some(number) = self.handshakes.first_to_close()
            && let Some(connection) = self.connections.get_mut(&number)
        {
            self.counters.handshakes_displaced += 1;
            connection.expire();
            self.remove(number);
        }
    }

    fn insert(&mut self, connection: Connection<T::Codec>) -> u64 {
        self.last += 1;
        self.connections.insert(self.last, connection);
        self.enqueue(self.last);
        self.last
    }

    fn enqueue(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number)
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.due.push_back(number);
        }
    }

    fn serve(&mut self, number: u64, host: &mut dyn Host) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.queued = false;
        match connection.step() {
            Ok(Step::Moved(Progress::Waiting)) => {}
            Ok(Step::Moved(Progress::Again)) => self.enqueue(number),
            Ok(Step::Moved(Progress::Done)) => {
                self.counters.completed += 1;
                // Both directions have ended, so that the removal is the regular end.
                self.remove(number);
            }
            Ok(Step::Established(info)) => self.open(number, &info, host),
            Err(reason) => {
                self.counters.failed += 1;
                tell(connection, host, &reason.to_string());
                self.remove(number);
            }
        }
    }

    /// Offer a connection to the application, unless it carries no flow.
    fn open(&mut self, number: u64, info: &FlowInfo, host: &mut dyn Host) {
        self.handshakes.end(number);
        if let Some(connection) = self.connections.get_mut(&number)
            && connection.is_control()
        {
            connection.hold();
            self.enqueue(number);
            return;
        }
        match host.open_stream(info, number * 2 + 1) {
            Ok(application) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.open(application);
                }
                self.watch(number);
                self.enqueue(number);
            }
            Err(reason) => {
                self.counters.refused += 1;
                if let Some(mut connection) = self.connections.remove(&number) {
                    connection.refuse(&reason);
                }
            }
        }
    }

    fn remove(&mut self, number: u64) {
        self.connections.remove(&number);
        self.handshakes.end(number);
    }

    /// The time at which a connection exceeds a limit, unless it moves data before.
    fn deadline(&self, connection: &Connection<T::Codec>) -> Option<Instant> {
        if let Some(deadline) = connection.handshake_deadline() {
            return Some(deadline);
        }
        let limits = self.transport.limits();
        let (since, active) = (connection.since, connection.active);
        let idle = limits.idle.map(|idle| active + idle);
        let lifetime = limits.lifetime.map(|lifetime| since + lifetime);
        idle.into_iter().chain(lifetime).min()
    }

    /// Schedule the check of a connection's limits.
    fn watch(&mut self, number: u64) {
        let connection = self.connections.get(&number);
        let deadline = connection.and_then(|connection| self.deadline(connection));
        self.deadlines
            .extend(deadline.map(|deadline| (deadline, number)));
    }

    /// End the connections that exceed a limit.
    fn expire(&mut self, host: &mut dyn Host) {
        while let Some(&(at, number)) = self.deadlines.first() {
            let connection = self.connections.get(&number);
            let deadline = connection.and_then(|connection| self.deadline(connection));
            // An entry of a connection that is gone or open makes room for others.
            if at > host.now() && deadline.is_some_and(|deadline| deadline >= at) {
                break;
            }
            self.deadlines.pop_first();
            match deadline {
                Some(deadline) if deadline <= host.now() => self.end_late(number, host),
                Some(deadline) => {
                    self.deadlines.insert((deadline, number));
                }
                None => {}
            }
        }
    }

    fn end_late(&mut self, number: u64, host: &mut dyn Host) {
        if let Some(connection) = self.connections.get_mut(&number) {
            let why = match connection.handshake_deadline() {
                None => {
                    self.counters.expired += 1;
                    "reached its maximum lifetime"
                }
                Some(_) => {
                    self.counters.handshake_timeouts += 1;
                    "handshake timed out"
                }
            };
            connection.expire();
            tell(connection, host, why);
            self.remove(number);
        }
    }

    fn wakeup(&self) -> Wakeup {
        if self.retired && self.connections.is_empty() {
            return Wakeup::Finished;
        }
        if !self.due.is_empty() || self.waiting && self.accept_from.is_none() {
            return Wakeup::Again;
        }
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        let accept_from = self.accept_from.filter(|_| self.waiting);
        match deadline.into_iter().chain(accept_from).min() {
            Some(first) => Wakeup::At(first),
            None => Wakeup::OnReady,
        }
    }
}

fn warn(warnings: Vec<String>, host: &mut dyn Host) {
    for warning in warnings {
        host.log(Level::Warn, TARGET, &warning);
    }
}

/// Logs the end of a connection. Strangers decide how often this happens; the level is therefore
/// DEBUG.
fn tell<C: Codec>(connection: &Connection<C>, host: &mut dyn Host, end: &str) {
    let level = Level::Debug;
    if host.log_enabled(level) {
        let message = match connection.remote_address() {
            Some(remote) => format!("{remote}: {end}"),
            None => end.to_owned(),
        };
        host.log(level, TARGET, &message);
    }
}
