//! TCP connections that the stack opens to a real peer.

mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::socket::tcp::State;
use smoltcp::wire::{TcpControl, TcpPacket};
use support::{Bench, Conditions, SOURCE_V4, Simulation, origin, packets};
use watm_core::ErrorCode;
use watm_netstack::Config;

fn v4() -> SocketAddr {
    "10.1.2.3:80".parse().unwrap()
}

fn v6() -> SocketAddr {
    "[fd00:1::2]:443".parse().unwrap()
}

/// The header of a TCP packet over IPv4.
fn header(packet: &[u8]) -> TcpPacket<&[u8]> {
    TcpPacket::new_checked(&packet[20..]).unwrap()
}

/// A peer's answer to the SYN in `packet`.
fn answer(packet: &[u8], control: TcpControl, payload: &[u8]) -> Vec<u8> {
    let syn = header(packet);
    packets::Tcp {
        source: v4(),
        destination: SocketAddr::new(SOURCE_V4, syn.src_port()),
        control,
        sequence: 5000,
        acknowledges: Some((syn.seq_number() + 1).0 as u32),
        window: 60_000,
        scale: None,
        payload,
        sack: None,
    }
    .packet()
}

#[test]
fn bytes_pass_both_ways() {
    for destination in [v4(), v6()] {
        let mut simulation = Simulation::new(Conditions::clean(Duration::from_millis(1)), 1);
        let (handle, stream) = simulation.dial(destination);
        simulation.exchange(handle, &stream, 3_000_000);
    }
}

#[test]
fn bytes_pass_a_bad_network_unchanged() {
    for (seed, loss) in [(1, 10), (2, 20), (3, 50)] {
        let conditions = Conditions {
            delay: Duration::from_millis(50),
            jitter: Duration::from_millis(5),
            loss,
            duplication: 10,
        };
        let mut simulation = Simulation::new(conditions, seed);
        let (handle, stream) = simulation.dial(v4());
        simulation.exchange(handle, &stream, 300_000);
    }
}

#[test]
fn what_is_written_before_the_handshake_is_kept() {
    let mut simulation = Simulation::new(Conditions::clean(Duration::from_millis(20)), 1);
    let (handle, stream) = simulation.dial(v4());
    stream.write(b"early");
    stream.close();
    simulation.run_until(Duration::from_secs(5), |sim| {
        sim.client.socket(handle).state() == State::CloseWait
    });
    let socket = simulation.client.socket(handle);
    let mut buffer = [0; 16];
    let count = socket.recv_slice(&mut buffer).unwrap_or(0);
    assert_eq!(&buffer[..count], b"early");
}

#[test]
fn each_connection_has_a_port_of_its_own() {
    let mut bench = Bench::new(Config::default());
    for _ in 0..500 {
        bench.dial(1, v4()).unwrap();
    }
    let ports: BTreeSet<_> = bench
        .settle()
        .iter()
        .map(|p| header(p).src_port())
        .collect();
    assert_eq!(ports.len(), 500);
    assert!(ports.iter().all(|port| *port >= 49152));
}

#[test]
fn a_refusal_is_told() {
    let mut bench = Bench::new(Config::default());
    let stream = bench.dial(1, v4()).unwrap();
    let syn = bench.settle().remove(0);
    bench.packet(1, &answer(&syn, TcpControl::Rst, b""));
    assert_eq!(stream.reset(), Some(ErrorCode::ConnectionRefused));
    assert!(stream.gone());
    assert_eq!((bench.stack.flows(), bench.stack.held_bytes()), (0, 0));
}

#[test]
fn a_refusal_of_something_else_is_none() {
    let mut bench = Bench::new(Config::default());
    let stream = bench.dial(1, v4()).unwrap();
    let syn = bench.settle().remove(0);
    let mut other = syn.clone();
    other[24] ^= 1; // the sequence number
    bench.packet(1, &answer(&other, TcpControl::Rst, b""));
    assert_eq!(stream.reset(), None);
    assert_eq!(bench.stack.flows(), 1);
}

#[test]
fn silence_is_a_timeout() {
    let mut bench = Bench::new(Config::default());
    let stream = bench.dial(1, v4()).unwrap();
    let tries = bench.settle().len() + bench.wait(Duration::from_secs(59)).len();
    assert!((4..10).contains(&tries), "{tries} SYNs");
    assert_eq!(stream.reset(), None);
    bench.wait(Duration::from_secs(30));
    assert_eq!(stream.reset(), Some(ErrorCode::Timeout));
    assert_eq!((bench.stack.flows(), bench.stack.held_bytes()), (0, 0));
}

#[test]
fn an_established_connection_outlives_the_time_for_connecting() {
    let mut simulation = Simulation::new(Conditions::clean(Duration::from_millis(1)), 1);
    let (handle, stream) = simulation.dial(v4());
    simulation.run_for(Duration::from_secs(200));
    simulation.exchange(handle, &stream, 1000);
}

#[test]
fn data_beyond_the_first_window_is_not_taken() {
    let mut bench = Bench::new(Config::default());
    let stream = bench.dial(1, v4()).unwrap();
    let syn = bench.settle().remove(0);
    let accept = answer(&syn, TcpControl::Syn, b"");
    let data = vec![7; 1300];
    // The segments come in one batch with the acceptance, before the stack has sent anything else.
    let beyond = packets::Tcp {
        source: v4(),
        destination: SocketAddr::new(SOURCE_V4, header(&syn).src_port()),
        control: TcpControl::None,
        sequence: 5001 + 65_500,
        acknowledges: Some((header(&syn).seq_number() + 1).0 as u32),
        window: 60_000,
        scale: None,
        payload: &data,
        sack: None,
    };
    let first = packets::Tcp {
        sequence: 5001,
        ..beyond
    };
    bench.batch(1, &[accept, beyond.packet(), first.packet()]);
    assert_eq!(stream.read(), data);
}

#[test]
fn an_acceptance_with_bytes_opens_the_connection() {
    let mut bench = Bench::new(Config::default());
    let stream = bench.dial(1, v4()).unwrap();
    let syn = bench.settle().remove(0);
    let answers = bench.packet(1, &answer(&syn, TcpControl::Syn, b"early"));
    // The bytes are not acknowledged, so that the peer sends them again.
    assert_eq!(header(&answers[0]).ack_number().0, 5001);
    assert!(stream.is_connected());
    stream.write(b"hello");
    let sent = bench.settle();
    assert!(
        sent.iter()
            .any(|packet| header(packet).payload() == b"hello")
    );
}

#[test]
fn an_application_that_leaves_ends_the_connection() {
    let mut simulation = Simulation::new(Conditions::clean(Duration::from_millis(1)), 1);
    let (handle, stream) = simulation.dial(v4());
    simulation.run_for(Duration::from_secs(1));
    assert!(simulation.client.socket(handle).may_send());
    stream.abort();
    simulation.run_for(Duration::from_secs(1));
    assert!(!simulation.client.socket(handle).is_open());
    assert_eq!(simulation.bench.stack.flows(), 0);
}

#[test]
fn what_cannot_be_a_connection_is_refused() {
    let mut bench = Bench::new(Config::default());
    for to in [
        "0.0.0.0:80",
        "10.1.2.3:0",
        "224.0.0.1:80",
        "255.255.255.255:80",
    ] {
        let refused = bench.dial(1, to.parse().unwrap()).err();
        assert_eq!(refused, Some(ErrorCode::InvalidArgument), "{to}");
    }
    let (_, stream) = bench.app.new_stream();
    let now = watm_core::Host::now(&bench.app);
    let mixed = bench
        .stack
        .connect(&origin(1), SOURCE_V4, v6(), stream, now);
    assert_eq!(mixed, Err(ErrorCode::InvalidArgument));
    assert_eq!(bench.stack.flows(), 0);
}

#[test]
fn there_is_a_limit() {
    let mut bench = Bench::new(Config {
        max_flows: 8,
        ..Config::default()
    });
    for _ in 0..6 {
        bench.dial(1, v4()).unwrap();
    }
    assert_eq!(bench.dial(1, v4()).err(), Some(ErrorCode::LimitReached));
    // The share that one peer leaves is for another.
    bench.dial(2, v4()).unwrap();
}
