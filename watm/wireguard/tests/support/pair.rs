//! Two of our transports with nothing but a network between them.

use std::net::SocketAddr;
use std::time::Duration;

use mock_instant::MockClock;
use watm_core::{Destination, ErrorCode, Host, Instant, Level, Transport, Wakeup};
use watm_wireguard::WireGuard;

use super::inner::StreamEnd;
use super::{SERVER, START, SimHost, Streams, seed, start};

/// Where the client is.
pub const CLIENT: &str = "198.51.100.7:40000";

/// What carries the datagrams.
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

    /// Do what is due; whether there was anything.
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

pub struct Pair {
    pub client: Side,
    pub server: Side,
    /// What the network between them loses.
    pub cut: bool,
}

impl Pair {
    pub fn new(client: &str, server: &str, outer: Outer) -> Pair {
        seed(9);
        Pair {
            client: Side::new(client, CLIENT, outer),
            server: Side::new(server, SERVER, outer),
            cut: false,
        }
    }

    /// Have the client open a connection.
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

    pub fn now(&self) -> Instant {
        self.client.host.now()
    }

    /// Let time pass.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now() + time;
        loop {
            self.settle();
            let wakes = [self.client.wake, self.server.wake];
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

    fn settle(&mut self) {
        let [client, server]: [SocketAddr; 2] = [CLIENT, SERVER].map(|at| at.parse().unwrap());
        for _ in 0..super::MAX_ROUNDS {
            let mut busy = self.client.step() | self.server.step();
            for (to, datagram) in self.client.host.take_sent() {
                assert_eq!(to, server);
                busy = true;
                if !self.cut {
                    self.server.host.arrive(client, &datagram);
                }
            }
            for (to, datagram) in self.server.host.take_sent() {
                assert_eq!(to, client);
                busy = true;
                if !self.cut {
                    self.client.host.arrive(server, &datagram);
                }
            }
            if !busy {
                return;
            }
        }
        panic!("the two do not come to rest");
    }
}
