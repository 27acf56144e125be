//! A client: boringtun, with a network stack behind it and a network before it.

use std::net::SocketAddr;
use std::time::Duration;

use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::StaticSecret;
use watm_core::Instant;

use super::inner::{self, Conditions, Link};
use super::{SERVER_KEY, private_key, public_key};

pub struct Client {
    pub tunn: Tunn,
    /// Its address in the outer network.
    pub address: SocketAddr,
    pub up: Link,
    pub down: Link,
    /// The stack for inner packets; without it they are kept.
    pub stack: Option<inner::Client>,
    /// The inner packets received.
    pub received: Vec<Vec<u8>>,
    /// All datagrams sent, and all received.
    pub sent: Vec<Vec<u8>>,
    pub came: Vec<Vec<u8>>,
    /// True if it runs its timers and answers.
    pub alive: bool,
    buffer: Vec<u8>,
}

impl Client {
    /// The client with this key, on a network without faults.
    pub fn new(number: u8) -> Self {
        Self::with_psk(number, None)
    }

    pub fn with_psk(number: u8, preshared_key: Option<[u8; 32]>) -> Self {
        Self::with_key(number, private_key(number), preshared_key)
    }

    /// A client whose key is not derived from its number.
    pub fn with_key(number: u8, key: StaticSecret, preshared_key: Option<[u8; 32]>) -> Self {
        let tunn = Tunn::new(
            key,
            public_key(SERVER_KEY),
            preshared_key,
            None,
            u32::from(number) + 1000,
            None,
        );
        let clean = Conditions::clean(Duration::ZERO);
        Client {
            tunn,
            address: SocketAddr::new([198, 51, 100, number].into(), 4000 + u16::from(number)),
            up: Link::new(clean, u64::from(number)),
            down: Link::new(clean, u64::from(number) + 256),
            stack: None,
            received: Vec::new(),
            sent: Vec::new(),
            came: Vec::new(),
            alive: true,
            buffer: vec![0; 70_000],
        }
    }

    /// Puts it behind a network with these conditions.
    pub fn behind(mut self, conditions: Conditions) -> Self {
        self.up.conditions = conditions;
        self.down.conditions = conditions;
        self
    }

    /// Gives it a network stack.
    pub fn with_stack(mut self, mtu: usize) -> Self {
        self.stack = Some(inner::Client::new(mtu, 99));
        self
    }

    /// Sends an inner packet.
    pub fn send(&mut self, packet: &[u8], now: Instant) {
        let result = self.tunn.encapsulate(packet, &mut self.buffer);
        if let TunnResult::WriteToNetwork(datagram) = result {
            let datagram = datagram.to_vec();
            self.transmit(datagram, now);
        }
    }

    /// Begins a handshake, even if none is needed.
    pub fn handshake(&mut self, now: Instant) -> Vec<u8> {
        let result = self
            .tunn
            .format_handshake_initiation(&mut self.buffer, true);
        let TunnResult::WriteToNetwork(datagram) = result else {
            panic!("no initiation: {result:?}");
        };
        let datagram = datagram.to_vec();
        self.transmit(datagram.clone(), now);
        datagram
    }

    pub fn tick(&mut self, now: Instant) {
        if !self.alive {
            return;
        }
        if let TunnResult::WriteToNetwork(datagram) = self.tunn.update_timers(&mut self.buffer) {
            let datagram = datagram.to_vec();
            self.transmit(datagram, now);
        }
    }

    pub fn receive(&mut self, datagram: &[u8], now: Instant) {
        if !self.alive {
            return;
        }
        self.came.push(datagram.to_vec());
        let mut datagram = datagram;
        loop {
            match self.tunn.decapsulate(None, datagram, &mut self.buffer) {
                TunnResult::WriteToNetwork(reply) => {
                    let reply = reply.to_vec();
                    self.transmit(reply, now);
                    datagram = &[];
                }
                TunnResult::WriteToTunnelV4(packet, _) | TunnResult::WriteToTunnelV6(packet, _) => {
                    match &mut self.stack {
                        Some(stack) => stack.receive(packet.to_vec()),
                        None => self.received.push(packet.to_vec()),
                    }
                    return;
                }
                TunnResult::Done | TunnResult::Err(_) => return,
            }
        }
    }

    /// Lets the stack send its pending packets.
    pub fn poll(&mut self, now: Instant) {
        let packets = self
            .stack
            .as_mut()
            .map(|stack| stack.poll(now))
            .unwrap_or_default();
        for packet in packets {
            self.send(&packet, now);
        }
    }

    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        [
            self.up.next(),
            self.down.next(),
            self.stack.as_mut().and_then(|stack| stack.next(now)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The number of received datagrams of this type.
    pub fn came_of_type(&self, kind: u8) -> usize {
        self.came
            .iter()
            .filter(|datagram| datagram[0] == kind)
            .count()
    }

    fn transmit(&mut self, datagram: Vec<u8>, now: Instant) {
        self.sent.push(datagram.clone());
        self.up.send(now, datagram);
    }
}
