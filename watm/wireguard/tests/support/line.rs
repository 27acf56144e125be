//! Generations of a server, one after another behind one socket, and its clients.

use std::net::SocketAddr;
use std::time::Duration;

use mock_instant::MockClock;
use watm_core::{ConfigError, Host, Instant, Level, StartOptions, Status, Transport, Wakeup};
use watm_wireguard::WireGuard;

use super::inner::packets;
use super::{
    CLIENT_TICK, Client, Conditions, MAX_ROUNDS, Office, SERVER, START, SimHost, Streams,
    peer_config, seed, server_config,
};

pub const MINUTE: Duration = Duration::from_secs(60);

/// The first byte of WireGuard's messages.
pub const INITIATION: u8 = 1;
pub const RESPONSE: u8 = 2;
pub const DATA: u8 = 4;

/// A configuration with one peer, number 1, that may use any address.
pub fn one_peer() -> String {
    server_config(&any_address(1))
}

pub fn any_address(number: u8) -> String {
    peer_config(number, "AllowedIPs = 0.0.0.0/0, ::/0")
}

/// A packet from `10.0.0.number`.
pub fn udp(number: u8, port: u16, data: &[u8]) -> Vec<u8> {
    let source = SocketAddr::new([10, 0, 0, number].into(), port);
    packets::udp(source, "192.168.0.1:9".parse().unwrap(), data)
}

/// A network with 20 ms each way.
pub fn network(loss: usize, jitter: u64) -> Conditions {
    Conditions {
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(jitter),
        loss,
        duplication: loss,
    }
}

/// One of the servers.
pub struct Generation {
    pub number: u32,
    pub server: WireGuard,
    pub host: SimHost,
    wake: Option<Instant>,
    finished: bool,
}

/// The simulated world.
pub struct Line {
    /// The living generations, the oldest first.
    pub generations: Vec<Generation>,
    pub serving: u32,
    pub clients: Vec<Client>,
    pub office: Office,
    /// Datagrams sent by generations that do not serve.
    pub sent_by_others: usize,
    /// The kinds of messages, by their first byte, that the network loses.
    pub lost_kinds: Vec<u8>,
    /// Datagrams to addresses of no client.
    pub stray: Vec<(SocketAddr, Vec<u8>)>,
    last: u32,
    now: Instant,
    next_client_tick: Instant,
    streams: Option<Streams>,
    place: (u32, u32),
}

impl Line {
    /// A first generation with this configuration.
    pub fn new(config: &str) -> Self {
        Self::on(config, None, (0, 1))
    }

    /// The same on one of several workers.
    pub fn on_worker(config: &str, place: (u32, u32)) -> Self {
        Self::on(config, None, place)
    }

    /// The same with one peer, which has a network stack behind this network.
    pub fn with_client(conditions: Conditions) -> Self {
        let mut line = Self::new(&one_peer());
        line.add_client(Client::new(1).with_stack(1420).behind(conditions));
        line
    }

    /// The same with peers connected by streams.
    pub fn over_streams(config: &str) -> Self {
        Self::on(config, Some(Streams::default()), (0, 1))
    }

    fn on(config: &str, streams: Option<Streams>, place: (u32, u32)) -> Self {
        seed(11 + u64::from(place.0));
        let mut line = Line {
            generations: Vec::new(),
            serving: 0,
            clients: Vec::new(),
            office: Office::new(),
            sent_by_others: 0,
            lost_kinds: Vec::new(),
            stray: Vec::new(),
            last: 0,
            now: START,
            next_client_tick: START + CLIENT_TICK,
            streams,
            place,
        };
        let first = line.start(config, 0, None);
        let first = first.unwrap_or_else(|error| panic!("{error}"));
        line.generations.push(first);
        line
    }

    fn start(
        &self,
        config: &str,
        number: u32,
        predecessor: Option<Vec<u8>>,
    ) -> Result<Generation, ConfigError> {
        let mut host = SimHost::new(SERVER.parse().unwrap(), self.now);
        host.streams = self.streams.as_ref().map(|_| Streams::default());
        host.set_place(self.place);
        host.mailbox = Some(self.office.letters(number));
        let options = StartOptions {
            config: config.into(),
            log_level: Level::Trace,
            generation: number,
            predecessor,
        };
        let server = WireGuard::start(options, &mut host).inspect_err(|_| {
            self.office.end(number);
        })?;
        Ok(Generation {
            number,
            server,
            host,
            wake: Some(self.now),
            finished: false,
        })
    }

    pub fn add_client(&mut self, client: Client) -> usize {
        self.clients.push(client);
        self.clients.len() - 1
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    pub fn generation(&mut self, number: u32) -> &mut Generation {
        let mut living = self.generations.iter_mut();
        living
            .find(|generation| generation.number == number)
            .unwrap_or_else(|| panic!("generation {number} lives"))
    }

    pub fn lives(&self, number: u32) -> bool {
        self.generations.iter().any(|g| g.number == number)
    }

    /// The serving generation.
    pub fn newest(&mut self) -> &mut Generation {
        self.generation(self.serving)
    }

    pub fn snapshot(&mut self) -> Vec<u8> {
        let now = self.now;
        self.newest().server.snapshot(now)
    }

    /// Replaces the serving generation by a new one. Returns the new number.
    pub fn swap(&mut self, config: &str) -> Result<u32, ConfigError> {
        let snapshot = self.snapshot();
        self.swap_from(config, snapshot)
    }

    /// The same, from this snapshot.
    pub fn swap_from(&mut self, config: &str, snapshot: Vec<u8>) -> Result<u32, ConfigError> {
        let next = self.start(config, self.last + 1, Some(snapshot))?;
        self.last += 1;
        self.generations.push(next);
        self.serve(self.last);
        Ok(self.last)
    }

    /// Drops the serving generation.
    pub fn fail(&mut self) {
        self.drop_generation(self.serving);
    }

    pub fn drop_generation(&mut self, number: u32) {
        self.generations.retain(|g| g.number != number);
        self.office.end(number);
    }

    /// Drops the serving generation, and lets its predecessor serve again.
    pub fn roll_back(&mut self) {
        let failed = self.generations.pop().expect("who serves");
        let waiting = { failed }.host.take_incoming();
        self.office.end(self.serving);
        self.serve(self.generations.last().expect("a predecessor").number);
        self.arrive_all(waiting);
    }

    fn serve(&mut self, number: u32) {
        let waiting = match self.lives(self.serving) {
            true => self.newest().host.take_incoming(),
            false => Vec::new(),
        };
        self.serving = number;
        // Every order is possible.
        let newest_first = number.is_multiple_of(2);
        let count = self.generations.len();
        for place in 0..count {
            let place = if newest_first {
                count - 1 - place
            } else {
                place
            };
            let generation = &mut self.generations[place];
            generation.server.serving(number, &mut generation.host);
            generation.wake = Some(self.now);
        }
        self.arrive_all(waiting);
    }

    fn arrive_all(&mut self, datagrams: Vec<(SocketAddr, Vec<u8>)>) {
        for (from, datagram) in datagrams {
            self.newest().host.arrive(from, &datagram);
        }
    }

    /// Sends a datagram to the server from this address.
    pub fn inject(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.newest().host.arrive(from, datagram);
    }

    /// Sends an inner packet from a client.
    pub fn send(&mut self, client: usize, packet: &[u8]) {
        let now = self.now;
        self.clients[client].send(packet, now);
    }

    pub fn status(&mut self) -> Status {
        let now = self.now;
        self.newest().server.status(now)
    }

    /// The value of a counter of this generation.
    pub fn counter(&mut self, number: u32, name: &str) -> u64 {
        let now = self.now;
        let status = self.generation(number).server.status(now);
        let found = status.counters.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    pub fn settle(&mut self) {
        for _ in 0..MAX_ROUNDS {
            if !self.round() {
                return;
            }
        }
        panic!("the world does not come to rest");
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until(time, |_| false);
        self.set_now(end);
    }

    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            let next = self.next_event();
            if next > end {
                return false;
            }
            self.set_now(next.max(self.now));
            if self.now >= self.next_client_tick {
                self.next_client_tick = self.now + CLIENT_TICK;
                for client in &mut self.clients {
                    client.tick(next);
                }
            }
        }
    }

    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
        for generation in &mut self.generations {
            generation.host.set_now(now);
        }
        MockClock::set_time(Duration::from_nanos(now.0));
    }

    pub fn next_event(&mut self) -> Instant {
        let now = self.now;
        let wakes = self.generations.iter().filter_map(|g| g.wake);
        self.clients
            .iter_mut()
            .filter_map(|client| client.next(now))
            .chain(wakes)
            .fold(self.next_client_tick, Instant::min)
    }

    pub fn round(&mut self) -> bool {
        let now = self.now;
        let mut busy = false;
        for place in 0..self.clients.len() {
            let client = &mut self.clients[place];
            client.poll(now);
            let address = client.address;
            let mut arrived = client.up.due(now);
            arrived.retain(|datagram| !self.lost_kinds.contains(&datagram[0]));
            for datagram in arrived {
                // A connection belongs to one generation.
                let connected = |g: &&mut Generation| {
                    let streams = g.host.streams.as_ref();
                    streams.is_some_and(|streams| streams.has(address))
                };
                let mut generations = self.generations.iter_mut();
                match generations.find(connected) {
                    Some(generation) => generation.host.arrive(address, &datagram),
                    None => self.newest().host.arrive(address, &datagram),
                }
            }
        }
        for generation in &mut self.generations {
            let ready = generation.host.take_ready();
            if ready.is_empty() && generation.wake.is_none_or(|wake| wake > now) {
                continue;
            }
            busy = true;
            let wakeup = generation.server.process(&ready, &mut generation.host);
            generation.finished = wakeup == Wakeup::Finished;
            generation.wake = match wakeup {
                Wakeup::Again => Some(now),
                Wakeup::At(at) => Some(at),
                Wakeup::OnReady | Wakeup::Finished => None,
            };
            for (to, datagram) in generation.host.take_sent() {
                if generation.number != self.serving {
                    self.sent_by_others += 1;
                    let shakes = datagram[0] != 4 && self.streams.is_none();
                    assert!(!shakes, "only who serves makes handshakes");
                }
                let mut clients = self.clients.iter_mut();
                if self.lost_kinds.contains(&datagram[0]) {
                    continue;
                }
                match clients.find(|client| client.address == to) {
                    Some(client) => client.down.send(now, datagram),
                    None => self.stray.push((to, datagram)),
                }
            }
        }
        let finished: Vec<u32> = self
            .generations
            .iter()
            .filter(|g| g.finished && g.number != self.serving)
            .map(|g| g.number)
            .collect();
        for number in finished {
            self.generations.retain(|g| g.number != number);
            self.office.end(number);
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
