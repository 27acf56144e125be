//! One server after another, while traffic flows.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::inner::StreamEnd;
use support::{Client, Conditions, Line, peer_config, server_config};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn config() -> String {
    server_config(&peer_config(1, "AllowedIPs = 0.0.0.0/0, ::/0"))
}

/// A TCP connection of a client's, with an application that checks every byte.
struct Talk {
    client: usize,
    handle: smoltcp::iface::SocketHandle,
    generation: u32,
    stream: StreamEnd,
    up: u32,
    down: u32,
}

impl Talk {
    /// Open it, within a time in which it works only at the first try.
    fn open(line: &mut Line, client: usize, to: &str) -> Talk {
        let stack = line.clients[client].stack.as_mut().unwrap();
        let handle = stack.connect(address(to));
        let generation = line.serving;
        let before = line.newest().host.app.streams().len();
        assert!(
            line.run_until(Duration::from_secs(2), |line| {
                line.newest().host.app.streams().len() > before
            }),
            "the flow is there in time"
        );
        let stream = line.newest().host.app.streams().last().unwrap().clone();
        Talk {
            client,
            handle,
            generation,
            stream,
            up: 0,
            down: 0,
        }
    }

    /// So many bytes this way, then that way.
    fn exchange(&mut self, line: &mut Line, bytes: u32) {
        let data: Vec<u8> = (self.up..self.up + bytes).map(|n| (n / 5) as u8).collect();
        let (mut sent, mut came) = (0, Vec::new());
        let limit = Duration::from_secs(120);
        let done = line.run_until(limit, |line| {
            came.extend(self.stream.read());
            let socket = line.clients[self.client].stack.as_mut().unwrap();
            let socket = socket.socket(self.handle);
            if sent < data.len() && socket.can_send() {
                sent += socket.send_slice(&data[sent..]).unwrap();
            }
            came.len() >= data.len()
        });
        assert!(done && came == data, "{} of {bytes} came up", came.len());
        self.up += bytes;

        let data: Vec<u8> = (self.down..self.down + bytes)
            .map(|n| (n / 3) as u8)
            .collect();
        self.stream.write(&data);
        let mut came = Vec::new();
        let done = line.run_until(limit, |line| {
            let socket = line.clients[self.client].stack.as_mut().unwrap();
            let socket = socket.socket(self.handle);
            if socket.can_recv() {
                let _ = socket.recv(|bytes| {
                    came.extend_from_slice(bytes);
                    (bytes.len(), ())
                });
            }
            came.len() >= data.len()
        });
        assert!(done && came == data, "{} of {bytes} came down", came.len());
        self.down += bytes;
        assert!(!self.stream.gone());
    }

    /// End it in peace.
    fn close(self, line: &mut Line) {
        self.stream.close();
        let socket = line.clients[self.client].stack.as_mut().unwrap();
        socket.socket(self.handle).close();
        let closed = |_: &mut Line| self.stream.gone();
        assert!(line.run_until(Duration::from_secs(20), closed));
        assert!(self.stream.finished());
    }
}

fn network(loss: usize, jitter: u64) -> Conditions {
    Conditions {
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(jitter),
        loss,
        duplication: 0,
    }
}

fn line_with_client(conditions: Conditions) -> Line {
    let mut line = Line::new(&config());
    line.add_client(Client::new(1).with_stack(1420).behind(conditions));
    line
}

#[test]
fn an_open_flow_goes_on_through_a_swap_and_a_new_one_is_the_new_generations() {
    let mut line = line_with_client(network(0, 0));
    let mut old = Talk::open(&mut line, 0, "10.9.8.7:80");
    old.exchange(&mut line, 50_000);
    assert_eq!(line.swap(&config()), Ok(1));
    // Before any handshake is through, the session is still the old one's.
    let mut new = Talk::open(&mut line, 0, "10.9.8.7:81");
    assert_eq!((old.generation, new.generation), (0, 1));
    old.exchange(&mut line, 50_000);
    new.exchange(&mut line, 50_000);
    assert_eq!(line.counter(1, "wireguard.handshakes"), 1);

    // The old one lives with its flow, long after its session, and no longer.
    line.run_for(Duration::from_secs(300));
    old.exchange(&mut line, 50_000);
    new.exchange(&mut line, 50_000);
    assert!(line.lives(0));
    old.close(&mut line);
    line.run_for(Duration::from_secs(12));
    assert!(!line.lives(0));
    new.exchange(&mut line, 1000);
}
