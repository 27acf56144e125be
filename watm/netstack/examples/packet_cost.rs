//! Measures the cost of a packet, in nanoseconds, among few flows and among many.
//!
//! `cargo run --release -p watm-netstack --example packet_cost`

#![expect(
    clippy::disallowed_methods,
    reason = "what is measured is this machine's time; the stack has a clock of its own"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use smoltcp::wire::TcpControl;
use support::packets::{self, Tcp, read_tcp};
use support::{Bench, Conditions, Simulation};
use watm_netstack::Config;

/// The number of packets in one batch, as one call of the outer socket brings.
const BATCH: usize = 32;
const ROUNDS: usize = 4000;

fn client(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 1000 + number as u16))
}

fn server() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 443))
}

fn segment(number: usize, sequence: u32, acknowledges: u32, payload: &[u8]) -> Vec<u8> {
    Tcp {
        source: client(number),
        destination: server(),
        control: TcpControl::None,
        sequence,
        acknowledges: Some(acknowledges),
        window: 65535,
        scale: None,
        payload,
        sack: None,
    }
    .packet()
}

fn main() {
    println!(
        "{:>8} {:>16} {:>16} {:>16}",
        "flows", "tcp in, 1 flow", "tcp in, spread", "udp echo"
    );
    for flows in [10, 1000, 10_000] {
        let one = tcp(flows, 1);
        let spread = tcp(flows, BATCH.min(flows));
        let udp = udp(flows);
        println!("{flows:>8} {one:>16.0} {spread:>16.0} {udp:>16.0}");
    }
    let (up, down) = bulk();
    println!(
        "bulk over one flow, client and harness included: up {up:.0} MB/s, down {down:.0} MB/s"
    );
}

/// Sends full segments to `active` of `flows` flows in turn, in batches. Returns nanoseconds per
/// packet.
fn tcp(flows: usize, active: usize) -> f64 {
    let mut bench = Bench::new(Config::default());
    let mut acknowledges = Vec::new();
    for number in 0..flows {
        let answers = bench.packet(1, &packets::syn(client(number), server(), 0));
        let next = read_tcp(&answers[0]).sequence.wrapping_add(1);
        bench.packet(1, &segment(number, 1, next, &[]));
        acknowledges.push(next);
    }
    let mut sequences = vec![1u32; flows];
    let mut spent = Duration::ZERO;
    for _ in 0..ROUNDS {
        let batch: Vec<_> = (0..BATCH)
            .map(|place| {
                let number = place % active;
                let packet = segment(number, sequences[number], acknowledges[number], &[1; 1380]);
                sequences[number] = sequences[number].wrapping_add(1380);
                packet
            })
            .collect();
        let start = Instant::now();
        bench.batch(1, &batch);
        spent += start.elapsed();
        for stream in &bench.app.streams()[..active] {
            assert!(!stream.read().is_empty());
        }
    }
    spent.as_nanos() as f64 / (ROUNDS * BATCH) as f64
}

/// Sends datagrams to flows in turn, each answered. Returns nanoseconds per pair.
fn udp(flows: usize) -> f64 {
    let mut bench = Bench::new(Config::default());
    for number in 0..flows {
        bench.packet(1, &packets::udp(client(number), server(), &[1; 1300]));
        bench.app.flows()[number].read();
    }
    let mut spent = Duration::ZERO;
    for round in 0..ROUNDS {
        let batch: Vec<_> = (0..BATCH)
            .map(|place| {
                let number = (round * BATCH + place) % flows.min(1000);
                packets::udp(client(number), server(), &[1; 1300])
            })
            .collect();
        let start = Instant::now();
        bench.batch(1, &batch);
        spent += start.elapsed();
        for place in 0..BATCH {
            let number = (round * BATCH + place) % flows.min(1000);
            for datagram in bench.app.flows()[number].read() {
                bench.app.flows()[number].write(&datagram);
            }
        }
        let start = Instant::now();
        assert_eq!(bench.settle().len(), BATCH);
        spent += start.elapsed();
    }
    spent.as_nanos() as f64 / (ROUNDS * BATCH) as f64
}

/// Carries 64 MiB each way over a path of 1 ms. Returns MB per second of this machine's time.
fn bulk() -> (f64, f64) {
    let size = 64 << 20;
    let block = vec![1; 1 << 20];
    let mut simulation = Simulation::new(Conditions::clean(Duration::from_millis(1)), 1);
    let (handle, stream) = simulation.connect(server());
    let start = Instant::now();
    let mut got = 0;
    simulation.run_until(Duration::from_secs(600), |sim| {
        let socket = sim.client.socket(handle);
        while socket.can_send() {
            socket.send_slice(&block).unwrap();
        }
        got += stream.read().len();
        got >= size
    });
    let up = size as f64 / start.elapsed().as_secs_f64() / 1e6;
    let mut simulation = Simulation::new(Conditions::clean(Duration::from_millis(1)), 1);
    let (handle, stream) = simulation.connect(server());
    let start = Instant::now();
    let mut got = 0;
    simulation.run_until(Duration::from_secs(600), |sim| {
        if stream.unsent() < block.len() {
            stream.write(&block);
        }
        let socket = sim.client.socket(handle);
        while socket.can_recv() {
            got += socket.recv(|data| (data.len(), data.len())).unwrap();
        }
        got >= size
    });
    let down = size as f64 / start.elapsed().as_secs_f64() / 1e6;
    (up, down)
}
