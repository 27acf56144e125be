//! A server, clients with boringtun and their own network stack, and a network between them, in
//! virtual time and with seeded randomness.
#![allow(dead_code, unused_imports)] // every test file uses a part of it

mod client;
mod directory;
mod host;
#[path = "../../../netstack/tests/support/mod.rs"]
pub mod inner;
mod letters;
pub mod line;
mod pair;
mod streams;
mod talk;

use std::net::SocketAddr;
use std::time::Duration;

use boringtun::x25519::{PublicKey, StaticSecret};
use mock_instant::MockClock;
use watm_core::{ConfigError, Host, Instant, Level, StartOptions, Transport, Wakeup};
use watm_wireguard::WireGuard;

pub use client::Client;
pub use directory::Directory;
pub use host::SimHost;
pub use inner::{Conditions, Random};
pub use letters::{Letters, Office};
pub use line::Line;
pub use pair::{CLIENT, Outer, Pair, Side};
pub use streams::Streams;
pub use talk::Talk;

/// The address at which the server listens.
pub const SERVER: &str = "192.0.2.1:51820";

/// The interval of a client's timers.
pub const CLIENT_TICK: Duration = Duration::from_millis(250);

/// The most rounds before the world must rest.
pub const MAX_ROUNDS: usize = 100_000;

pub fn private_key(number: u8) -> StaticSecret {
    StaticSecret::from([number; 32])
}

pub fn public_key(number: u8) -> PublicKey {
    PublicKey::from(&private_key(number))
}

pub fn base64(key: &[u8; 32]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(key)
}

pub fn public_text(number: u8) -> String {
    base64(public_key(number).as_bytes())
}

/// The server's number, as for [`private_key`].
pub const SERVER_KEY: u8 = 200;

/// `[Interface]`, followed by `rest`.
pub fn server_config(rest: &str) -> String {
    format!(
        "[Interface]\nPrivateKey = {}\n{rest}",
        base64(private_key(SERVER_KEY).as_bytes())
    )
}

/// A `[Peer]` section.
pub fn peer_config(number: u8, rest: &str) -> String {
    format!("[Peer]\nPublicKey = {}\n{rest}\n", public_text(number))
}

/// Seeds this thread's randomness and sets its clock, for things outside a [`Sim`].
pub fn seed(seed: u64) {
    let mut random = Random(seed);
    getrandom::set_source(Some(Box::new(move |bytes| {
        for byte in bytes {
            *byte = random.next() as u8;
        }
    })));
    MockClock::set_time(Duration::from_nanos(START.0));
}

pub const START: Instant = Instant(1_000_000_000);

/// Starts a server with this configuration, as a host does.
pub fn start(config: &str, host: &mut SimHost) -> Result<WireGuard, ConfigError> {
    WireGuard::start(
        StartOptions {
            config: config.as_bytes().to_vec(),
            log_level: Level::Trace,
            generation: 0,
            predecessor: None,
        },
        host,
    )
}

/// The reason for refusing a configuration.
pub fn refusal(config: &str) -> String {
    seed(1);
    let mut host = SimHost::new(SERVER.parse().unwrap(), START);
    match start(config, &mut host) {
        Ok(_) => panic!("accepted: {config}"),
        Err(error) => error.to_string(),
    }
}

/// The simulated world.
pub struct Sim {
    pub server: WireGuard,
    pub host: SimHost,
    pub clients: Vec<Client>,
    /// Datagrams from the server to unused addresses.
    pub stray: Vec<(SocketAddr, Vec<u8>)>,
    wake: Option<Instant>,
    next_client_tick: Instant,
}

impl Sim {
    /// A server with this configuration.
    pub fn new(config: &str) -> Self {
        Self::on(config, SimHost::new(SERVER.parse().unwrap(), START))
    }

    /// A server whose peers are connected by streams.
    pub fn over_streams(config: &str) -> Self {
        let mut host = SimHost::new(SERVER.parse().unwrap(), START);
        host.streams = Some(Streams::default());
        Self::on(config, host)
    }

    fn on(config: &str, mut host: SimHost) -> Self {
        seed(7);
        let server = start(config, &mut host).unwrap_or_else(|error| panic!("{error}"));
        Sim {
            server,
            host,
            clients: Vec::new(),
            stray: Vec::new(),
            wake: Some(START),
            next_client_tick: START + CLIENT_TICK,
        }
    }

    /// A server with one peer, number 1, that may use any address; and its client.
    pub fn with_one_client() -> Self {
        let mut sim = Sim::new(&server_config(&peer_config(
            1,
            "AllowedIPs = 0.0.0.0/0, ::/0",
        )));
        sim.add_client(Client::new(1));
        sim
    }

    pub fn add_client(&mut self, client: Client) -> usize {
        self.clients.push(client);
        self.clients.len() - 1
    }

    pub fn now(&self) -> Instant {
        self.host.now()
    }

    /// Sends a datagram to the server from this address.
    pub fn inject(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.host.arrive(from, datagram);
    }

    /// Sends an inner packet from a client.
    pub fn send(&mut self, client: usize, packet: &[u8]) {
        let now = self.now();
        self.clients[client].send(packet, now);
    }

    /// Processes all due events without advancing the time.
    pub fn settle(&mut self) {
        for _ in 0..MAX_ROUNDS {
            if !self.round() {
                return;
            }
        }
        panic!("the world does not come to rest");
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now() + time;
        self.run_until(time, |_| false);
        self.set_now(end);
    }

    /// Runs until `done`, checked after every event, or until `limit` has passed. Returns true if
    /// it was done.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now() + limit;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            let next = self.next_event();
            if next > end {
                return false;
            }
            let now = self.now();
            self.set_now(next.max(now));
            if self.now() >= self.next_client_tick {
                self.next_client_tick = self.now() + CLIENT_TICK;
                for client in &mut self.clients {
                    client.tick(next);
                }
            }
        }
    }

    /// The value of a counter.
    pub fn counter(&self, name: &str) -> u64 {
        let status = self.server.status(self.now());
        let found = status.counters.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// The messages of records at this level.
    pub fn logged(&self, level: Level) -> Vec<String> {
        self.host
            .logs
            .iter()
            .filter(|(at, _)| *at == level)
            .map(|(_, message)| message.clone())
            .collect()
    }

    pub fn reconfigure(&mut self, config: &str) -> Result<(), ConfigError> {
        let result = self.server.reconfigure(config.as_bytes(), &mut self.host);
        self.wake = Some(self.now());
        result
    }

    fn set_now(&mut self, now: Instant) {
        self.host.set_now(now);
        MockClock::set_time(Duration::from_nanos(now.0));
    }

    fn next_event(&mut self) -> Instant {
        let now = self.now();
        self.clients
            .iter_mut()
            .filter_map(|client| client.next(now))
            .chain(self.wake)
            .fold(self.next_client_tick, Instant::min)
    }

    /// One round of all due work. Returns true if there was any.
    fn round(&mut self) -> bool {
        let now = self.now();
        let mut busy = false;
        for client in &mut self.clients {
            client.poll(now);
            for datagram in client.up.due(now) {
                self.host.arrive(client.address, &datagram);
            }
        }
        let ready = self.host.take_ready();
        if !ready.is_empty() || self.wake.is_some_and(|wake| wake <= now) {
            busy = true;
            self.wake = match self.server.process(&ready, &mut self.host) {
                Wakeup::Again => Some(now),
                Wakeup::At(at) => Some(at),
                Wakeup::OnReady | Wakeup::Finished => None,
            };
        }
        for (to, datagram) in self.host.take_sent() {
            busy = true;
            match self.clients.iter_mut().find(|client| client.address == to) {
                Some(client) => client.down.send(now, datagram),
                None => self.stray.push((to, datagram)),
            }
        }
        for client in &mut self.clients {
            for datagram in client.down.due(now) {
                busy = true;
                client.receive(&datagram, now);
            }
        }
        busy
    }
}
