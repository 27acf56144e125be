//! Generations of a server, one of which sends arbitrary messages to the others, or hands over a
//! damaged snapshot.

use std::net::SocketAddr;
use std::time::Duration;

use crate::program::Program;
use crate::support::inner::packets;
use crate::support::{Client, Line, peer_config, public_key, server_config};

/// Both have flows; to one of them the messages are about.
const TOLD_OF: usize = 0;
const HONEST: usize = 1;

const FLOWS: u32 = 24;

/// Generations that live at a time.
const LIVING: usize = 4;

pub fn run(input: &[u8]) {
    let mut program = Program::new(input);
    let mut world = World::new();
    while let Some(step) = program.step(12) {
        match step {
            0..=2 => world.message(&mut program),
            3 => {
                let message = program.bytes().to_vec();
                world.tell(&mut program, &message);
            }
            4 => world.repeat(&mut program),
            5 | 6 => {
                let client = program.below(2);
                let port = 1 + program.below(8) as u16;
                world.line.send(client, &question(client, port));
            }
            7 => world.swap(&mut program),
            8 => world.go_back(&mut program),
            9 => {
                let time = program.choose(&[1, 100, 3_000, 16_000, 61_000]);
                world.line.run_for(Duration::from_millis(time));
            }
            10 => world.line.lost_kinds = program.bytes().to_vec(),
            _ => world.line.office.set_room(program.choose(&[8192, 1, 8])),
        }
        world.check();
    }
    world.serves();
}

struct World {
    line: Line,
    /// Messages that generations have sent to each other.
    said: Vec<Vec<u8>>,
}

impl World {
    fn new() -> Self {
        let mut line = Line::new(&config(0));
        line.add_client(Client::new(1));
        line.add_client(Client::new(2));
        for client in [TOLD_OF, HONEST] {
            line.send(client, &question(client, 1));
        }
        line.settle();
        assert_eq!(line.generation(0).host.app.flows().len(), 2);
        World {
            line,
            said: Vec::new(),
        }
    }

    /// A message that is well made, as a rule.
    fn message(&mut self, program: &mut Program<'_>) {
        let mut message = vec![program.byte() % 16];
        let outer = message[0] == 1;
        if !outer {
            let key = match program.below(4) {
                0 => public_key(9).to_bytes(),
                _ => public_key(1).to_bytes(),
            };
            message.extend(key);
        }
        match message[0] {
            1 | 11 => {
                if !outer {
                    message.push(1);
                }
                message.extend([4, 198, 51, 100, 1, 15, program.byte()]);
                let sent = &self.line.clients[TOLD_OF].sent;
                let back = program.below(sent.len().min(16));
                let datagram = &sent[sent.len() - 1 - back];
                message.push(0);
                if outer {
                    message.extend(datagram);
                } else {
                    message.push(u8::from(datagram.len() == 148));
                    message.extend(
                        datagram
                            .get(8..116)
                            .filter(|_| datagram.len() == 148)
                            .unwrap_or_default(),
                    );
                }
            }
            2..=6 => message.extend(question(TOLD_OF, 1 + program.below(16) as u16)),
            12 => {
                message.push(program.byte() % 2);
                message.extend([4, 10, 77, 0, 1, 0, program.byte() % 16]);
                message.extend([4, 192, 168, 0, 1, 0, 9]);
            }
            _ => {}
        }
        if program.one_in(4) {
            program.damage(&mut message);
        }
        self.tell(program, &message);
    }

    /// From any generation to one that lives.
    fn tell(&mut self, program: &mut Program<'_>, message: &[u8]) {
        let numbers: Vec<u32> = self.line.generations.iter().map(|g| g.number).collect();
        let to = program.choose(&numbers);
        let from = match program.below(4) {
            0 => 1000,
            _ => program.choose(&numbers),
        };
        self.line.office.put(from, to, message);
    }

    /// Sends a message of one generation to another again, now to any of them, unchanged or
    /// slightly damaged.
    fn repeat(&mut self, program: &mut Program<'_>) {
        if self.said.is_empty() {
            return;
        }
        let back = program.below(self.said.len().min(64));
        let mut message = self.said[self.said.len() - 1 - back].clone();
        program.damage(&mut message);
        self.tell(program, &message);
    }

    /// The next generation, from a snapshot as it was or nearly.
    fn swap(&mut self, program: &mut Program<'_>) {
        if self.line.generations.len() >= LIVING {
            return;
        }
        let mut snapshot = self.line.snapshot();
        if program.one_in(2) {
            program.damage(&mut snapshot);
        }
        let config = config(program.below(2));
        if let Err(error) = self.line.swap_from(&config, snapshot) {
            assert!(error.to_string().contains("snapshot"), "{error}");
        }
    }

    /// One of them is gone: the one that serves, or another.
    fn go_back(&mut self, program: &mut Program<'_>) {
        let count = self.line.generations.len();
        if count < 2 {
            return;
        }
        if program.one_in(2) {
            self.line.roll_back();
        } else {
            let number = self.line.generations[program.below(count - 1)].number;
            self.line.drop_generation(number);
        }
    }

    fn check(&mut self) {
        self.line.settle();
        self.said
            .extend(self.line.office.take_sent().into_iter().map(|(_, _, m)| m));
        let kept = self.said.len().saturating_sub(64);
        self.said.drain(..kept);
        let now = self.line.now();
        for generation in &self.line.generations {
            let status = watm_core::Transport::status(&generation.server, now);
            assert!(status.flows <= FLOWS, "too many flows");
        }
    }

    /// Checks that the serving generation serves the unmentioned peer.
    fn serves(&mut self) {
        let line = &mut self.line;
        line.lost_kinds.clear();
        line.office.set_room(8192);
        line.run_for(Duration::from_secs(20));
        let now = line.now();
        line.clients[HONEST].handshake(now);
        line.settle();
        let known = line.newest().host.app.flows().len();
        line.send(HONEST, &question(HONEST, 99));
        line.settle();
        let flows = line.newest().host.app.flows().to_vec();
        assert_eq!(flows.len(), known + 1, "the honest peer is not served");
        assert_eq!(flows[known].read(), [b"question"]);
        let before = line.clients[HONEST].received.len();
        flows[known].write(b"answer");
        line.settle();
        let received = &line.clients[HONEST].received[before..];
        assert_eq!(packets::read_udp(&received[0]).2, b"answer");
    }
}

/// With both peers, or without the one that is told of.
fn config(variant: usize) -> String {
    let first = match variant {
        0 => peer_config(1, "AllowedIPs = 10.77.0.1/32"),
        _ => String::new(),
    };
    let honest = peer_config(2, "AllowedIPs = 10.77.0.2/32");
    server_config(&format!("{first}{honest}[Watm]\nMaxFlows = {FLOWS}\n"))
}

fn question(client: usize, port: u16) -> Vec<u8> {
    let source = SocketAddr::new([10, 77, 0, client as u8 + 1].into(), port);
    let destination = SocketAddr::new([192, 168, 0, 1].into(), 9);
    packets::udp(source, destination, b"question")
}
