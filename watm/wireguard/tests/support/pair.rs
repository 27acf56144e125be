//! Two transports of this crate with only a network between them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use mock_instant::MockClock;
use watm_core::{ConfigError, Destination, ErrorCode, Host, Instant, Level, Transport, Wakeup};
use watm_wireguard::WireGuard;

use super::inner::{DatagramEnd, StreamEnd};
use super::{SERVER, START, SimHost, Streams, seed, start};

/// The address of the client.
pub const CLIENT: &str = "198.51.100.7:40000";

/// The carrier of the datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outer {
    Datagrams,
    Streams,
}

/// One of the two.
pub struct Side {
    pub transport: WireGuard,
    pub host: SimHost,
    wake: Option<Instant>,
}

impl Side {
    fn new(config: &str, address: &str, outer: Outer) -> Side {
        let mut host = SimHost::new(address.parse().unwrap(), START);
        host.streams = (outer == Outer::Streams).then(Streams::default);
        let transport = start(config, &mut host).unwrap_or_else(|error| panic!("{error}"));
        Side {
            transport,
            host,
            wake: Some(START),
        }
    }

    /// The value of a counter.
    pub fn counter(&self, name: &str) -> u64 {
        let status = self.transport.status(self.host.now());
        let found = status.counters.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Does the due work. Returns true if there was any.
    fn step(&mut self) -> bool {
        let ready = self.host.take_ready();
        let now = self.host.now();
        if ready.is_empty() && self.wake.is_none_or(|wake| wake > now) {
            return false;
        }
        self.wake = match self.transport.process(&ready, &mut self.host) {
            Wakeup::Again => Some(now),
            Wakeup::At(at) => Some(at),
            Wakeup::OnReady | Wakeup::Finished => None,
        };
        true
    }
}

/// A datagram on its way.
#[derive(Clone)]
struct Flying {
    arrives: Instant,
    /// See [`Pair::shuffles`].
    shuffled: bool,
    from: SocketAddr,
    to: SocketAddr,
    datagram: Vec<u8>,
}

pub struct Pair {
    pub client: Side,
    pub server: Side,
    /// True if the network between them loses everything.
    pub cut: bool,
    /// The period of lost datagrams to the client: every nth one.
    pub loses: Option<u64>,
    arrived: u64,
    /// True if every other datagram arrives before the one that was sent before it, and again.
    pub shuffles: bool,
    /// The addresses of the two.
    pub client_at: SocketAddr,
    pub server_at: SocketAddr,
    /// The time that a datagram takes.
    pub delay: Duration,
    flying: VecDeque<Flying>,
    asleep: bool,
    /// The datagrams sent by either side, if they are kept.
    pub seen: Vec<Vec<u8>>,
    pub keep_seen: bool,
    /// Datagrams sent to unused addresses.
    pub stray: Vec<(SocketAddr, Vec<u8>)>,
}

impl Pair {
    pub fn new(client: &str, server: &str, outer: Outer) -> Pair {
        seed(9);
        Pair {
            client: Side::new(client, CLIENT, outer),
            server: Side::new(server, SERVER, outer),
            cut: false,
            loses: None,
            arrived: 0,
            shuffles: false,
            client_at: CLIENT.parse().unwrap(),
            server_at: SERVER.parse().unwrap(),
            delay: Duration::ZERO,
            flying: VecDeque::new(),
            asleep: false,
            seen: Vec::new(),
            keep_seen: false,
            stray: Vec::new(),
        }
    }

    /// Opens a connection from the client.
    pub fn dial(&mut self, to: Option<&str>) -> Result<StreamEnd, ErrorCode> {
        let (end, stream) = self.client.host.app.new_stream();
        let to: Option<Destination> = to.map(|to| to.parse().unwrap());
        let Side {
            transport, host, ..
        } = &mut self.client;
        let token = transport.dial(to.as_ref(), stream, host)?;
        end.set_token(token);
        self.client.wake = Some(self.now());
        Ok(end)
    }

    pub fn reconfigure_client(&mut self, config: &str) -> Result<(), ConfigError> {
        let Side {
            transport, host, ..
        } = &mut self.client;
        let result = transport.reconfigure(config.as_bytes(), host);
        self.client.wake = Some(self.now());
        result
    }

    /// Tells the client that its network has changed.
    pub fn network_changed(&mut self) {
        let Side {
            transport, host, ..
        } = &mut self.client;
        transport.network_changed(host);
        self.client.wake = Some(self.now());
    }

    /// Like [`dial`](Self::dial), for datagrams.
    pub fn dial_datagrams(&mut self, to: Option<&str>) -> Result<DatagramEnd, ErrorCode> {
        let (end, flow) = self.client.host.app.new_datagrams();
        let to: Option<Destination> = to.map(|to| to.parse().unwrap());
        let Side {
            transport, host, ..
        } = &mut self.client;
        let token = transport.dial_datagrams(to.as_ref(), flow, host)?;
        end.set_token(token);
        self.client.wake = Some(self.now());
        Ok(end)
    }

    pub fn now(&self) -> Instant {
        self.client.host.now()
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now() + time;
        loop {
            self.settle();
            let flying = self.flying.front().map(|next| next.arrives);
            let client = self.client.wake.filter(|_| !self.asleep);
            let wakes = [client, self.server.wake, flying];
            match wakes.into_iter().flatten().min() {
                Some(next) if next <= end => self.set_now(next.max(self.now())),
                _ => return self.set_now(end),
            }
        }
    }

    fn set_now(&mut self, now: Instant) {
        self.client.host.set_now(now);
        self.server.host.set_now(now);
        MockClock::set_time(Duration::from_nanos(now.0));
    }

    /// Lets time pass while the client's machine sleeps and loses everything.
    pub fn sleep_for(&mut self, time: Duration) {
        self.asleep = true;
        self.run_for(time);
        self.asleep = false;
        self.client.host.take_incoming();
    }

    fn settle(&mut self) {
        for _ in 0..super::MAX_ROUNDS {
            let mut busy = self.server.step() | (!self.asleep && self.client.step());
            let arrives = self.now() + self.delay;
            for (side, from) in [
                (&mut self.client, self.client_at),
                (&mut self.server, self.server_at),
            ] {
                for (to, datagram) in side.host.take_sent() {
                    busy = true;
                    if self.keep_seen {
                        self.seen.push(datagram.clone());
                    }
                    self.flying.push_back(Flying {
                        arrives,
                        shuffled: false,
                        from,
                        to,
                        datagram,
                    });
                }
            }
            if self.shuffles {
                self.shuffle();
            }
            let now = self.now();
            while self.flying.front().is_some_and(|next| next.arrives <= now) {
                busy = true;
                let next = self.flying.pop_front().expect("looked at");
                self.arrive(next);
            }
            if !busy {
                return;
            }
        }
        panic!("the two do not come to rest");
    }

    fn shuffle(&mut self) {
        let latest = self.flying.back().map(|flying| flying.arrives);
        let new = |flying: &Flying| Some(flying.arrives) == latest && !flying.shuffled;
        let Some(first) = self.flying.iter().position(new) else {
            return;
        };
        let mut again = Vec::new();
        for chunk in self.flying.make_contiguous()[first..].chunks_mut(2) {
            chunk.reverse();
            for flying in chunk.iter_mut() {
                flying.shuffled = true;
            }
            again.push(chunk[0].clone());
        }
        self.flying.extend(again);
    }

    fn arrive(&mut self, flying: Flying) {
        let Flying {
            from, to, datagram, ..
        } = flying;
        if to == self.client_at {
            self.arrived += 1;
            let lost = self.loses.is_some_and(|n| self.arrived.is_multiple_of(n));
            if !self.cut && !lost {
                self.client.host.arrive(from, &datagram);
            }
        } else if to == self.server_at {
            if !self.cut {
                self.server.host.arrive(from, &datagram);
            }
        } else {
            self.stray.push((to, datagram));
        }
    }
}
