//! Inner packets of two authenticated peers, straight into the network stack.
//!
//! Peer 1 speaks TCP and UDP whose every byte follows from its place, in any order, so that the
//! application's input and output can be checked. Peer 2, from the same addresses, sends the
//! packets of the program.

use std::net::SocketAddr;
use std::time::Duration;

use watm_core::ErrorCode;
use watm_netstack::Config;

use crate::connections::{Connections, Reader};
use crate::packet;
use crate::program::Program;
use crate::support::inner::{Bench, origin, packets};

const HONEST: u32 = 1;
const WILD: u32 = 2;

const FLOWS: usize = 24;
const BUDGET: usize = 1 << 20;

pub fn run(input: &[u8]) {
    let mut program = Program::new(input);
    let mut world = World::new();
    while let Some(step) = program.step(13) {
        match step {
            0..=2 => {
                let segment = world.connections.segment(&mut program);
                world.send(HONEST, &[segment]);
            }
            3 => {
                let pieces = datagram(&mut program);
                world.send(HONEST, &pieces);
            }
            4..=6 => {
                let packet = wild(&mut program);
                world.send(WILD, &[packet]);
            }
            7 => {
                let time = program.choose(&[1, 40, 250, 1_000, 11_000, 61_000]);
                world.bench.pass(Duration::from_millis(time));
            }
            8 | 9 => world.application(&mut program),
            10 if program.one_in(8) => world.forget(),
            10 => world.reconfigure(&mut program),
            11 => {
                let segment = world.lawless.segment(&mut program);
                world.send(WILD, &[segment]);
            }
            _ => {
                world.bench.app.refuse = program.one_in(4).then_some(ErrorCode::LimitReached);
                world.bench.app.room = program.one_in(4).then(|| program.below(3000));
            }
        }
        world.check();
    }
    world.end();
}

struct World {
    bench: Bench,
    config: Config,
    connections: Connections,
    /// The connections of the wild peer.
    lawless: Connections,
    /// Readers of the streams of the peer whose bytes are known.
    readers: Vec<Reader>,
    /// Streams that have been looked at.
    seen: usize,
}

impl World {
    fn new() -> Self {
        let config = Config {
            max_flows: FLOWS,
            buffer_budget: BUDGET,
            ..Config::default()
        };
        let (client, server) = addresses(false);
        World {
            bench: Bench::new(config.clone()),
            config,
            connections: Connections::lawful(client, server),
            lawless: Connections::lawless(client, server),
            readers: Vec::new(),
            seen: 0,
        }
    }

    fn send(&mut self, peer: u32, packets: &[Vec<u8>]) {
        let (origin, bench) = (origin(peer), &mut self.bench);
        for packet in packets {
            bench
                .stack
                .handle_packet(&origin, packet, &mut bench.app, &mut bench.sent);
        }
    }

    /// Makes the application use one of its flows.
    fn application(&mut self, program: &mut Program<'_>) {
        let flows = self.bench.app.flows();
        let streams = self.bench.app.streams();
        match program.below(4) {
            0 if !flows.is_empty() => {
                let flow = &flows[program.below(flows.len())];
                match program.below(4) {
                    0 => flow.close(program.one_in(2)),
                    1 => flow.set_room(program.below(4)),
                    // Some of them have to be sent in pieces, and some cannot be sent.
                    _ => flow.write(&vec![
                        1;
                        program.choose(&[0, 10, 1400, 9000, 65_507, 65_508])
                    ]),
                }
            }
            1 if !streams.is_empty() => {
                let stream = &streams[program.below(streams.len())];
                if stream.info().peer.as_deref() == Some("peer 2") {
                    match program.below(4) {
                        0 => stream.close(),
                        1 => stream.write(&[2; 3000]),
                        _ => drop(stream.read()),
                    }
                }
            }
            _ if !self.readers.is_empty() => {
                let reader = program.below(self.readers.len());
                self.readers[reader].act(program);
            }
            _ => {}
        }
    }

    /// The wild peer is no longer served.
    fn forget(&mut self) {
        let bench = &mut self.bench;
        bench
            .stack
            .remove_peer(WILD, &mut bench.app, &mut bench.sent);
    }

    fn reconfigure(&mut self, program: &mut Program<'_>) {
        // Everything due under the old configuration has been sent.
        self.check();
        self.config.mtu = program.choose(&[1280, 1420, 9000]);
        self.config.udp_idle_timeout = Duration::from_secs(program.choose(&[1, 60]));
        self.bench.stack.reconfigure(self.config.clone());
    }

    /// Let everything happen that can happen now, and check what holds then.
    fn check(&mut self) {
        self.bench.rest();
        for (peer, packet) in std::mem::take(&mut self.bench.sent.0) {
            packet::check(&packet, self.config.mtu);
            if peer == HONEST {
                self.connections.receive(&packet);
            } else {
                self.lawless.learn(&packet);
            }
        }
        assert!(self.bench.stack.flows() <= FLOWS, "too many flows");
        assert!(self.bench.stack.held_bytes() <= BUDGET, "too much memory");
        let streams = self.bench.app.streams();
        for stream in &streams[self.seen..] {
            if stream.info().peer.as_deref() == Some("peer 1") {
                self.readers.extend(Reader::of(stream));
            }
        }
        self.seen = streams.len();
        let live = streams.iter().filter(|stream| !stream.gone()).count();
        let open = self.bench.app.flows().iter();
        let live = live + open.filter(|flow| !flow.gone()).count();
        assert!(live <= self.bench.stack.flows(), "flows that nobody counts");
        for flow in self.bench.app.flows() {
            let datagrams = flow.read();
            if flow.info().peer.as_deref() == Some("peer 1") {
                for datagram in datagrams {
                    assert_eq!(
                        datagram,
                        message(datagram.len()),
                        "a wrong datagram is read"
                    );
                }
            }
        }
    }

    /// Removes the peers, and checks that nothing is left of them.
    fn end(mut self) {
        for reader in &mut self.readers {
            reader.read();
        }
        self.check();
        let bench = &mut self.bench;
        for peer in [HONEST, WILD] {
            bench
                .stack
                .remove_peer(peer, &mut bench.app, &mut bench.sent);
        }
        self.check();
        let stack = &self.bench.stack;
        assert_eq!((stack.flows(), stack.held_bytes()), (0, 0));
        assert!(self.bench.app.streams().iter().all(|stream| stream.gone()));
        assert!(self.bench.app.flows().iter().all(|flow| flow.gone()));
        // Nor does anything of them happen later.
        self.bench.pass(Duration::from_secs(120));
        assert!(self.bench.sent.0.is_empty(), "sent to peers that are gone");
        assert_eq!(self.bench.stack.poll_timeout(), None);
    }
}

/// Both peers' address, and the server's, of which each port is another one.
fn addresses(v6: bool) -> (SocketAddr, SocketAddr) {
    let (client, server) = if v6 {
        ("[fd00::2]:4000", "[2001:db8::1]:443")
    } else {
        ("10.0.0.2:4000", "192.0.2.1:443")
    };
    (
        client.parse().expect("an address"),
        server.parse().expect("an address"),
    )
}

/// A packet from one of a few ports to one of a few.
fn wild(program: &mut Program<'_>) -> Vec<u8> {
    let (mut client, mut server) = addresses(program.one_in(2));
    client.set_port(4000 + program.below(32) as u16);
    server.set_port(program.choose(&[443, 53, 0]));
    packet::any(program, client, server)
}

/// A datagram whose bytes follow from their places, in one packet or in several, which may
/// come in another order, twice or not at all.
fn datagram(program: &mut Program<'_>) -> Vec<Vec<u8>> {
    let (client, server) = addresses(program.one_in(2));
    let whole = packets::udp(
        client,
        server,
        &message(program.choose(&[0, 10, 600, 3000])),
    );
    let units = (packets::read_ip(&whole).3.len() - 1) / 8;
    let mut cuts: Vec<_> = (0..program.below(4))
        .map(|_| program.below(units.max(1)) * 8)
        .filter(|&at| at > 0)
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    if cuts.is_empty() {
        return vec![whole];
    }
    let pieces = packets::fragments(&whole, program.below(4) as u32, &cuts);
    let order = 0..pieces.len() + program.below(2);
    order
        .map(|at| pieces[(at + program.below(2)) % pieces.len()].clone())
        .collect()
}

fn message(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 8) as u8).collect()
}
