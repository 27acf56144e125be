//! A client, a bad network and an application around the stack, in virtual time.
#![allow(dead_code, unused_imports)] // every test file uses a part of it

mod application;
mod client;
pub mod conversation;
mod link;
pub mod packets;
pub mod path;
mod random;
mod receiver;
pub mod transfer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use smoltcp::iface::SocketHandle;
use watm_core::{ErrorCode, Host, Instant};
use watm_netstack::{Config, Netstack, Origin, PacketSink, PeerId};

pub use application::{Application, DatagramEnd, StreamEnd};
pub use client::Client;
pub use link::{Conditions, Link};
pub use random::Random;
pub use receiver::Receiver;

/// The source addresses of connections that the stack dials.
pub const SOURCE_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const SOURCE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));

/// The longest time of an exchange.
pub const MINUTES: Duration = Duration::from_secs(600);

/// The packets that the stack sent.
#[derive(Debug, Default)]
pub struct Sent(pub Vec<(PeerId, Vec<u8>)>);

impl PacketSink for Sent {
    fn send(&mut self, peer: PeerId, packet: &[u8]) {
        self.0.push((peer, packet.to_vec()));
    }
}

/// The origin of packets from this peer.
pub fn origin(peer: PeerId) -> Origin {
    Origin {
        peer,
        name: Rc::from(format!("peer {peer}")),
        underlay: None,
    }
}

/// The stack and its application, with packets made by hand.
pub struct Bench {
    pub stack: Netstack,
    pub app: Application,
    pub sent: Sent,
}

impl Bench {
    pub fn new(config: Config) -> Self {
        let app = Application::default();
        Bench {
            stack: Netstack::new(config, 42, app.now()),
            app,
            sent: Sent::default(),
        }
    }

    /// Handles a batch of packets of one peer. Returns the packets that the stack sends for it.
    pub fn batch(&mut self, peer: PeerId, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for packet in packets {
            self.stack
                .handle_packet(&origin(peer), packet, &mut self.app, &mut self.sent);
        }
        self.settle()
    }

    pub fn packet(&mut self, peer: PeerId, packet: &[u8]) -> Vec<Vec<u8>> {
        self.batch(peer, &[packet.to_vec()])
    }

    /// Opens a connection from the stack to this peer.
    pub fn dial(&mut self, peer: PeerId, to: SocketAddr) -> Result<StreamEnd, ErrorCode> {
        let source = if to.is_ipv4() { SOURCE_V4 } else { SOURCE_V6 };
        let (end, stream) = self.app.new_stream();
        let now = self.app.now();
        let token = self.stack.connect(&origin(peer), source, to, stream, now)?;
        end.set_token(token);
        Ok(end)
    }

    /// Like [`dial`](Self::dial), for datagrams.
    pub fn dial_datagrams(
        &mut self,
        peer: PeerId,
        to: SocketAddr,
    ) -> Result<DatagramEnd, ErrorCode> {
        let source = if to.is_ipv4() { SOURCE_V4 } else { SOURCE_V6 };
        let (end, flow) = self.app.new_datagrams();
        let now = self.app.now();
        let origin = origin(peer);
        let token = self
            .stack
            .connect_datagrams(&origin, source, to, flow, now)?;
        end.set_token(token);
        Ok(end)
    }

    /// Processes all due events without advancing the time.
    pub fn settle(&mut self) -> Vec<Vec<u8>> {
        self.rest();
        self.take_sent()
    }

    /// Lets time pass, with all timers.
    pub fn wait(&mut self, time: Duration) -> Vec<Vec<u8>> {
        self.pass(time);
        self.take_sent()
    }

    /// Like [`settle`](Self::settle); adds the packets of the stack to `sent`.
    pub fn rest(&mut self) {
        for _ in 0..1000 {
            for token in self.app.take_ready() {
                self.stack
                    .handle_ready(token, &mut self.app, &mut self.sent);
            }
            self.stack.flush(&mut self.app, &mut self.sent);
            if self.app.is_quiet() && self.stack.poll_timeout().is_none_or(|at| at.0 > 0) {
                return;
            }
        }
        panic!("the stack does not come to rest");
    }

    /// Like [`wait`](Self::wait); adds the packets of the stack to `sent`.
    pub fn pass(&mut self, time: Duration) {
        let end = self.app.now() + time;
        for _ in 0..100_000 {
            match self.stack.poll_timeout() {
                Some(at) if at <= end => self.app.set_now(at.max(self.app.now())),
                _ => {
                    self.app.set_now(end);
                    return;
                }
            }
            self.stack.handle_timeouts(&mut self.app, &mut self.sent);
            self.rest();
        }
        panic!("the stack spins");
    }

    fn take_sent(&mut self) -> Vec<Vec<u8>> {
        self.sent.0.drain(..).map(|(_, packet)| packet).collect()
    }

    pub fn counter(&self, name: &str) -> u64 {
        let full = format!("netstack.{name}");
        self.stack
            .counters()
            .find(|(name, _)| *name == full)
            .unwrap_or_else(|| panic!("no counter {full}"))
            .1
    }
}

/// A real TCP client behind a network, connected to the stack.
pub struct Simulation {
    pub bench: Bench,
    pub client: Client,
    pub up: Link,
    pub down: Link,
    /// The packets to the stack in one batch.
    pub batch: usize,
    /// The interval of additional steps without an event, if set.
    pub tick: Option<Duration>,
    pub packets_up: u64,
    pub packets_down: u64,
}

impl Simulation {
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self::with_config(Config::default(), conditions, seed)
    }

    pub fn with_config(config: Config, conditions: Conditions, seed: u64) -> Self {
        Simulation {
            client: Client::new(config.mtu, seed),
            bench: Bench::new(config),
            up: Link::new(conditions, seed ^ 1),
            down: Link::new(conditions, seed ^ 2),
            batch: 32,
            tick: None,
            packets_up: 0,
            packets_down: 0,
        }
    }

    pub fn now(&self) -> Instant {
        self.bench.app.now()
    }

    /// Opens a connection; the stack's end of it exists once the handshake is done.
    pub fn connect(&mut self, destination: SocketAddr) -> (SocketHandle, StreamEnd) {
        let known = self.bench.app.streams().len();
        let handle = self.client.connect(destination);
        self.run_until(Duration::from_secs(30), |sim| {
            sim.bench.app.streams().len() > known
        });
        let stream = self.bench.app.streams().last().cloned().unwrap();
        (handle, stream)
    }

    /// Opens a connection from the stack to a client that listens at `destination`. The stream
    /// accepts data at once.
    pub fn dial(&mut self, destination: SocketAddr) -> (SocketHandle, StreamEnd) {
        let handle = self.client.listen(destination);
        let stream = self.bench.dial(1, destination).unwrap();
        (handle, stream)
    }

    /// Sends `size` bytes both ways at once, compares them, and closes both sides.
    pub fn exchange(&mut self, handle: SocketHandle, stream: &StreamEnd, size: usize) {
        let up = Random(1).bytes(size);
        let down = Random(2).bytes(size);
        stream.write(&down);
        stream.close();
        let (mut sent, mut got_up, mut got_down) = (0, Vec::new(), Vec::new());
        self.run_until(MINUTES, |sim| {
            let socket = sim.client.socket(handle);
            if socket.can_send() && sent < up.len() {
                sent += socket.send_slice(&up[sent..]).unwrap();
                if sent == up.len() {
                    socket.close();
                }
            }
            while socket.can_recv() {
                let mut buffer = vec![0; 65536];
                let count = socket.recv_slice(&mut buffer).unwrap();
                got_down.extend_from_slice(&buffer[..count]);
            }
            got_up.extend(stream.read());
            stream.gone() && got_down.len() == down.len()
        });
        assert!(got_up == up, "the application got something else");
        assert!(got_down == down, "the client got something else");
        assert!(stream.ended() && stream.finished());
        assert_eq!(stream.reset(), None);
        self.run_for(Duration::from_secs(15));
        assert_eq!(self.bench.stack.flows(), 0);
        assert_eq!(self.bench.stack.held_bytes(), 0);
    }

    /// Runs until `done`, checked after every event; panics when `limit` has passed.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now() + limit;
        loop {
            self.step();
            if done(self) {
                return;
            }
            let next = self.next_event();
            assert!(
                next.is_some_and(|next| next <= end),
                "nothing more happens within {limit:?}"
            );
            let now = self.now();
            self.bench.app.set_now(next.unwrap().max(now));
        }
    }

    /// Runs for this long.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now() + time;
        loop {
            self.step();
            let now = self.now();
            match self.next_event() {
                Some(next) if next <= end => self.bench.app.set_now(next.max(now)),
                _ => {
                    self.bench.app.set_now(end);
                    return;
                }
            }
        }
    }

    fn next_event(&mut self) -> Option<Instant> {
        let events = [
            self.up.next(),
            self.down.next(),
            self.bench.stack.poll_timeout(),
            self.client.next(self.bench.app.now()),
            self.tick.map(|tick| self.bench.app.now() + tick),
        ];
        events.into_iter().flatten().min()
    }

    /// Processes everything that is due now.
    fn step(&mut self) {
        let now = self.now();
        for packet in self.client.poll(now) {
            self.packets_up += 1;
            self.up.send(now, packet);
        }
        let due = self.up.due(now);
        for batch in due.chunks(self.batch) {
            let answers = self.bench.batch(1, batch);
            self.send_down(answers);
        }
        if self.bench.stack.poll_timeout().is_some_and(|at| at <= now) {
            let bench = &mut self.bench;
            bench.stack.handle_timeouts(&mut bench.app, &mut bench.sent);
        }
        let answers = self.bench.settle();
        self.send_down(answers);
        for packet in self.down.due(now) {
            self.client.receive(packet);
        }
        for packet in self.client.poll(now) {
            self.packets_up += 1;
            self.up.send(now, packet);
        }
    }

    fn send_down(&mut self, packets: Vec<Vec<u8>>) {
        let now = self.now();
        for packet in packets {
            self.packets_down += 1;
            self.down.send(now, packet);
        }
    }
}
