//! Datagrams of a peer with keys, and their effect on the server and on another peer.

use std::net::SocketAddr;
use std::time::Duration;

use watm_core::{Level, Transport};

use crate::connections::Connections;
use crate::packet;
use crate::program::Program;
use crate::support::inner::packets;
use crate::support::{Client, Conditions, Sim, peer_config, public_text, server_config};

/// The peer that the program controls, and a well-behaved one.
const WILD: usize = 0;
const HONEST: usize = 1;

const FLOWS: u32 = 24;

const PRESHARED_KEY: [u8; 32] = [3; 32];

pub fn run(input: &[u8]) {
    let mut program = Program::new(input);
    let mut world = World::new();
    while let Some(step) = program.step(16) {
        match step {
            0..=2 => {
                let segment = world.connections.segment(&mut program);
                world.sim.send(WILD, &segment);
            }
            3 | 4 => {
                let packet = inner_packet(&mut program);
                world.sim.send(WILD, &packet);
            }
            // Not an IP packet, or one cut short.
            5 => world.sim.send(WILD, program.bytes()),
            6 => {
                let now = world.sim.now();
                world.sim.clients[WILD].handshake(now);
            }
            7 | 8 => world.repeat(&mut program),
            9 => world.roam(&mut program),
            10 => world.change_network(&mut program),
            11 => {
                let time = program.choose(&[1, 100, 1_000, 11_000, 61_000, 181_000]);
                world.sim.run_for(Duration::from_millis(time));
            }
            12 | 13 => world.application(&mut program),
            14 => world.reconfigure(&mut program),
            _ => {
                let alive = &mut world.sim.clients[WILD].alive;
                *alive = !*alive;
            }
        }
        world.check();
    }
    world.serves();
}

struct World {
    sim: Sim,
    connections: Connections,
    /// The addresses that the wild peer has used.
    places: Vec<SocketAddr>,
}

impl World {
    fn new() -> Self {
        let mut sim = Sim::new(&config(0));
        sim.add_client(Client::with_psk(1, Some(PRESHARED_KEY)));
        sim.add_client(Client::new(2));
        for client in [WILD, HONEST] {
            sim.send(client, &question(client, 1));
        }
        sim.settle();
        assert_eq!(sim.host.app.flows().len(), 2, "both are served");
        let (client, server) = addresses(false);
        World {
            places: vec![sim.clients[WILD].address],
            connections: Connections::lawless(client, server),
            sim,
        }
    }

    /// A datagram that the peer has sent before, as it was or nearly.
    fn repeat(&mut self, program: &mut Program<'_>) {
        let client = &self.sim.clients[WILD];
        // Of the last ones, as a rule.
        let back = program.below(client.sent.len().min(16));
        let mut datagram = client.sent[client.sent.len() - 1 - back].clone();
        program.damage(&mut datagram);
        let from = client.address;
        self.sim.inject(from, &datagram);
    }

    fn roam(&mut self, program: &mut Program<'_>) {
        let port = 4001 + program.below(4) as u16;
        let address = SocketAddr::new([198, 51, 100, 1].into(), port);
        self.sim.clients[WILD].address = address;
        self.places.push(address);
    }

    /// The network of the peer, or the room in the server's own.
    fn change_network(&mut self, program: &mut Program<'_>) {
        if program.one_in(4) {
            self.sim.host.set_room(program.below(4));
            return;
        }
        let conditions = Conditions {
            delay: Duration::from_millis(program.choose(&[0, 1, 300])),
            jitter: Duration::from_millis(program.choose(&[0, 50])),
            loss: program.choose(&[0, 0, 300]),
            duplication: program.choose(&[0, 300]),
        };
        self.sim.clients[WILD].up.conditions = conditions;
        self.sim.clients[WILD].down.conditions = conditions;
    }

    fn application(&mut self, program: &mut Program<'_>) {
        let app = &self.sim.host.app;
        let (streams, flows) = (app.streams(), app.flows());
        if !streams.is_empty() && program.one_in(2) {
            let stream = &streams[program.below(streams.len())];
            match program.below(6) {
                0 => stream.close(),
                1 => stream.abort(),
                2 => stream.set_room(program.below(4000)),
                3 => stream.write(&vec![0; program.choose(&[1, 3000, 70_000])]),
                _ => drop(stream.read()),
            }
        } else {
            let flow = &flows[program.below(flows.len())];
            match program.below(4) {
                0 => flow.close(program.one_in(2)),
                1 => flow.write(&vec![0; program.choose(&[0, 10, 3000, 65_508])]),
                _ => drop(flow.read()),
            }
        }
    }

    /// The peer is taken away, given other addresses, or other keys.
    fn reconfigure(&mut self, program: &mut Program<'_>) {
        let config = config(program.below(4));
        self.sim.reconfigure(&config).expect("it is right");
    }

    /// Let everything happen that can happen now, and check what holds then.
    fn check(&mut self) {
        self.sim.settle();
        let wild = public_text(1);
        let status = self.sim.server.status(self.sim.now());
        assert!(status.flows <= FLOWS, "too many flows");
        for peer in &status.peers {
            let places = match peer.name == wild {
                true => self.places.as_slice(),
                false => &[self.sim.clients[HONEST].address],
            };
            let known = peer.endpoint.is_none_or(|place| places.contains(&place));
            assert!(known, "a peer is where it never was");
        }
        let app = &self.sim.host.app;
        let streams = app.streams().iter().map(|stream| stream.info());
        for info in streams.chain(app.flows().iter().map(|flow| flow.info())) {
            let expected = match info.peer == Some(wild.clone()) {
                true => ["10.77.0.1", "fd77::1"].as_slice(),
                false => &["10.77.0.2"],
            };
            let source = info.source.ip().to_string();
            assert!(
                expected.contains(&source.as_str()),
                "{source} of {:?}",
                info.peer
            );
        }
        for packet in std::mem::take(&mut self.sim.clients[WILD].received) {
            packet::check(&packet, 1420);
            self.connections.learn(&packet);
        }
        let loud = |(level, _): &&(Level, String)| *level > Level::Info;
        assert_eq!(self.sim.host.logs.iter().find(loud), None, "a peer is loud");
        self.sim.host.logs.clear();
    }

    /// The honest peer is served as before.
    fn serves(&mut self) {
        self.sim.host.set_room(usize::MAX);
        self.sim.run_for(Duration::from_secs(2));
        let now = self.sim.now();
        self.sim.clients[HONEST].handshake(now);
        self.sim.settle();
        let known = self.sim.host.app.flows().len();
        self.sim.send(HONEST, &question(HONEST, 2));
        self.sim.settle();
        let flows = self.sim.host.app.flows();
        assert_eq!(flows.len(), known + 1, "the honest peer is not served");
        let flow = flows[known].clone();
        assert_eq!(flow.read(), [b"question"]);
        let before = self.sim.clients[HONEST].received.len();
        flow.write(b"answer");
        self.sim.settle();
        let received = &self.sim.clients[HONEST].received[before..];
        assert_eq!(packets::read_udp(&received[0]).2, b"answer");
    }
}

/// The server's configuration, in which the wild peer is as at first, gone, without its
/// preshared key, or kept alive and called from here.
fn config(variant: usize) -> String {
    let key = crate::support::base64(&PRESHARED_KEY);
    let addresses = "AllowedIPs = 10.77.0.1/32, fd77::1/128";
    let wild = match variant {
        0 => peer_config(1, &format!("{addresses}\nPresharedKey = {key}")),
        1 => String::new(),
        2 => peer_config(1, addresses),
        _ => peer_config(
            1,
            &format!("{addresses}\nPresharedKey = {key}\nPersistentKeepalive = 5"),
        ),
    };
    let honest = peer_config(2, "AllowedIPs = 10.77.0.2/32");
    server_config(&format!("{wild}{honest}[Watm]\nMaxFlows = {FLOWS}\n"))
}

/// The wild peer's address, and its destination.
fn addresses(v6: bool) -> (SocketAddr, SocketAddr) {
    let (client, server) = if v6 {
        ("[fd77::1]:4000", "[2001:db8::1]:443")
    } else {
        ("10.77.0.1:4000", "192.0.2.1:443")
    };
    (
        client.parse().expect("an address"),
        server.parse().expect("an address"),
    )
}

/// Any packet, sometimes from an address of the other peer or of no peer.
fn inner_packet(program: &mut Program<'_>) -> Vec<u8> {
    let (mut client, server) = addresses(program.one_in(2));
    match program.below(8) {
        0 => client = SocketAddr::new([10, 77, 0, 2].into(), 1),
        1 => client = SocketAddr::new([10, 99, 0, 1].into(), 1),
        _ => client.set_port(4000 + program.below(32) as u16),
    }
    let server = match client.is_ipv4() {
        true => addresses(false).1,
        false => server,
    };
    packet::any(program, client, server)
}

fn question(client: usize, port: u16) -> Vec<u8> {
    let source = SocketAddr::new([10, 77, 0, client as u8 + 1].into(), port);
    let destination = SocketAddr::new([192, 168, 0, 1].into(), 9);
    packets::udp(source, destination, b"question")
}
