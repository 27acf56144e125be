//! IPv6 headers that the stack writes and answers.

mod support;

use std::net::{IpAddr, SocketAddr};

use support::{Bench, packets};
use watm_netstack::Config;

const FROM: &str = "[fd00::2]:40000";
const TO: &str = "[fd00:9::7]:80";

const DESTINATION_OPTIONS: u8 = 60;
const UDP: u8 = 17;

fn ends() -> (SocketAddr, SocketAddr) {
    (FROM.parse().unwrap(), TO.parse().unwrap())
}

fn ips() -> (IpAddr, IpAddr) {
    let (from, to) = ends();
    (from.ip(), to.ip())
}

/// Returns the flow label of a packet.
fn label(packet: &[u8]) -> u32 {
    u32::from_be_bytes([0, packet[1] & 0xf, packet[2], packet[3]])
}

/// A packet whose destination options have this one, before a datagram.
fn with_option(kind: u8, next: u8, message: &[u8]) -> Vec<u8> {
    let (from, to) = ips();
    let options = [next, 0, 0, 0, kind, 0, 0, 0];
    let payload = [&options[..], message].concat();
    packets::ip(from, to, DESTINATION_OPTIONS, &payload)
}

#[test]
fn each_flow_has_a_label() {
    let mut bench = Bench::new(Config::default());
    let (from, to) = ends();
    let mut labels = Vec::new();
    for port in 1..=3 {
        let from = SocketAddr::new(from.ip(), port);
        let accepted = bench.packet(1, &packets::syn(from, to, 7)).remove(0);
        labels.push(label(&accepted));
        // The same SYN again has the same label.
        let again = bench.packet(1, &packets::syn(from, to, 7)).remove(0);
        assert_eq!(label(&again), labels[labels.len() - 1]);
    }
    bench.packet(1, &packets::udp(from, to, b"hello"));
    let flow = &bench.app.flows()[0];
    flow.write(&[1; 10]);
    // In fragments.
    flow.write(&[2; 3000]);
    let answers: Vec<u32> = bench.settle().iter().map(|packet| label(packet)).collect();
    assert!(answers.len() > 3, "{answers:?}");
    labels.push(answers[0]);
    assert!(answers.iter().all(|label| *label == answers[0]));
    assert!(!labels.contains(&0), "{labels:?}");
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), 4);
}

#[test]
fn an_option_that_must_be_known_is_answered() {
    let (from, to) = ends();
    let mut bench = Bench::new(Config::default());
    let message = packets::udp_message(from, to, b"hello");
    assert!(
        bench
            .packet(1, &with_option(0x1e, UDP, &message))
            .is_empty()
    );
    assert_eq!(bench.app.flows().len(), 1);
    // This one wants silence.
    assert!(
        bench
            .packet(1, &with_option(0x5e, UDP, &message))
            .is_empty()
    );
    for kind in [0x9e, 0xde] {
        let sent = with_option(kind, UDP, &message);
        let answers = bench.packet(1, &sent);
        let (source, destination, _, problem) = packets::read_ip(&answers[0]);
        assert_eq!((source, destination), (to.ip(), from.ip()));
        // Unrecognized option, at the offset of its type.
        assert_eq!(problem[..2], [4, 2]);
        assert_eq!(problem[4..8], [0, 0, 0, 44]);
        assert_eq!(problem[8..], sent);
    }
    assert_eq!(bench.counter("ip_malformed"), 3);
    // Errors are answered by no error.
    let error = with_option(0x9e, 58, &[1, 4, 0, 0, 0, 0, 0, 0]);
    assert!(bench.packet(1, &error).is_empty());
    // Answers are sent at a bounded rate.
    let flood = vec![with_option(0x9e, UDP, &message); 100];
    assert!(bench.batch(1, &flood).len() < 20);
}

#[test]
fn a_route_that_goes_on_is_answered() {
    const ROUTING: u8 = 43;
    let (from, to) = ips();
    let mut bench = Bench::new(Config::default());
    let sent = packets::ip(from, to, ROUTING, &[UDP, 0, 4, 1, 0, 0, 0, 0]);
    let answers = bench.packet(1, &sent);
    let (_, _, _, problem) = packets::read_ip(&answers[0]);
    // An erroneous field: the type of the route.
    assert_eq!(problem[..2], [4, 0]);
    assert_eq!(problem[4..8], [0, 0, 0, 42]);
}
