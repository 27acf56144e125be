//! The transport: the device and the network stack, driven by the host.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use watm_core::packets::{self, PacketBatch, PacketDevice};
use watm_core::{
    ByteStream, ClientConfig, ConfigError, DatagramFlow, Destination, ErrorCode, Host, Instant,
    Level, PeerStatus, StartOptions, Status, Token, Transport, Wakeup,
};
use watm_netstack::{Config as StackConfig, Netstack, Origin, PacketSink, PeerId};

use crate::config::Config;
use crate::counters::Counters;
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

/// The most that one call receives, in at most four rounds: about a millisecond of work.
const RECEIVE_PACKETS: u32 = 64;
const RECEIVE_BYTES: u32 = 128 << 10;
const RECEIVE_ROUNDS: usize = 4;

/// The bytes of outgoing packets from which on they are given to the device before the call ends.
const BATCH_BYTES: usize = 256 << 10;

/// A device as a transport. See the crate's documentation for the path of a packet.
pub struct Tun {
    config: Config,
    netstack: Netstack,
    origin: Origin,
    out: Outgoing,
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
        let mut seed = [0; 8];
        getrandom::getrandom(&mut seed).map_err(|error| ConfigError::Other(error.to_string()))?;
        let mut netstack = Netstack::new(
            stack_config(&config, device.mtu()),
            u64::from_le_bytes(seed),
            host.now(),
        );
        netstack.set_accepting(generations.is_serving());
        Ok(Tun {
            netstack,
            origin: Origin {
                peer: PEER,
                name: Rc::from(LABEL),
                underlay: None,
            },
            out: Outgoing {
                device,
                batch: PacketBatch::default(),
                counters: Counters::default(),
            },
            readable: true,
            gone: false,
            config,
            generations,
        })
    }

    fn reconfigure(&mut self, config: &[u8], _: &mut dyn Host) -> Result<(), ConfigError> {
        self.config = Config::parse(config)?;
        let stack = stack_config(&self.config, self.out.device.mtu());
        self.netstack.reconfigure(stack);
        Ok(())
    }

    fn process(&mut self, ready: &[Token], host: &mut dyn Host) -> Wakeup {
        for &token in ready {
            match token {
                DEVICE => self.readable = true,
                MAIL => self.generations.ready(),
                _ => {
                    let (netstack, mut sink) = self.stack_and_sink(false);
                    netstack.handle_ready(token, host, &mut sink);
                }
            }
        }
        self.read_mail(host);
        self.receive(host);
        let due = self.netstack.poll_timeout();
        let (netstack, mut sink) = self.stack_and_sink(false);
        if due.is_some_and(|due| due <= host.now()) {
            netstack.handle_timeouts(host, &mut sink);
        }
        netstack.flush(host, &mut sink);
        self.out.flush();
        self.generations.flush();
        self.wakeup(host.now())
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
        let counters = &self.out.counters;
        Status {
            peers: vec![PeerStatus {
                name: LABEL.to_owned(),
                received_bytes: counters.bytes_received,
                sent_bytes: counters.bytes_sent,
                ..PeerStatus::default()
            }],
            flows: u32::try_from(self.netstack.flows()).unwrap_or(u32::MAX),
            counters: counters.iter().chain(self.netstack.counters()).collect(),
        }
    }

    fn client_configs(&self, _: &Destination) -> Result<Vec<ClientConfig>, ErrorCode> {
        Err(ErrorCode::NotSupported)
    }
}

impl Tun {
    fn stack_and_sink(&mut self, returned: bool) -> (&mut Netstack, Sink<'_>) {
        let sink = Sink {
            out: &mut self.out,
            generations: &mut self.generations,
            returned,
        };
        (&mut self.netstack, sink)
    }

    fn flush(&mut self, host: &mut dyn Host) {
        let (netstack, mut sink) = self.stack_and_sink(false);
        netstack.flush(host, &mut sink);
        self.out.flush();
    }

    /// Receives what one call takes, and gives it to the stack.
    fn receive(&mut self, host: &mut dyn Host) {
        if self.gone || !self.generations.may_receive(host.now()) {
            return;
        }
        for _ in 0..RECEIVE_ROUNDS {
            if !self.readable {
                return;
            }
            match self.out.device.receive(RECEIVE_PACKETS, RECEIVE_BYTES) {
                Ok(batch) => {
                    // A batch may be short for its bytes alone: only an empty one is the end.
                    self.readable = !batch.is_empty();
                    for (_, packet) in batch.iter() {
                        self.out.counters.packets_received += 1;
                        self.out.counters.bytes_received += packet.len() as u64;
                        let sink = &mut Sink {
                            out: &mut self.out,
                            generations: &mut self.generations,
                            returned: false,
                        };
                        self.netstack
                            .handle_packet(&self.origin, packet, host, sink);
                    }
                }
                Err(error) => return self.end(&error, host),
            }
        }
    }

    /// Ends all flows, because the device is gone.
    fn end(&mut self, error: &ErrorCode, host: &mut dyn Host) {
        self.gone = true;
        self.readable = false;
        let (netstack, mut sink) = self.stack_and_sink(false);
        netstack.remove_peer(PEER, host, &mut sink);
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
            let (packet, returned) = match letter {
                Letter::Packet(packet) => (packet, false),
                Letter::Returned(packet) => (packet, true),
            };
            let origin = self.origin.clone();
            let (netstack, mut sink) = self.stack_and_sink(returned);
            netstack.handle_packet(&origin, &packet, host, &mut sink);
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
        if !self.generations.is_serving() && self.netstack.is_idle() {
            return Wakeup::Finished;
        }
        let deadlines = [self.netstack.poll_timeout(), self.generations.deadline()];
        match deadlines.into_iter().flatten().min() {
            Some(due) if due <= now => Wakeup::Again,
            Some(due) => Wakeup::At(due),
            None => Wakeup::OnReady,
        }
    }
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

/// The device, and the packets for it.
struct Outgoing {
    device: Box<dyn PacketDevice>,
    batch: PacketBatch,
    counters: Counters,
}

impl Outgoing {
    fn push(&mut self, packet: &[u8]) {
        if self.batch.payload.len() >= BATCH_BYTES {
            self.flush();
        }
        self.batch.push(packet);
    }

    /// Gives the packets to the device. Those without room are lost, as at any full queue.
    fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let given = self.batch.packets.len();
        // After an error nothing can be sent. A device that is gone reports it on receive.
        let taken = self.device.send(&self.batch).map_or(0, |n| n as usize);
        for info in &self.batch.packets[..taken.min(given)] {
            self.counters.packets_sent += 1;
            self.counters.bytes_sent += u64::from(info.len);
        }
        self.counters.dropped_full += given.saturating_sub(taken) as u64;
        self.batch.clear();
    }
}

/// Takes the packets of the stack.
struct Sink<'a> {
    out: &'a mut Outgoing,
    generations: &'a mut Generations,
    /// True while the stack handles a packet that another generation has returned.
    returned: bool,
}

impl PacketSink for Sink<'_> {
    fn send(&mut self, _: PeerId, packet: &[u8]) {
        self.out.push(packet);
    }

    fn decline(&mut self, _: PeerId, packet: &[u8], holder: Option<u32>) -> bool {
        self.generations.decline(packet, holder, self.returned)
    }
}
