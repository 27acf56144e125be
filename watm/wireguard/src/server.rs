//! The transport: the socket, the peers and the network stack, driven by the host.

mod dial;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{HandshakeInit, Packet, Tunn, TunnResult};
use watm_core::{
    ByteStream, ClientConfig, ConfigError, DatagramSocket, Destination, ErrorCode, Host, Instant,
    Level, StartOptions, Status, Token, Transport, Wakeup,
};
use watm_netstack::{Netstack, PeerId};
use watm_stream::{FramedSocket, FramedTokens};

use crate::clock;
use crate::config::{self, Config};
use crate::counters::{Counter, Counters};
use crate::key;
use crate::outgoing::{Endpoint, Outgoing};
use crate::peer::{Handshake, Identity, Io, Message};
use crate::peers::{Peers, Sink};

/// The label of the socket that WireGuard listens on.
const LABEL: &str = "listen";

/// What log records are marked with.
const TARGET: &str = "wireguard";

/// The socket's token. The network stack's have the top bit set, those of streams the next.
const LISTEN: Token = 0;

/// What one call receives at most: some two hundred full packets, which take about a
/// millisecond, in at most four goes.
const RECEIVE_DATAGRAMS: u32 = 64;
const RECEIVE_BYTES: u32 = 128 << 10;
const RECEIVE_ROUNDS: usize = 4;

/// The largest datagram, which is what a receive can fall short of its bytes without
/// the socket being empty.
const LARGEST: usize = 65_535;

/// How long handshakes are counted together.
const SECOND: Duration = Duration::from_secs(1);

/// Peers whose timers run in one call. At worst each begins a handshake, which takes half
/// a millisecond.
const TICK_PEERS: usize = 128;

/// Handshakes answered in a second are at most this many times the number from which on
/// senders have to prove their address: those who can prove it can still be too many.
const HANDSHAKE_LIMIT: u64 = 10;

/// Handshakes answered in one call: a tenth of a second's work, of the whole one that a
/// host allows by default. Those beyond are lost and repeated by their senders.
const CALL_HANDSHAKES: u64 = 256;

/// A WireGuard server. See the crate's page for the path of a packet.
pub struct WireGuard {
    config: Config,
    peers: Peers,
    netstack: Netstack,
    out: Outgoing,
    /// If datagrams come in streams: what is told of those.
    streams: Option<FramedTokens>,
    counters: Counters,
    address: SocketAddr,
    /// Sees each handshake message first.
    limiter: RateLimiter,
    /// Handshakes answered in the second that began then.
    handshakes: (Instant, u64),
    /// Handshakes answered in this call.
    call_handshakes: u64,
    /// Whether there may be something to receive.
    readable: bool,
    next_tick: Option<Instant>,
    /// The peer to go on with, in the middle of a tick.
    tick_from: Option<PeerId>,
    /// Holds a decrypted datagram.
    buffer: Box<[u8]>,
}

impl Transport for WireGuard {
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError> {
        clock::set(host.now());
        let config = config::parse(&options.config)?;
        let (socket, streams) = socket(host)?;
        let mut random = [0; 12];
        getrandom::getrandom(&mut random).map_err(|error| ConfigError::Other(error.to_string()))?;
        let (seed, first_id) = random.split_at(8);
        let out = Outgoing::new(socket);
        let mut server = WireGuard {
            peers: Peers::new(u32::from_le_bytes(
                first_id.try_into().expect("4 of 12 bytes"),
            )),
            netstack: Netstack::new(
                netstack_config(&config),
                u64::from_le_bytes(seed.try_into().expect("8 of 12 bytes")),
                host.now(),
            ),
            address: out.local_address(),
            out,
            streams,
            counters: Counters::default(),
            limiter: limiter(&config),
            handshakes: (host.now(), 0),
            call_handshakes: 0,
            readable: true,
            // Peers to be kept alive are called at once.
            next_tick: Some(host.now()),
            tick_from: None,
            buffer: vec![0; LARGEST].into_boxed_slice(),
            config,
        };
        server
            .peers
            .reconfigure(&server.config, &BTreeSet::new(), &identity(&server.config));
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
        let (netstack, mut sink) = self.netstack_and_sink(host.now());
        for id in gone {
            netstack.remove_peer(id, host, &mut sink);
        }
        netstack.flush(host, &mut sink);
        netstack.reconfigure(netstack_config(&config));
        self.out.flush(&mut self.counters);
        self.peers.reconfigure(&config, &keep, &identity(&config));
        self.limiter = limiter(&config);
        self.config = config;
        self.next_tick = Some(host.now());
        self.warn(host);
        Ok(())
    }

    fn process(&mut self, ready: &[Token], host: &mut dyn Host) -> Wakeup {
        clock::set(host.now());
        self.limiter.reset_count();
        self.call_handshakes = 0;
        for &token in ready {
            let framed = |streams: &FramedTokens| streams.ready(token);
            if token == LISTEN || self.streams.as_ref().is_some_and(framed) {
                self.readable = true;
                self.out.unblock();
            }
        }
        self.tick(host.now());
        for &token in ready {
            if self.netstack.owns(token) {
                let (netstack, mut sink) = self.netstack_and_sink(host.now());
                netstack.handle_ready(token, host, &mut sink);
            }
        }
        self.receive(host);
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
        if let Some(streams) = &self.streams {
            streams.reconnect(host);
        }
        self.wakeup()
    }

    fn dial(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn ByteStream>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        self.open(destination, application, host)
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
    /// Run the peers' timers if they are due.
    fn tick(&mut self, now: Instant) {
        let from = match self.tick_from.take() {
            Some(from) => from,
            None if self.next_tick.is_some_and(|due| due <= now) => {
                // Set again by the peers that still have timers.
                self.next_tick = None;
                0
            }
            None => return,
        };
        let (_, mut sink) = self.netstack_and_sink(now);
        self.tick_from = sink.peers.tick(from, TICK_PEERS, &mut sink.io);
    }

    fn receive(&mut self, host: &mut dyn Host) {
        for _ in 0..RECEIVE_ROUNDS {
            if !self.readable {
                return;
            }
            let Ok(batch) = self.out.socket().receive(RECEIVE_DATAGRAMS, RECEIVE_BYTES) else {
                self.counters.count(Counter::SocketError);
                self.readable = false;
                return;
            };
            self.readable = batch.datagrams.len() == RECEIVE_DATAGRAMS as usize
                || batch.payload.len() + LARGEST > RECEIVE_BYTES as usize;
            for (entry, datagram) in batch.iter() {
                let from = Endpoint {
                    remote: entry.remote,
                    local: entry.local,
                };
                self.counters.count(Counter::DatagramsReceived);
                self.counters
                    .add(Counter::BytesReceived, datagram.len() as u64);
                if let Some((id, message)) = self.recipient(datagram, from, host) {
                    self.deliver(id, message, datagram, from, host);
                }
            }
        }
    }

    /// Which peer a datagram is for. What is for nobody is counted, or answered with a
    /// cookie.
    fn recipient(
        &mut self,
        datagram: &[u8],
        from: Endpoint,
        host: &mut dyn Host,
    ) -> Option<(PeerId, Message)> {
        let (index, message) = match Tunn::parse_incoming_packet(datagram) {
            Ok(Packet::HandshakeInit(initiation)) => {
                let id = self.initiator(&initiation, datagram, from, host)?;
                return Some((id, Message::Initiation));
            }
            Ok(Packet::HandshakeResponse(response)) => (response.receiver_idx, Message::Response),
            Ok(Packet::PacketCookieReply(cookie)) => (cookie.receiver_idx, Message::Cookie),
            Ok(Packet::PacketData(data)) => (data.receiver_idx, Message::Data(data.receiver_idx)),
            Err(_) => {
                self.counters.count(Counter::NotWireGuard);
                if host.log_enabled(Level::Debug) {
                    let text = format!("Received invalid WireGuard packet from {}", from.remote);
                    host.log(Level::Debug, TARGET, &text);
                }
                return None;
            }
        };
        let Some(id) = self.peers.id_of_index(index) else {
            self.counters.count(Counter::NoSession);
            return None;
        };
        if message == Message::Response && !self.admit(datagram, from, host) {
            return None;
        }
        Some((id, message))
    }

    /// The peer that a handshake initiation comes from.
    fn initiator(
        &mut self,
        initiation: &HandshakeInit<'_>,
        datagram: &[u8],
        from: Endpoint,
        host: &mut dyn Host,
    ) -> Option<PeerId> {
        if !self.admit(datagram, from, host) {
            return None;
        }
        let config = &self.config;
        let Ok(half) = parse_handshake_anon(&config.private_key, &config.public_key, initiation)
        else {
            self.counters.count(Counter::NotAuthentic);
            return None;
        };
        let id = self
            .peers
            .by_key(&half.peer_static_public)
            .map(|(id, _)| id);
        if id.is_none() {
            self.counters.count(Counter::UnknownPeer);
            if host.log_enabled(Level::Debug) {
                let text = format!(
                    "handshake from {} by {}, which is no peer's key",
                    from.remote,
                    key::encode(&half.peer_static_public)
                );
                host.log(Level::Debug, TARGET, &text);
            }
        }
        id
    }

    /// Whether a handshake message may cost us key exchanges: its sender knows our public
    /// key, has proved its address if there are many, and there are not far too many.
    fn admit(&mut self, datagram: &[u8], from: Endpoint, host: &mut dyn Host) -> bool {
        let mut cookie = [0; 64];
        let address = Some(from.remote.ip());
        match self.limiter.verify_packet(address, datagram, &mut cookie) {
            Ok(_) => {}
            Err(TunnResult::WriteToNetwork(reply)) => {
                self.out.push(reply, from, &mut self.counters);
                self.counters.count(Counter::CookiesSent);
                return false;
            }
            Err(TunnResult::Err(WireGuardError::InvalidMac)) => {
                self.counters.count(Counter::InvalidMac);
                if host.log_enabled(Level::Debug) {
                    let text = format!(
                        "handshake from {} that is not for our public key",
                        from.remote
                    );
                    host.log(Level::Debug, TARGET, &text);
                }
                return false;
            }
            Err(_) => {
                self.counters.count(Counter::NotWireGuard);
                return false;
            }
        }
        let (since, count) = &mut self.handshakes;
        if host.now() - *since >= SECOND {
            *since = host.now();
            *count = 0;
        }
        let most = HANDSHAKE_LIMIT * u64::from(self.config.limits.handshakes_per_second);
        if *count >= most || self.call_handshakes >= CALL_HANDSHAKES {
            self.counters.count(Counter::HandshakeLimit);
            return false;
        }
        *count += 1;
        self.call_handshakes += 1;
        true
    }

    /// Hand a datagram to its peer, and the packet in it to the network stack.
    fn deliver(
        &mut self,
        id: PeerId,
        message: Message,
        datagram: &[u8],
        from: Endpoint,
        host: &mut dyn Host,
    ) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let mut io = Io {
            out: &mut self.out,
            counters: &mut self.counters,
            now: host.now(),
            next_tick: &mut self.next_tick,
        };
        let received = peer.receive(
            message,
            datagram,
            from,
            self.address,
            &mut self.buffer,
            &mut io,
        );
        let origin = peer.origin();
        match received.handshake {
            Some(Handshake::First) if host.log_enabled(Level::Info) => {
                let text = format!("peer {} connected from {}", origin.name, from.remote);
                host.log(Level::Info, TARGET, &text);
            }
            Some(Handshake::Another) if host.log_enabled(Level::Debug) => {
                let text = format!("peer {} has new session keys", origin.name);
                host.log(Level::Debug, TARGET, &text);
            }
            _ => {}
        }
        let Some((packet, source)) = received.packet else {
            return;
        };
        let origin = origin.clone();
        if self.peers.owns(id, source) {
            let mut sink = Sink {
                peers: &mut self.peers,
                io,
            };
            self.netstack
                .handle_packet(&origin, packet, host, &mut sink);
        } else {
            io.counters.count(Counter::SourceNotAllowed);
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
        let sink = Sink {
            peers: &mut self.peers,
            io: Io {
                out: &mut self.out,
                counters: &mut self.counters,
                now,
                next_tick: &mut self.next_tick,
            },
        };
        (&mut self.netstack, sink)
    }

    fn wakeup(&self) -> Wakeup {
        if self.readable || self.tick_from.is_some() {
            return Wakeup::Again;
        }
        match [self.next_tick, self.netstack.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
        {
            Some(due) => Wakeup::At(due),
            None => Wakeup::OnReady,
        }
    }

    /// Tell the user what the configuration has of no effect.
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
        mtu: config.mtu.into(),
        udp_idle_timeout: config.limits.udp_idle_timeout,
        // Lossless: wasm32 has pointers of 32 bits.
        max_flows: config.limits.max_flows as usize,
        ..watm_netstack::Config::default()
    }
}

fn limiter(config: &Config) -> RateLimiter {
    RateLimiter::new(
        &config.public_key,
        config.limits.handshakes_per_second.into(),
    )
}

/// For the peers themselves, who see only what [`limiter`] has let pass.
fn identity(config: &Config) -> Rc<Identity> {
    Rc::new(Identity {
        private_key: config.private_key.clone(),
        limiter: Arc::new(RateLimiter::new(&config.public_key, u64::MAX)),
    })
}
