//! Datagrams of strangers, who know the server's public key and can replay datagrams, but have no
//! key of a peer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use blake2::digest::{FixedOutput, KeyInit, Update};
use blake2::{Blake2s256, Blake2sMac, Digest, digest::consts::U16};
use watm_core::{Instant, Level, Transport};

use crate::program::Program;
use crate::support::inner::packets;
use crate::support::{Client, SERVER_KEY, Sim, peer_config, public_key, server_config};

/// The peer, and a stranger who begins handshakes with a key of its own.
const PEER: usize = 0;
const STRANGER: usize = 1;

/// Few, so that a program reaches the limits.
const HANDSHAKES_PER_SECOND: u64 = 4;

/// The most that a program lasts, in seconds: a peer's session lives for 180.
const LONGEST: u64 = 100;

const COOKIE: u8 = 3;
const COOKIE_BYTES: usize = 64;

pub fn run(input: &[u8]) {
    let mut program = Program::new(input);
    let mut world = World::new();
    while let Some(step) = program.step(8) {
        match step {
            0 => {
                let datagram = program.bytes().to_vec();
                world.inject(&mut program, datagram);
            }
            1 => {
                let datagram = message(&mut program);
                world.inject(&mut program, datagram);
            }
            2 | 3 => {
                let datagram = world.repeat(&mut program);
                world.inject(&mut program, datagram);
            }
            4 => {
                let now = world.sim.now();
                world.sim.clients[STRANGER].handshake(now);
            }
            5 => {
                let now = world.sim.now();
                let initiation = world.sim.clients[STRANGER].handshake(now);
                for _ in 0..program.below(64) {
                    world.inject(&mut program, initiation.clone());
                }
            }
            6 => world.wait(program.choose(&[10, 250, 1000, 6000])),
            _ => world.sim.settle(),
        }
    }
    world.check();
    world.serves();
}

struct World {
    sim: Sim,
    /// The datagrams that the peer has sent and received; all of them have arrived.
    overheard: Vec<Vec<u8>>,
    /// Datagrams that were neither dropped nor answered with a cookie, before it began.
    taken: i128,
    began: Instant,
}

impl World {
    fn new() -> Self {
        let peer = peer_config(1, "AllowedIPs = 10.77.0.1/32");
        let limit = format!("[Watm]\nHandshakesPerSecond = {HANDSHAKES_PER_SECOND}\n");
        let mut sim = Sim::new(&server_config(&(peer + &limit)));
        sim.add_client(Client::new(1));
        sim.add_client(Client::new(9));
        sim.send(PEER, &question(1));
        sim.settle();
        assert_eq!(sim.host.app.flows().len(), 1, "the peer is served");
        // Until the handshake is done, datagrams are from strangers.
        sim.clients[PEER].alive = false;
        sim.host.logs.clear();
        let peer = &sim.clients[PEER];
        World {
            overheard: [peer.sent.as_slice(), &peer.came].concat(),
            taken: taken(&sim),
            began: sim.now(),
            sim,
        }
    }

    /// Send a datagram, as a rule from some other address than the peer's.
    fn inject(&mut self, program: &mut Program<'_>, datagram: Vec<u8>) {
        let from = match program.below(8) {
            0 => self.sim.clients[PEER].address,
            1 => self.sim.clients[STRANGER].address,
            number => SocketAddr::new(
                IpAddr::from([203, 0, 113, number as u8]),
                1 + program.word() % 4,
            ),
        };
        self.sim.inject(from, &datagram);
    }

    /// Something that the peer sent or received, as it was or nearly.
    fn repeat(&mut self, program: &mut Program<'_>) -> Vec<u8> {
        let mut datagram = self.overheard[program.below(self.overheard.len())].clone();
        program.damage(&mut datagram);
        if program.one_in(2) {
            sign(&mut datagram);
        }
        datagram
    }

    fn wait(&mut self, milliseconds: u64) {
        if self.sim.now() - self.began < Duration::from_secs(LONGEST) {
            self.sim.run_for(Duration::from_millis(milliseconds));
        }
    }

    /// Checks that strangers have changed nothing, and that each of their datagrams is counted as
    /// dropped or answered with a cookie.
    fn check(&mut self) {
        self.sim.settle();
        let strangers = self.sim.stray.iter().map(|(_, datagram)| datagram);
        let came = self.sim.clients[STRANGER].came.iter();
        for datagram in strangers.chain(came) {
            assert_eq!(datagram.len(), COOKIE_BYTES, "more than a cookie");
            assert_eq!(datagram[0], COOKIE, "strangers get cookies alone");
        }
        assert_eq!(taken(&self.sim), self.taken, "a datagram was taken");
        let status = self.sim.server.status(self.sim.now());
        let endpoint = Some(self.sim.clients[PEER].address);
        assert_eq!(status.peers[PEER].endpoint, endpoint, "the endpoint moved");
        assert_eq!(self.sim.host.app.flows().len(), 1);
        assert_eq!(self.sim.host.app.streams().len(), 0);
        let loud = |(level, _): &&(Level, String)| *level > Level::Debug;
        assert_eq!(
            self.sim.host.logs.iter().find(loud),
            None,
            "strangers are loud"
        );
    }

    /// The peer's session goes on, and it can make another.
    fn serves(&mut self) {
        self.sim.clients[PEER].alive = true;
        self.sim.send(PEER, &question(2));
        self.sim.settle();
        assert_eq!(self.sim.host.app.flows().len(), 2, "the session is gone");
        self.sim.run_for(Duration::from_secs(2));
        let now = self.sim.now();
        self.sim.clients[PEER].handshake(now);
        self.sim.settle();
        self.sim.send(PEER, &question(3));
        self.sim.settle();
        assert_eq!(self.sim.host.app.flows().len(), 3, "no new session");
    }
}

/// A packet that opens a flow.
fn question(port: u16) -> Vec<u8> {
    let source = SocketAddr::new([10, 77, 0, 1].into(), port);
    let destination = SocketAddr::new([192, 168, 0, 1].into(), 9);
    packets::udp(source, destination, b"question")
}

/// A message of the right length with any bytes in it, as a rule with a good signature.
fn message(program: &mut Program<'_>) -> Vec<u8> {
    let (kind, length) = program.choose(&[(1, 148), (2, 92), (3, 64), (4, 32), (4, 100)]);
    let mut message = vec![kind, 0, 0, 0];
    message.extend_from_slice(program.bytes());
    message.resize(length, program.byte());
    if !program.one_in(8) {
        sign(&mut message);
    }
    message
}

/// Make the first of a handshake message's two MACs right, which takes the server's public
/// key (WireGuard paper, section 5.4.4).
fn sign(message: &mut [u8]) {
    let Some(end) = message.len().checked_sub(32) else {
        return;
    };
    let key = Blake2s256::new()
        .chain_update(b"mac1----")
        .chain_update(public_key(SERVER_KEY))
        .finalize();
    let mut mac = Blake2sMac::<U16>::new_from_slice(&key).expect("32 bytes");
    mac.update(&message[..end]);
    message[end..end + 16].copy_from_slice(&mac.finalize_fixed());
}

/// Datagrams that were neither dropped nor answered with a cookie.
fn taken(sim: &Sim) -> i128 {
    let status = sim.server.status(sim.now());
    let sum = |of: &dyn Fn(&str) -> bool| -> i128 {
        let counters = status.counters.iter().filter(|(name, _)| of(name));
        counters.map(|(_, value)| i128::from(*value)).sum()
    };
    let received = sum(&|name| name == "wireguard.datagrams_received");
    let refused =
        sum(&|name| name.starts_with("wireguard.dropped.") || name == "wireguard.cookies_sent");
    received - refused
}
