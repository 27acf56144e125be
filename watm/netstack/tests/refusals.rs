//! Flows that an application refuses, and dialled flows that wait for an answer.

mod support;

use std::net::SocketAddr;

use smoltcp::wire::TcpControl;
use support::{Bench, SOURCE_V4, packets};
use watm_core::FlowKind;
use watm_netstack::Config;

const ENDS: [(&str, &str); 2] = [
    ("10.0.0.2:40000", "10.9.8.7:80"),
    ("[fd00::2]:40000", "[fd00:9::7]:80"),
];

fn bench(kind: FlowKind) -> Bench {
    let mut bench = Bench::new(Config::default());
    let here = ENDS.map(|(_, here)| (kind, here.parse().unwrap()));
    bench.app.takes = Some(here.to_vec());
    bench
}

fn ends(index: usize) -> (SocketAddr, SocketAddr) {
    let (from, to) = ENDS[index];
    (from.parse().unwrap(), to.parse().unwrap())
}

#[test]
fn connections_that_nobody_takes_are_refused_at_once() {
    for index in 0..2 {
        let (from, to) = ends(index);
        let mut bench = bench(FlowKind::Bytes);
        for port in [to.port(), to.port() + 1] {
            let answers = bench.packet(1, &packets::syn(from, SocketAddr::new(to.ip(), port), 7));
            let segment = packets::read_tcp(&answers[0]);
            assert_eq!(answers.len(), 1);
            assert_eq!(segment.reset, port != to.port());
            assert_eq!(segment.acknowledges, Some(8));
        }
        assert_eq!(bench.counter("tcp_refused"), 1);
        assert_eq!(bench.stack.flows(), 1);
        // Datagrams to the same port are independent of it.
        let answers = bench.packet(1, &packets::udp(from, to, b"hello"));
        assert_eq!((answers.len(), bench.app.flows().len()), (1, 0));
    }
}

#[test]
fn datagrams_that_nobody_takes_are_answered_by_icmp() {
    for index in 0..2 {
        let (from, to) = ends(index);
        let mut bench = bench(FlowKind::Datagrams);
        assert!(
            bench
                .packet(1, &packets::udp(from, to, b"taken"))
                .is_empty()
        );
        assert_eq!(bench.app.flows().len(), 1);
        let elsewhere = packets::udp(from, SocketAddr::new(to.ip(), 81), b"not taken");
        let answers = bench.packet(1, &elsewhere);
        let (source, destination, _, message) = packets::read_ip(&answers[0]);
        assert_eq!((source, destination), (to.ip(), from.ip()));
        let port_unreachable = match from.is_ipv4() {
            true => [3, 3],
            false => [1, 4],
        };
        assert_eq!(message[..2], port_unreachable);
        assert_eq!(message[8..], elsewhere);
        // Answers are sent at a bounded rate.
        let flood = vec![elsewhere; 100];
        assert!(bench.batch(1, &flood).len() < 20);
        assert_eq!(bench.counter("udp_refused"), 101);
        assert_eq!(bench.app.flows().len(), 1);
    }
}

#[test]
fn a_dial_waits_until_it_is_answered() {
    let mut bench = Bench::new(Config::default());
    let to: SocketAddr = "10.1.2.3:80".parse().unwrap();
    let stream = bench.dial(1, to).unwrap();
    assert!(stream.is_connecting());
    let syn = bench.settle().remove(0);
    assert!(stream.is_connecting());
    let (_, _, _, payload) = packets::read_ip(&syn);
    let port = u16::from_be_bytes([payload[0], payload[1]]);
    let accepted = packets::Tcp {
        source: to,
        destination: SocketAddr::new(SOURCE_V4, port),
        control: TcpControl::Syn,
        sequence: 5000,
        acknowledges: Some(packets::read_tcp(&syn).sequence.wrapping_add(1)),
        window: 60_000,
        scale: None,
        payload: b"",
        sack: None,
    };
    bench.packet(1, &accepted.packet());
    assert!(stream.is_connected());
    // An accepted flow waits for nothing.
    let (from, to) = ends(0);
    let mut other = self::bench(FlowKind::Bytes);
    let answer = other.packet(1, &packets::syn(from, to, 7)).remove(0);
    let acknowledged = packets::read_tcp(&answer).sequence.wrapping_add(1);
    let completed = packets::Tcp {
        source: from,
        destination: to,
        control: TcpControl::None,
        sequence: 8,
        acknowledges: Some(acknowledged),
        window: 60_000,
        scale: None,
        payload: b"",
        sack: None,
    };
    other.packet(1, &completed.packet());
    let stream = &other.app.streams()[0];
    assert!(!stream.is_connecting() && !stream.is_connected());
}
