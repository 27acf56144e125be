//! The transport: the socket, the peers and the network stack, driven by the host.

mod dial;
mod handover;
mod mail;
mod names;
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
use watm_netstack::{Netstack, PeerId};
use watm_stream::{FramedSocket, FramedTokens};

use self::handover::Inheritance;
use self::sink::{Arrival, Sink};
use crate::admission::Admission;
use crate::clock::{self, Dates};
use crate::config::{self, Config};
use crate::counters::Counters;
use crate::generations::{self, Generations, Role};
use crate::names::Names;
use crate::outgoing::Outgoing;
use crate::peer::{Identity, Io, Peer, Silence, key_log};
use crate::peers::Peers;

/// The label of the socket that WireGuard listens on.
const LABEL: &str = "listen";

/// What log records are marked with.
const TARGET: &str = "wireguard";

/// The socket's token. The network stack's have the top bit set, those of streams the next.
const LISTEN: Token = 0;

/// The mailbox's.
const MAIL: Token = 1;

/// What one call receives at most: some two hundred full packets, which take about a
/// millisecond, in at most four goes.
const RECEIVE_DATAGRAMS: u32 = 64;
const RECEIVE_BYTES: u32 = 128 << 10;
const RECEIVE_ROUNDS: usize = 4;

/// The largest datagram, which is what a receive can fall short of its bytes without
/// the socket being empty.
const LARGEST: usize = 65_535;

/// The part of a round trip that packets may wait for others, which is less than what it varies by:
/// a call costs several times as much as what it does for a packet. At 20 ms it is 625 µs.
const IMPERCEPTIBLE: u32 = 32;

/// A thread that sleeps less does not save anything.
const LEAST_INTERVAL: Duration = Duration::from_micros(100);

/// Peers whose timers run in one call. At worst each begins a handshake, which takes half
/// a millisecond.
const TICK_PEERS: usize = 128;

/// A WireGuard server. See the crate's page for the path of a packet.
pub struct WireGuard {
    config: Config,
    peers: Peers,
    netstack: Netstack,
    out: Outgoing,
    /// If datagrams come in streams: what is told of those.
    streams: Option<FramedTokens>,
    counters: Counters,
    generations: Generations,
    inheritance: Inheritance,
    names: Names,
    dates: Rc<Dates>,
    address: SocketAddr,
    /// Sees each handshake message first.
    admission: Admission,
    /// Whether there may be something to receive.
    readable: bool,
    next_tick: Option<Instant>,
    /// The peer to go on with, in the middle of a tick.
    tick_from: Option<PeerId>,
    /// Holds a decrypted datagram.
    buffer: Box<[u8]>,
    /// Who wants copies.
    capture: Option<Box<dyn Capture>>,
}

impl Transport for WireGuard {
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError> {
        clock::set(host.now());
        let config = config::parse(&options.config)?;
        let (socket, streams) = socket(host)?;
        let (generations, predecessor) = Generations::start(&options, host, MAIL)?;
        let ahead = predecessor.as_ref().and_then(|snapshot| snapshot.ahead);
        let serves = generations.is_serving();
        if let Some(streams) = &streams {
            streams.set_accepting(serves);
        }
        let mut random = [0; 12];
        getrandom::getrandom(&mut random).map_err(|error| ConfigError::Other(error.to_string()))?;
        let (seed, first_id) = random.split_at(8);
        let mut out = Outgoing::new(socket);
        out.socket().set_dont_fragment(config.mtu.is_none());
        if listens_for_refusals(&config) {
            out.socket().refused();
        }
        let mut server = WireGuard {
            peers: Peers::new(
                generations::tag(options.generation),
                u32::from_le_bytes(first_id.try_into().expect("4 of 12 bytes")),
            ),
            netstack: Netstack::new(
                netstack_config(&config),
                u64::from_le_bytes(seed.try_into().expect("8 of 12 bytes")),
                host.now(),
            ),
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
            // Peers to be kept alive are called at once.
            next_tick: serves.then(|| host.now()),
            tick_from: None,
            buffer: vec![0; LARGEST].into_boxed_slice(),
            capture: capture(),
            config,
        };
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
        }
        netstack.flush(host, &mut sink);
        netstack.reconfigure(netstack_config(&config));
        self.out.flush(&mut self.counters);
        let identity = Identity::new(&config, Rc::clone(&self.dates));
        self.peers.reconfigure(&config, &keep, &identity);
        self.know_names(true, host);
        self.want_peers();
        self.admission = Admission::new(&config, host.now());
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
            self.heed_refusals(host);
        }
        for (id, silence) in self.tick(host.now()) {
            self.bear_silence(id, silence, host);
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

    /// Peers know where we are by what we send, and a handshake is what they answer. Streams end
    /// by themselves.
    fn network_changed(&mut self, _: &mut dyn Host) {
        if self.streams.is_some() {
            return;
        }
        let used = |(id, peer): (_, &mut Peer)| peer.uproot().then_some(id);
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
                .collect(),
        }
    }

    fn client_configs(&self, public: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        Ok(crate::client::configs(&self.config, public))
    }
}

impl WireGuard {
    /// Run the peers' timers if they are due. The peers that do not answer.
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
                // Set again by the peers that still have timers.
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

    /// Let packets wait for more of them as far as the nearest peer does not notice.
    fn coalesce(&self, host: &mut dyn Host) {
        let least = self.peers.least_round_trip().unwrap_or_default();
        let interval = least / IMPERCEPTIBLE;
        host.coalesce(match interval < LEAST_INTERVAL {
            true => Duration::ZERO,
            false => interval,
        });
    }

    /// Call those whose place is known. Over streams they are connected to when they are dialled.
    fn want_peers(&mut self) {
        if self.streams.is_none() && self.generations.is_serving() {
            self.peers.want_all();
        }
    }

    /// The peers that a configuration leaves as they are.
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

    /// Logs which fields of the file do nothing here. Providers' files have some, so this is
    /// information, once for each configuration.
    fn tell_without_effect(&self, host: &mut dyn Host) {
        if let Some(text) = &self.config.without_effect {
            host.log(Level::Info, TARGET, text);
        }
    }

    /// Warns of what in the configuration is likely to be a mistake.
    fn warn(&self, host: &mut dyn Host) {
        for warning in &self.config.warnings {
            host.log(Level::Warn, TARGET, warning);
        }
        if let Some(port) = self.config.listen_port
            // 0: the host does not listen, or does not say where.
            && ![0, port].contains(&self.address.port())
        {
            let text = format!(
                "ListenPort is {port}, but the host listens on {}, which is what counts",
                self.address
            );
            host.log(Level::Warn, TARGET, &text);
        }
    }
}

/// Who wants copies, with what that takes.
fn capture() -> Option<Box<dyn Capture>> {
    let capture = watm_core::capture::capture();
    key_log::enable(capture.as_ref().is_some_and(|user| user.wants_secrets()));
    capture
}

/// The datagram socket, or one over streams, which come to a listener of the same name or are
/// opened from here.
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
        // Lossless: wasm32 has pointers of 32 bits.
        max_flows: config.limits.max_flows as usize,
        ..watm_netstack::Config::default()
    }
}

/// Whether what is answered to calls is asked for. A server's port is known to strangers, who may
/// answer in anybody's name and so many times that the host has no room for what else arrives.
fn listens_for_refusals(config: &Config) -> bool {
    config.listen_port.is_none() && config.peers.iter().any(|peer| peer.endpoint.is_some())
}

/// The largest packet, if the ways to peers say whether there are any.
fn tries(config: &Config) -> Option<u16> {
    config.mtu.is_none().then(|| config.largest_packet())
}
