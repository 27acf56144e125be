//! The transport: the socket, the peers and the network stack, driven by the host.

mod dial;
mod handover;
mod mail;
mod names;
mod network;
mod paths;
mod receive;
mod silence;
mod sink;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use watm_core::capture::Capture;
use watm_core::{
    ByteStream, ClientConfig, ConfigError, DatagramFlow, DatagramSocket, Destination, ErrorCode,
    Host, Instant, Level, StartOptions, Status, Token, Transport, Wakeup,
};
use watm_netem::Netem;
use watm_netstack::{Netstack, PeerId};
use watm_stream::{FramedSocket, FramedTokens};

use self::handover::Inheritance;
use self::sink::{Arrival, Sink};
use crate::admission::Admission;
use crate::clock::{self, Dates};
use crate::config::{self, Config};
use crate::counters::Counters;
use crate::generations::{Generations, Role};
use crate::home::Place;
use crate::names::Names;
use crate::outgoing::Outgoing;
use crate::peer::{Identity, Io, Peer, Silence, key_log};
use crate::peers::Peers;

/// The label of the socket that WireGuard listens on.
const LABEL: &str = "listen";

/// The target of log records.
const TARGET: &str = "wireguard";

/// The socket's token. The network stack's tokens have the top bit set, those of streams the next
/// one.
const LISTEN: Token = 0;

/// The mailbox's token.
const MAIL: Token = 1;

/// The most that one call receives: about two hundred full packets, which take about a millisecond,
/// in at most four rounds.
const RECEIVE_DATAGRAMS: u32 = 64;
const RECEIVE_BYTES: u32 = 128 << 10;
const RECEIVE_ROUNDS: usize = 4;

/// The largest datagram in bytes. A receive can return this much less than it asked for, without an
/// empty socket.
const LARGEST: usize = 65_535;

/// The divisor of the round trip that gives the delay of packets waiting for others. This is less
/// than the round trip varies; a call costs several times as much as its work for one packet. At 20
/// ms the delay is 625 µs.
const IMPERCEPTIBLE: u32 = 32;

/// The shortest useful interval: a thread that sleeps less saves nothing.
const LEAST_INTERVAL: Duration = Duration::from_micros(100);

/// Peers whose timers run in one call. At worst each begins a handshake, which takes half a
/// millisecond.
const TICK_PEERS: usize = 128;

/// A WireGuard server or client. See the crate's documentation for the path of a packet.
pub struct WireGuard {
    config: Config,
    peers: Peers,
    netstack: Netstack,
    /// The bad network between the peers and the stack.
    network: Netem,
    out: Outgoing,
    /// The tokens of the streams, if datagrams come in streams.
    streams: Option<FramedTokens>,
    counters: Counters,
    generations: Generations,
    inheritance: Inheritance,
    names: Names,
    dates: Rc<Dates>,
    address: SocketAddr,
    /// The limits on handshakes, which see each handshake message first.
    admission: Admission,
    /// True if there may be something to receive.
    readable: bool,
    /// True if other workers may have passed something.
    passed: bool,
    /// True if there are other workers.
    has_others: bool,
    next_tick: Option<Instant>,
    /// The peer to continue with, in the middle of a tick.
    tick_from: Option<PeerId>,
    /// The buffer of a decrypted datagram.
    buffer: Box<[u8]>,
    /// The captures that the user enabled.
    capture: Option<Box<dyn Capture>>,
}

impl Transport for WireGuard {
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError> {
        clock::set(host.now());
        let config = config::parse(&options.config)?;
        let (socket, streams) = socket(host)?;
        let place = Place::new(socket.place())?;
        let (generations, predecessor) = Generations::start(&options, place, host, MAIL)?;
        let ahead = predecessor.as_ref().and_then(|snapshot| snapshot.ahead);
        let serves = generations.is_serving();
        if let Some(streams) = &streams {
            streams.set_accepting(serves);
        }
        let mut random = [0; 20];
        getrandom::getrandom(&mut random).map_err(|error| ConfigError::Other(error.to_string()))?;
        let (seed, rest) = random.split_at(8);
        let (network_seed, first_id) = rest.split_at(8);
        let mut out = Outgoing::new(socket);
        out.socket().set_dont_fragment(config.mtu.is_none());
        if collects_unreachable(&config) {
            out.socket().take_unreachable();
        }
        let mut server = WireGuard {
            peers: Peers::new(
                place,
                options.generation,
                u32::from_le_bytes(first_id.try_into().expect("4 of 20 bytes")),
            ),
            netstack: Netstack::new(
                netstack_config(&config),
                u64::from_le_bytes(seed.try_into().expect("8 of 20 bytes")),
                host.now(),
            ),
            network: Netem::new(u64::from_le_bytes(
                network_seed.try_into().expect("8 of 20 bytes"),
            )),
            address: out.local_address(),
            out,
            streams,
            counters: Counters::default(),
            generations,
            inheritance: Inheritance::default(),
            names: Names::default(),
            dates: Rc::new(Dates::new(ahead)),
            admission: Admission::new(&config, host.now()),
            readable: serves,
            passed: serves && place.has_others(),
            has_others: place.has_others(),
            // Peers with a keepalive are called at once.
            next_tick: serves.then(|| host.now()),
            tick_from: None,
            buffer: vec![0; LARGEST].into_boxed_slice(),
            capture: capture(),
            config,
        };
        server.network.set_rules(&server.config.network);
        let identity = Identity::new(&server.config, Rc::clone(&server.dates));
        server
            .peers
            .reconfigure(&server.config, &BTreeSet::new(), &identity);
        match &predecessor {
            Some(predecessor) => server.inherit(predecessor, host.now()),
            None => {
                server.want_peers();
                server.tell_without_effect(host);
            }
        }
        server.know_names(false, host);
        server.warn(host);
        Ok(server)
    }

    fn reconfigure(&mut self, config: &[u8], host: &mut dyn Host) -> Result<(), ConfigError> {
        clock::set(host.now());
        let config = config::parse(config)?;
        let keep = self.unchanged_peers(&config);
        let gone: Vec<_> = self
            .peers
            .iter()
            .map(|(id, _)| id)
            .filter(|id| !keep.contains(id))
            .collect();
        self.tell_removed(&gone);
        self.send_mail();
        let (netstack, mut sink) = self.netstack_and_sink(host.now());
        for id in gone {
            netstack.remove_peer(id, host, &mut sink);
            sink.network.forget(id);
        }
        netstack.flush(host, &mut sink);
        netstack.reconfigure(netstack_config(&config));
        sink.network.set_rules(&config.network);
        self.out.flush(&mut self.counters);
        let identity = Identity::new(&config, Rc::clone(&self.dates));
        self.peers.reconfigure(&config, &keep, &identity);
        self.know_names(true, host);
        self.want_peers();
        self.admission = Admission::new(&config, host.now());
        self.capture = capture();
        let same = config.without_effect == self.config.without_effect;
        self.config = config;
        if !same {
            self.tell_without_effect(host);
        }
        self.next_tick = Some(host.now());
        self.forget_paths();
        self.warn(host);
        Ok(())
    }

    fn process(&mut self, ready: &[Token], host: &mut dyn Host) -> Wakeup {
        clock::set(host.now());
        self.admission.begin_call();
        for &token in ready {
            let framed = |streams: &FramedTokens| streams.ready(token);
            if token == LISTEN || self.streams.as_ref().is_some_and(framed) {
                self.readable = self.generations.is_serving() || self.streams.is_some();
                self.passed = self.generations.is_serving() && self.has_others;
                self.out.unblock();
            } else if token == MAIL
                && let Some(post) = self.generations.post()
            {
                post.ready();
            } else if !self.netstack.owns(token) {
                self.lookup_ready(token, host);
            }
        }
        self.forget_silent(host.now());
        self.read_mail(host);
        self.begin_handshakes(host.now());
        self.look_up(host);
        let ticks = self.next_tick.is_some_and(|due| due <= host.now());
        if ticks {
            self.handle_unreachable(host);
        }
        for (id, silence) in self.tick(host.now()) {
            self.handle_unresponsive(id, silence, host);
        }
        if ticks {
            self.coalesce(host);
        }
        for &token in ready {
            if self.netstack.owns(token) {
                let (netstack, mut sink) = self.netstack_and_sink(host.now());
                netstack.handle_ready(token, host, &mut sink);
            }
        }
        self.receive(host);
        self.receive_passed(host);
        self.carry_arrived(host);
        self.learn_paths(host);
        self.give_up_unreachable(host);
        if self
            .netstack
            .poll_timeout()
            .is_some_and(|due| due <= host.now())
        {
            let (netstack, mut sink) = self.netstack_and_sink(host.now());
            netstack.handle_timeouts(host, &mut sink);
        }
        let (netstack, mut sink) = self.netstack_and_sink(host.now());
        netstack.flush(host, &mut sink);
        self.out.flush(&mut self.counters);
        if self.learn_paths(host) {
            let (netstack, mut sink) = self.netstack_and_sink(host.now());
            netstack.flush(host, &mut sink);
            self.out.flush(&mut self.counters);
        }
        if let Some(streams) = &self.streams {
            streams.reconnect(host);
        }
        self.send_mail();
        self.wakeup()
    }

    fn snapshot(&mut self, now: Instant) -> Vec<u8> {
        self.take_snapshot(now)
    }

    fn serving(&mut self, generation: u32, host: &mut dyn Host) {
        clock::set(host.now());
        if generation == self.generations.own() {
            self.take_over(host);
        } else {
            self.retire(generation, host);
        }
    }

    /// Peers learn the new address from datagrams, and they answer a handshake. Streams end by
    /// themselves.
    fn network_changed(&mut self, _: &mut dyn Host) {
        if self.streams.is_some() {
            return;
        }
        let used = |(id, peer): (_, &mut Peer)| peer.on_network_change().then_some(id);
        let used: Vec<_> = self.peers.iter_mut().filter_map(used).collect();
        if self.generations.is_serving() {
            self.inheritance.begin(used);
        }
    }

    fn dial(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn ByteStream>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        self.open(destination, application, host)
    }

    fn dial_datagrams(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn DatagramFlow>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        self.open_datagrams(destination, application, host)
    }

    fn status(&self, now: Instant) -> Status {
        Status {
            peers: self.peers.status(now),
            flows: u32::try_from(self.netstack.flows()).unwrap_or(u32::MAX),
            counters: [("wireguard.peers", self.peers.len() as u64)]
                .into_iter()
                .chain(self.counters.iter())
                .chain(self.netstack.counters())
                .chain(self.network.counts().iter())
                .collect(),
        }
    }

    fn client_configs(&self, public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        Ok(crate::client::configs(&self.config, public))
    }
}

impl WireGuard {
    /// Run the peers' timers if they are due. Returns the peers that do not answer.
    fn tick(&mut self, now: Instant) -> Vec<(PeerId, Silence)> {
        let mut silent = Vec::new();
        match self.generations.role() {
            Role::Waiting => return silent,
            Role::Serving => {}
            Role::Draining { since } => {
                if self.next_tick.is_some_and(|due| due <= now) {
                    self.drain(since, now);
                }
                return silent;
            }
        }
        let from = match self.tick_from.take() {
            Some(from) => from,
            None if self.next_tick.is_some_and(|due| due <= now) => {
                // Peers that still have timers set it again.
                self.next_tick = None;
                0
            }
            None => return silent,
        };
        let (_, mut sink) = self.netstack_and_sink(now);
        let Sink { peers, io, .. } = &mut sink;
        self.tick_from = peers.tick(from, TICK_PEERS, &mut silent, io);
        silent
    }

    /// Delay packets by a time that the nearest peer does not notice, so that calls gather more of
    /// them.
    fn coalesce(&self, host: &mut dyn Host) {
        let least = self.peers.least_round_trip().unwrap_or_default();
        let interval = least / IMPERCEPTIBLE;
        host.coalesce(match interval < LEAST_INTERVAL {
            true => Duration::ZERO,
            false => interval,
        });
    }

    /// Call the peers whose address is known. Over streams, peers are connected to when they are
    /// dialled.
    fn want_peers(&mut self) {
        if self.streams.is_none() && self.generations.is_serving() {
            self.peers.want_all();
        }
    }

    /// The peers that a configuration leaves unchanged.
    fn unchanged_peers(&self, config: &Config) -> BTreeSet<PeerId> {
        if config.private_key.as_bytes() != self.config.private_key.as_bytes() {
            return BTreeSet::new();
        }
        config
            .peers
            .iter()
            .filter_map(|new| {
                let (id, old) = self.peers.by_key(new.public_key.as_bytes())?;
                (old.preshared_key() == new.preshared_key.as_ref()).then_some(id)
            })
            .collect()
    }

    fn netstack_and_sink(&mut self, now: Instant) -> (&mut Netstack, Sink<'_>) {
        let begins = self.generations.is_serving() || self.streams.is_some();
        let sink = Sink {
            peers: &mut self.peers,
            generations: &mut self.generations,
            streams: self.streams.as_ref(),
            network: &mut self.network,
            arrival: Arrival::Session,
            io: Io {
                out: &mut self.out,
                counters: &mut self.counters,
                now,
                next_tick: &mut self.next_tick,
                begins,
                tries: tries(&self.config),
                capture: self.capture.as_deref(),
            },
        };
        (&mut self.netstack, sink)
    }

    fn wakeup(&self) -> Wakeup {
        let more = self.readable
            || self.passed
            || self.tick_from.is_some()
            || self.has_handshakes()
            || self.out.has_doubts()
            || self.generations.has_mail();
        if more {
            return Wakeup::Again;
        }
        if self.is_finished() {
            return Wakeup::Finished;
        }
        let deadlines = [
            self.next_tick,
            self.netstack.poll_timeout(),
            self.network.deadline().map(Instant),
            self.generations.deadline(),
            self.names
                .deadline()
                .filter(|_| self.generations.is_serving()),
        ];
        match deadlines.into_iter().flatten().min() {
            Some(due) => Wakeup::At(due),
            None => Wakeup::OnReady,
        }
    }

    /// Logs the fields of the file that have no effect. Providers' files contain some; the level is
    /// therefore INFO, once for each configuration.
    fn tell_without_effect(&self, host: &mut dyn Host) {
        if let Some(text) = &self.config.without_effect {
            host.log(Level::Info, TARGET, text);
        }
    }

    /// Warns of likely mistakes in the configuration.
    fn warn(&self, host: &mut dyn Host) {
        for warning in &self.config.warnings {
            host.log(Level::Warn, TARGET, warning);
        }
        if let Some(port) = self.config.listen_port
            // Port 0: the host does not listen, or does not tell the port.
            && ![0, port].contains(&self.address.port())
        {
            let text = format!(
                "ListenPort is {port}, but the host listens on {}; ListenPort has no effect",
                self.address
            );
            host.log(Level::Warn, TARGET, &text);
        }
    }
}

/// The captures that the user enabled, with the key log prepared.
fn capture() -> Option<Box<dyn Capture>> {
    let capture = watm_core::capture::capture();
    key_log::enable(capture.as_ref().is_some_and(|user| user.wants_secrets()));
    capture
}

/// The datagram socket, or a socket over streams. Streams come from a listener of the same label,
/// or are dialled.
fn socket(
    host: &mut dyn Host,
) -> Result<(Box<dyn DatagramSocket>, Option<FramedTokens>), ConfigError> {
    let error = match host.datagram_socket(LABEL, LISTEN) {
        Ok(socket) => return Ok((socket, None)),
        Err(ErrorCode::AccessDenied) => match FramedSocket::open(host, LABEL) {
            Ok((socket, tokens)) => return Ok((Box::new(socket), Some(tokens))),
            Err(error) => error,
        },
        Err(error) => error,
    };
    Err(ConfigError::Other(format!(
        "the socket granted to WireGuard as '{LABEL}': {error}"
    )))
}

fn netstack_config(config: &Config) -> watm_netstack::Config {
    watm_netstack::Config {
        mtu: config.largest_packet().into(),
        udp_idle_timeout: config.limits.udp_idle_timeout,
        // Lossless, since pointers of wasm32 have 32 bits.
        max_flows: config.limits.max_flows as usize,
        congestion: config.congestion,
        ..watm_netstack::Config::default()
    }
}

/// Returns true if port-unreachable reports are requested. A server's port is known to strangers,
/// who can forge such reports, and so many of them that the host has no room for other datagrams.
fn collects_unreachable(config: &Config) -> bool {
    config.listen_port.is_none() && config.peers.iter().any(|peer| peer.endpoint.is_some())
}

/// The largest packet, if the paths to peers should be probed for their MTU.
fn tries(config: &Config) -> Option<u16> {
    config.mtu.is_none().then(|| config.largest_packet())
}
