//! The transport: the device, the bad network and the network stack, driven by the host.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use watm_core::packets::{self, PacketInfo};
use watm_core::{
    ByteStream, ClientConfig, ConfigError, DatagramFlow, Destination, ErrorCode, Host, Instant,
    Level, PeerStatus, StartOptions, Status, Token, Transport, Wakeup,
};
use watm_netem::{Arrived, Direction as Way, Netem};
use watm_netstack::{Config as StackConfig, Netstack, Origin, PacketSink, PeerId, finish};

use crate::config::Config;
use crate::device::Device;
use crate::generations::{Generations, Letter};

/// The label of the device.
const LABEL: &str = "tun";

/// The target of log records.
const TARGET: &str = "tun";

/// The device's token. The network stack's tokens have the top bit set.
const DEVICE: Token = 0;

/// The mailbox's token.
const MAIL: Token = 1;

/// The only peer: the system behind the device.
pub const PEER: PeerId = 0;

/// The most receives of one call: about a millisecond of work.
const RECEIVE_ROUNDS: usize = 4;

/// A device as a transport. See the crate's documentation for the path of a packet.
pub struct Tun {
    config: Config,
    netstack: Netstack,
    origin: Origin,
    device: Device,
    /// The bad network between the device and the stack.
    network: Netem,
    generations: Generations,
    /// True if there may be something to receive.
    readable: bool,
    /// True once the device is gone.
    gone: bool,
}

impl Transport for Tun {
    fn start(options: StartOptions, host: &mut dyn Host) -> Result<Self, ConfigError> {
        let config = Config::parse(&options.config)?;
        let device = packets::open(LABEL, DEVICE).map_err(|error| {
            ConfigError::Other(format!("no device for packets with label {LABEL}: {error}"))
        })?;
        let generations = Generations::start(&options, host, MAIL)
            .map_err(|error| ConfigError::Other(format!("mailbox: {error}")))?;
        let (seed, network_seed) = (seed()?, seed()?);
        let device = Device::new(device, LABEL);
        let mut netstack = Netstack::new(stack_config(&config, device.mtu()), seed, host.now());
        let mut network = Netem::new(network_seed);
        network.set_rules(&config.network);
        netstack.set_accepting(generations.is_serving());
        Ok(Tun {
            netstack,
            origin: Origin {
                peer: PEER,
                name: Rc::from(LABEL),
                underlay: None,
            },
            device,
            network,
            readable: true,
            gone: false,
            config,
            generations,
        })
    }

    fn reconfigure(&mut self, config: &[u8], _: &mut dyn Host) -> Result<(), ConfigError> {
        self.config = Config::parse(config)?;
        let stack = stack_config(&self.config, self.device.mtu());
        self.netstack.reconfigure(stack);
        self.network.set_rules(&self.config.network);
        self.device.renew_capture();
        Ok(())
    }

    fn process(&mut self, ready: &[Token], host: &mut dyn Host) -> Wakeup {
        let now = host.now();
        for &token in ready {
            match token {
                DEVICE => self.readable = true,
                MAIL => self.generations.ready(),
                _ => {
                    let (netstack, mut sink) = self.stack_and_sink(now);
                    netstack.handle_ready(token, host, &mut sink);
                }
            }
        }
        self.read_mail(host);
        self.receive(host);
        self.carry_arrived(host);
        let due = self.netstack.poll_timeout();
        let (netstack, mut sink) = self.stack_and_sink(now);
        if due.is_some_and(|due| due <= now) {
            netstack.handle_timeouts(host, &mut sink);
        }
        self.flush(host);
        self.generations.flush();
        self.wakeup(now)
    }

    fn snapshot(&mut self, _: Instant) -> Vec<u8> {
        Generations::snapshot()
    }

    fn serving(&mut self, generation: u32, host: &mut dyn Host) {
        self.generations
            .serve(generation, &self.netstack, host.now());
        self.netstack.set_accepting(self.generations.is_serving());
        self.readable = true;
        self.generations.flush();
    }

    fn network_changed(&mut self, _: &mut dyn Host) {}

    fn dial(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn ByteStream>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        let (source, target) = self.ends(destination)?;
        let (origin, now) = (&self.origin, host.now());
        let token = self
            .netstack
            .connect(origin, source, target, application, now)?;
        self.flush(host);
        Ok(token)
    }

    fn dial_datagrams(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn DatagramFlow>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        let (source, target) = self.ends(destination)?;
        let (origin, now) = (&self.origin, host.now());
        let token = self
            .netstack
            .connect_datagrams(origin, source, target, application, now)?;
        self.flush(host);
        Ok(token)
    }

    fn status(&self, _: Instant) -> Status {
        let counters = self.device.counters();
        Status {
            peers: vec![PeerStatus {
                name: LABEL.to_owned(),
                received_bytes: counters.bytes_received,
                sent_bytes: counters.bytes_sent,
                ..PeerStatus::default()
            }],
            flows: u32::try_from(self.netstack.flows()).unwrap_or(u32::MAX),
            counters: counters
                .iter()
                .chain(self.netstack.counters())
                .chain(self.network.counts().iter())
                .collect(),
        }
    }

    fn client_configs(&self, _: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }
}

impl Tun {
    fn stack_and_sink(&mut self, now: Instant) -> (&mut Netstack, Sink<'_>) {
        let sink = Sink {
            device: &mut self.device,
            network: &mut self.network,
            generations: &mut self.generations,
            now,
            returned: false,
        };
        (&mut self.netstack, sink)
    }

    fn flush(&mut self, host: &mut dyn Host) {
        let (netstack, mut sink) = self.stack_and_sink(host.now());
        netstack.flush(host, &mut sink);
        self.device.flush();
    }

    /// Gives a packet from the device to the stack.
    fn handle_packet(&mut self, packet: &[u8], returned: bool, host: &mut dyn Host) {
        self.handle_unfinished(packet, &PacketInfo::default(), returned, host);
    }

    fn handle_unfinished(
        &mut self,
        packet: &[u8],
        info: &PacketInfo,
        returned: bool,
        host: &mut dyn Host,
    ) {
        let mut sink = Sink {
            device: &mut self.device,
            network: &mut self.network,
            generations: &mut self.generations,
            now: host.now(),
            returned,
        };
        self.netstack
            .handle_unfinished(&self.origin, packet, info, host, &mut sink);
    }

    /// Gives an entry of the device to the stack, or the packets it stands for to the bad network.
    fn handle_entry(&mut self, packet: &[u8], info: &PacketInfo, host: &mut dyn Host) {
        let now = host.now();
        if self.network.is_idle() {
            self.handle_unfinished(packet, info, false, host);
            return;
        }
        finish(packet, info, |packet| {
            if !is_taken(&mut self.network, Way::FromPeer, packet, now) {
                self.handle_packet(packet, false, host);
            }
        });
    }

    /// Receives what one call takes, and passes it through the bad network to the stack.
    fn receive(&mut self, host: &mut dyn Host) {
        if self.gone || !self.generations.may_receive(host.now()) {
            return;
        }
        for _ in 0..RECEIVE_ROUNDS {
            if !self.readable {
                return;
            }
            match self.device.receive() {
                Ok(batch) => {
                    // A batch may be short for its bytes alone: only an empty one is the end.
                    self.readable = !batch.is_empty();
                    for (info, packet) in batch.iter() {
                        self.handle_entry(packet, info, host);
                    }
                }
                Err(error) => return self.end(&error, host),
            }
        }
    }

    /// Lets packets go on whose time in the bad network has come.
    fn carry_arrived(&mut self, host: &mut dyn Host) {
        let now = host.now().0;
        if self.network.deadline().is_none_or(|due| due > now) {
            return;
        }
        for arrived in self.network.arrived(now) {
            let Arrived {
                direction, packet, ..
            } = arrived;
            match direction {
                Way::FromPeer => self.handle_packet(&packet, false, host),
                Way::ToPeer => self.device.push(&packet),
            }
        }
    }

    /// Ends all flows, because the device is gone.
    fn end(&mut self, error: &ErrorCode, host: &mut dyn Host) {
        self.gone = true;
        self.readable = false;
        let (netstack, mut sink) = self.stack_and_sink(host.now());
        netstack.remove_peer(PEER, host, &mut sink);
        sink.network.forget(PEER);
        let text = format!(
            "the device {LABEL} is gone ({error}), and its flows are reset; make the device again and restart this \
             server, which carries no packets until then"
        );
        host.log(Level::Warn, TARGET, &text);
    }

    /// Handles what other generations have sent.
    fn read_mail(&mut self, host: &mut dyn Host) {
        let letters = self.generations.receive(&mut self.netstack, host.now());
        for letter in letters {
            match letter {
                Letter::Packet(packet) => self.handle_packet(&packet, false, host),
                Letter::Returned(packet) => self.handle_packet(&packet, true, host),
                Letter::Answer(packet) => self.stack_and_sink(host.now()).1.dispatch(&packet),
            }
        }
    }

    fn ends(&self, destination: Option<&Destination>) -> Result<(IpAddr, SocketAddr), ErrorCode> {
        if !self.generations.is_serving() || self.gone {
            return Err(ErrorCode::InvalidState);
        }
        let target = match destination {
            Some(Destination::Address(address)) => *address,
            Some(Destination::Name(name, _)) => {
                return Err(ErrorCode::Other(format!(
                    "{name} is a name, and a module cannot resolve names; use an address"
                )));
            }
            None => self.config.target.ok_or_else(|| {
                ErrorCode::Other("no destination was given, and target is missing".to_owned())
            })?,
        };
        let source = self.config.source(target.ip()).ok_or_else(|| {
            ErrorCode::Other(format!(
                "addresses has none of the family of {target}; add one as the source of connections"
            ))
        })?;
        Ok((source, target))
    }

    fn wakeup(&self, now: Instant) -> Wakeup {
        let reads = self.readable && !self.gone && self.generations.may_receive(now);
        if reads || self.generations.has_mail() {
            return Wakeup::Again;
        }
        let waiting = self.network.deadline().map(Instant);
        if !self.generations.is_serving() && self.netstack.is_idle() && waiting.is_none() {
            return Wakeup::Finished;
        }
        let deadlines = [
            self.netstack.poll_timeout(),
            self.generations.deadline(),
            waiting,
        ];
        match deadlines.into_iter().flatten().min() {
            Some(due) if due <= now => Wakeup::Again,
            Some(due) => Wakeup::At(due),
            None => Wakeup::OnReady,
        }
    }
}

fn seed() -> Result<u64, ConfigError> {
    let mut seed = [0; 8];
    getrandom::getrandom(&mut seed).map_err(|error| ConfigError::Other(error.to_string()))?;
    Ok(u64::from_le_bytes(seed))
}

fn stack_config(config: &Config, mtu: u32) -> StackConfig {
    StackConfig {
        mtu: config.mtu.map_or(mtu as usize, usize::from),
        udp_idle_timeout: config.udp_idle_timeout,
        max_flows: config.max_flows as usize,
        congestion: config.congestion,
        ..StackConfig::default()
    }
}

/// Takes the packets of the stack.
struct Sink<'a> {
    device: &'a mut Device,
    network: &'a mut Netem,
    generations: &'a mut Generations,
    now: Instant,
    /// True while the stack handles a packet that another generation has returned.
    returned: bool,
}

impl PacketSink for Sink<'_> {
    fn send(&mut self, _: PeerId, packet: &[u8]) {
        if !self.generations.pass_on(packet) {
            self.dispatch(packet);
        }
    }

    fn finishes(&self, _: PeerId) -> bool {
        self.device.divides() && self.network.is_idle() && self.generations.is_serving()
    }

    fn send_unfinished(&mut self, peer: PeerId, packet: &[u8], info: &PacketInfo) {
        match self.finishes(peer) {
            true => self.device.push_unfinished(packet, info),
            false => finish(packet, info, |packet| self.send(peer, packet)),
        }
    }

    fn decline(&mut self, _: PeerId, packet: &[u8], holder: Option<u32>) -> bool {
        self.generations.decline(packet, holder, self.returned)
    }
}

impl Sink<'_> {
    /// Passes a packet through the bad network, if there is one, to the device.
    fn dispatch(&mut self, packet: &[u8]) {
        if !is_taken(self.network, Way::ToPeer, packet, self.now) {
            self.device.push(packet);
        }
    }
}

/// Returns true if the bad network has taken the packet.
fn is_taken(network: &mut Netem, way: Way, packet: &[u8], now: Instant) -> bool {
    !network.is_idle() && network.take(way, (PEER, LABEL), packet, now.0)
}
