//! Connections that the application opens, with a peer's answers.
//!
//! The peer knows the ports, as it would on the way, and accepts, refuses, ignores and
//! misleads. Its bytes follow from their places, so that what the application reads can be
//! checked.

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::{IpProtocol, Ipv4Packet, TcpControl, TcpPacket};
use watm_netstack::Config;

use crate::connections::byte;
use crate::packet;
use crate::program::Program;
use crate::support::inner::packets::Tcp;
use crate::support::inner::{Bench, SOURCE_V4, StreamEnd, origin};

const PEER: u32 = 1;

const FLOWS: usize = 8;
const BUDGET: usize = 1 << 20;

/// The peer's first sequence number, which wraps soon.
const FIRST: u32 = 0xffff_ff00;

pub fn run(input: &[u8]) {
    let mut program = Program::new(input);
    let mut world = World::new();
    while let Some(step) = program.step(10) {
        match step {
            0 => world.dial(&mut program),
            1 => world.accept(&mut program),
            2..=4 => world.segment(&mut program),
            5 => {
                let (peer, near) = (world.peer, world.near(&mut program));
                let packet = packet::any(&mut program, peer, near);
                if !is_syn_or_data(&packet) {
                    world.send(&packet);
                }
            }
            6 => {
                let time = program.choose(&[1, 40, 1_000, 11_000, 61_000]);
                world.bench.pass(Duration::from_millis(time));
            }
            7 if program.one_in(8) => {
                let bench = &mut world.bench;
                bench
                    .stack
                    .remove_peer(PEER, &mut bench.app, &mut bench.sent);
            }
            _ => world.application(&mut program),
        }
        world.check();
    }
    world.end();
}

/// Returns true for a TCP segment with a SYN, whose first sequence number would not be `FIRST`, or with
/// data, whose bytes would not be those of their places.
fn is_syn_or_data(packet: &[u8]) -> bool {
    let segment = Ipv4Packet::new_checked(packet)
        .ok()
        .filter(|ip| ip.next_header() == IpProtocol::Tcp)
        .and_then(|ip| TcpPacket::new_checked(ip.payload()).ok());
    segment.is_some_and(|segment| segment.syn() || !segment.payload().is_empty())
}

struct World {
    bench: Bench,
    peer: SocketAddr,
    connections: Vec<Connection>,
}

struct Connection {
    stream: StreamEnd,
    /// The stack's port, once the SYN was seen.
    port: Option<u16>,
    /// The sequence number of the next byte from the stack.
    expected: u32,
    /// The number of bytes that the application has read.
    read: u32,
}

impl World {
    fn new() -> Self {
        World {
            bench: Bench::new(Config {
                max_flows: FLOWS,
                buffer_budget: BUDGET,
                ..Config::default()
            }),
            peer: "192.0.2.1:443".parse().expect("an address"),
            connections: Vec::new(),
        }
    }

    fn dial(&mut self, program: &mut Program<'_>) {
        let mut to = self.peer;
        if program.one_in(8) {
            to.set_port(0);
        }
        if let Ok(stream) = self.bench.dial(PEER, to) {
            self.connections.push(Connection {
                stream,
                port: None,
                expected: 0,
                read: 0,
            });
        }
        // Each SYN belongs to one connection.
        self.check();
    }

    fn send(&mut self, packet: &[u8]) {
        let bench = &mut self.bench;
        bench
            .stack
            .handle_packet(&origin(PEER), packet, &mut bench.app, &mut bench.sent);
    }

    /// The stack's end of one of the connections, or another.
    fn near(&self, program: &mut Program<'_>) -> SocketAddr {
        let ports: Vec<_> = self.connections.iter().filter_map(|c| c.port).collect();
        let port = match ports.is_empty() {
            true => 50_000,
            false => program.choose(&ports),
        };
        SocketAddr::new(SOURCE_V4, port)
    }

    fn expected(&self, near: SocketAddr) -> u32 {
        let mut known = self.connections.iter().rev();
        known
            .find(|c| c.port == Some(near.port()))
            .map_or(0, |c| c.expected)
    }

    /// An acceptance as it should be.
    fn accept(&mut self, program: &mut Program<'_>) {
        let near = self.near(program);
        let packet = Tcp {
            source: self.peer,
            destination: near,
            control: TcpControl::Syn,
            sequence: FIRST,
            acknowledges: Some(self.expected(near)),
            window: program.choose(&[65535, 1, 0, 1000]),
            scale: program.choose(&[None, Some(0), Some(7), Some(14)]),
            payload: b"",
            sack: None,
        }
        .packet();
        self.send(&packet);
    }

    /// Any segment, with the right bytes for its place.
    fn segment(&mut self, program: &mut Program<'_>) {
        let near = self.near(program);
        let start = FIRST.wrapping_add(1);
        let offset = match program.below(4) {
            0 => u32::from(program.word()),
            1 => u32::from(program.word()) * 8,
            _ => u32::from(program.byte()) * 100,
        };
        let length = program.choose(&[0, 0, 100, 1200, 1380]);
        let expected = self.expected(near);
        let control = program.choose(&[
            TcpControl::None,
            TcpControl::Psh,
            TcpControl::Psh,
            TcpControl::Fin,
            TcpControl::Rst,
            TcpControl::Syn,
        ]);
        let gap = program.one_in(4).then(|| u32::from(program.word()));
        // Places count from the same first number on all connections. The data of a SYN comes first.
        let (sequence, offset) = match control {
            TcpControl::Syn => (FIRST, 0),
            _ => (start.wrapping_add(offset), offset),
        };
        let payload: Vec<u8> = (0..length).map(|at| byte(offset + at)).collect();
        let packet = Tcp {
            source: self.peer,
            destination: near,
            control,
            sequence,
            acknowledges: match program.below(8) {
                0 => None,
                1 => Some(expected.wrapping_sub(program.word().into())),
                2 => Some(expected.wrapping_add(program.word().into())),
                _ => Some(expected),
            },
            window: program.choose(&[65535, 1, 0, 1000]),
            scale: None,
            payload: &payload,
            sack: gap.map(|gap| {
                let start = expected.wrapping_add(gap);
                (start, start.wrapping_add(1200))
            }),
        }
        .packet();
        self.send(&packet);
    }

    fn application(&mut self, program: &mut Program<'_>) {
        if self.connections.is_empty() {
            return;
        }
        let number = program.below(self.connections.len());
        let connection = &mut self.connections[number];
        match program.below(8) {
            0 => connection.stream.close(),
            1 => connection.stream.abort(),
            2 => connection.stream.set_room(program.below(4000)),
            3 | 4 => {
                let size = program.choose(&[1, 100, 5000, 70_000]);
                connection.stream.write(&vec![1; size]);
            }
            _ => connection.read(),
        }
    }

    /// Let everything happen that can happen now, and check what holds then.
    fn check(&mut self) {
        self.bench.rest();
        for (_, packet) in std::mem::take(&mut self.bench.sent.0) {
            packet::check(&packet, Config::default().mtu);
            self.learn(&packet);
        }
        assert!(self.bench.stack.flows() <= FLOWS, "too many flows");
        assert!(self.bench.stack.held_bytes() <= BUDGET, "too much memory");
        let live = self.connections.iter().filter(|c| !c.stream.gone()).count();
        assert!(live <= self.bench.stack.flows(), "flows that nobody counts");
    }

    fn learn(&mut self, packet: &[u8]) {
        let Some((_, _, segment)) = packet::read_tcp(packet) else {
            return;
        };
        // The source port stands first behind an IPv4 header.
        let port = u16::from_be_bytes([packet[20], packet[21]]);
        let length = segment.payload.len() as u32 + u32::from(segment.fin | segment.syn);
        let end = segment.sequence.wrapping_add(length);
        let mut known = self.connections.iter_mut().rev();
        let found = match known.find(|c| c.port == Some(port)) {
            Some(found) => Some(found),
            None if segment.syn => self.connections.iter_mut().find(|c| c.port.is_none()),
            None => None,
        };
        if let Some(connection) = found {
            connection.port = Some(port);
            if !segment.reset {
                connection.expected = end;
            }
        }
    }

    /// Removes the peer, and checks that nothing is left.
    fn end(mut self) {
        for connection in &mut self.connections {
            connection.read();
        }
        self.check();
        let bench = &mut self.bench;
        bench
            .stack
            .remove_peer(PEER, &mut bench.app, &mut bench.sent);
        self.check();
        let stack = &self.bench.stack;
        assert_eq!((stack.flows(), stack.held_bytes()), (0, 0));
        assert!(self.connections.iter().all(|c| c.stream.gone()));
        self.bench.pass(Duration::from_secs(120));
        assert!(self.bench.sent.0.is_empty(), "sent to a peer that is gone");
        assert_eq!(self.bench.stack.poll_timeout(), None);
    }
}

impl Connection {
    /// Read, and check every byte.
    fn read(&mut self) {
        for said in self.stream.read() {
            assert_eq!(said, byte(self.read), "a wrong byte is read");
            self.read += 1;
        }
    }
}
