//! The effect of ICMP errors on connections.

mod support;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use smoltcp::wire::TcpControl;
use support::{Bench, packets};
use watm_core::ErrorCode;
use watm_netstack::Config;

const V4: &str = "10.1.2.3:80";
const V6: &str = "[fd00:1::2]:443";

/// An ICMP error from a router or the destination itself, about a packet of the stack.
fn error(from: &str, about: &[u8], kind: u8, code: u8, field: u32) -> Vec<u8> {
    let from: IpAddr = from.parse().unwrap();
    let (us, _, _, _) = packets::read_ip(about);
    let mut message = vec![kind, code, 0, 0];
    message.extend_from_slice(&field.to_be_bytes());
    message.extend_from_slice(about);
    packets::icmp(from, us, &message)
}

/// The answer that accepts the connection of this SYN.
fn acceptance(syn: &[u8], port: u16) -> Vec<u8> {
    let (us, them, _, payload) = packets::read_ip(syn);
    let segment = packets::read_tcp(syn);
    let our_port = u16::from_be_bytes([payload[0], payload[1]]);
    packets::Tcp {
        source: SocketAddr::new(them, port),
        destination: SocketAddr::new(us, our_port),
        control: TcpControl::Syn,
        sequence: 5000,
        acknowledges: Some(segment.sequence.wrapping_add(1)),
        window: 60_000,
        scale: None,
        payload: b"",
        sack: None,
    }
    .packet()
}

#[test]
fn who_cannot_be_reached_and_who_refuses_are_told_apart() {
    use ErrorCode::{ConnectionRefused, RemoteUnreachable};
    for (to, router, kind, code, expected) in [
        (V4, "10.99.0.1", 3, 0, Some(RemoteUnreachable)),
        (V4, "10.99.0.1", 3, 1, Some(RemoteUnreachable)),
        (V4, "10.1.2.3", 3, 3, Some(ConnectionRefused)),
        (V4, "10.99.0.1", 3, 13, Some(ConnectionRefused)),
        (V4, "10.99.0.1", 11, 0, None),
        (V4, "10.99.0.1", 5, 0, None),
        (V6, "fd00:99::1", 1, 0, Some(RemoteUnreachable)),
        (V6, "fd00:99::1", 1, 3, Some(RemoteUnreachable)),
        (V6, "fd00:99::1", 1, 1, Some(ConnectionRefused)),
        (V6, "fd00:1::2", 1, 4, Some(ConnectionRefused)),
        (V6, "fd00:99::1", 3, 0, None),
    ] {
        let mut bench = Bench::new(Config::default());
        let stream = bench.dial(1, to.parse().unwrap()).unwrap();
        let other = bench.dial(1, to.parse().unwrap()).unwrap();
        let syn = bench.settle().remove(0);
        bench.packet(1, &error(router, &syn, kind, code, 0));
        assert_eq!(stream.reset(), expected, "{kind}/{code} of {to}");
        assert_eq!(other.reset(), None);
        let failed = u64::from(expected.is_some());
        assert_eq!(bench.counter("icmp_heeded"), failed);
        assert_eq!(bench.stack.flows() as u64, 2 - failed);
    }
}

#[test]
fn who_does_not_see_the_segments_changes_nothing() {
    let mut bench = Bench::new(Config::default());
    let stream = bench.dial(1, V4.parse().unwrap()).unwrap();
    let syn = bench.settle().remove(0);
    let mut guessed = syn.clone();
    guessed[24] ^= 1; // the sequence number
    bench.packet(1, &error("10.99.0.1", &guessed, 3, 1, 0));
    // Another peer has no influence.
    bench.packet(2, &error("10.99.0.1", &syn, 3, 1, 0));
    let mut wrong = error("10.99.0.1", &syn, 3, 1, 0);
    *wrong.last_mut().unwrap() ^= 1;
    bench.packet(1, &wrong);
    for length in 0..syn.len().min(28) {
        bench.packet(1, &error_about_a_piece(&syn, length));
    }
    assert_eq!(stream.reset(), None);
    assert_eq!(bench.counter("icmp_heeded"), 0);
}

/// An error with a truncated quotation. The first 28 bytes are required.
fn error_about_a_piece(syn: &[u8], length: usize) -> Vec<u8> {
    let mut message = vec![3, 1, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&syn[..length]);
    let (us, _, _, _) = packets::read_ip(syn);
    packets::icmp("10.99.0.1".parse().unwrap(), us, &message)
}

#[test]
fn what_is_established_is_not_ended_by_icmp() {
    let mut bench = Bench::new(Config::default());
    let stream = bench.dial(1, V4.parse().unwrap()).unwrap();
    let syn = bench.settle().remove(0);
    bench.packet(1, &acceptance(&syn, 80));
    stream.write(b"hello");
    let data = bench.settle().pop().unwrap();
    bench.packet(1, &error("10.99.0.1", &data, 3, 1, 0));
    assert_eq!(stream.reset(), None);
    assert_eq!(bench.stack.flows(), 1);
}

#[test]
fn a_narrower_path_gets_smaller_segments() {
    for (to, port, router, kind, code, told, expected) in [
        (V4, 80, "10.99.0.1", 3, 4, 1400, 1280),
        (V4, 80, "10.99.0.1", 3, 4, 1000, 576),
        (V4, 80, "10.99.0.1", 3, 4, 0, 576),
        (V6, 443, "fd00:99::1", 2, 0, 1280, 1280),
        // No path of IPv6 has this MTU, so that the report is discarded.
        (V6, 443, "fd00:99::1", 2, 0, 68, 1420),
        // An MTU that changes nothing.
        (V4, 80, "10.99.0.1", 3, 4, 1500, 1420),
    ] {
        let mut bench = Bench::new(Config::default());
        let stream = bench.dial(1, to.parse().unwrap()).unwrap();
        let syn = bench.settle().remove(0);
        bench.packet(1, &acceptance(&syn, port));
        stream.write(&[7; 20_000]);
        let sent = bench.settle();
        let longest = sent.iter().max_by_key(|packet| packet.len()).unwrap();
        assert_eq!(longest.len(), 1420);
        bench.packet(1, &error(router, longest, kind, code, told));
        // The lost segments are sent again, smaller.
        let again = bench.wait(Duration::from_secs(3));
        let longest = again.iter().map(Vec::len).max().unwrap();
        assert_eq!(longest, expected, "{told} of {to}");
    }
}

#[test]
fn a_narrower_path_gets_smaller_datagrams() {
    for (to, router, kind, code, told, expected) in [
        (V4, "10.99.0.1", 3, 4, 1300, 1300),
        (V4, "10.99.0.1", 3, 4, 0, 576),
        (V6, "fd00:99::1", 2, 0, 1300, 1300),
        (V6, "fd00:99::1", 2, 0, 1279, 1420),
        // An MTU that changes nothing.
        (V4, "10.99.0.1", 3, 4, 1500, 1420),
        // Another kind of error.
        (V4, "10.99.0.1", 3, 3, 1300, 1420),
    ] {
        let mut bench = Bench::new(Config::default());
        let flow = bench.dial_datagrams(1, to.parse().unwrap()).unwrap();
        let other = bench.dial_datagrams(1, to.parse().unwrap()).unwrap();
        let headers = if to == V4 { 28 } else { 48 };
        flow.write(&vec![7; 1420 - headers]);
        let sent = bench.settle().remove(0);
        assert_eq!(sent.len(), 1420);
        // Another peer has no influence.
        bench.packet(2, &error(router, &sent, kind, code, told));
        assert_eq!(flow.longest(), Some(1420 - headers as u32));
        bench.packet(1, &error(router, &sent, kind, code, told));
        assert_eq!(
            flow.longest(),
            Some((expected - headers) as u32),
            "{told} of {to}"
        );
        assert_eq!(other.longest(), Some(1420 - headers as u32));
        let news = u64::from(expected < 1420);
        assert_eq!(bench.counter("icmp_heeded"), news);
        // Without the restriction, fragments are sent.
        flow.write(&vec![7; 1420 - headers]);
        let longest = bench.settle().iter().map(Vec::len).max().unwrap();
        assert!(longest <= expected && longest + 8 > expected, "{longest}");
        // The limit stays when the path to the peer gets wider.
        bench.stack.set_path_mtu(1, Some(1400));
        let longest = expected.min(1400) - headers;
        assert_eq!(flow.longest(), Some(longest as u32));
    }
}

#[test]
fn a_reported_mtu_shrinks_fragments() {
    // Routers of IPv6 do not fragment (RFC 8201 section 4).
    let mut bench = Bench::new(Config::default());
    let flow = bench.dial_datagrams(1, V6.parse().unwrap()).unwrap();
    flow.write(&[7; 4000]);
    let sent = bench.settle();
    assert_eq!(sent[0].len(), 1416);
    // The ports are in the first fragment alone.
    bench.packet(1, &error("fd00:99::1", &sent[1], 2, 0, 1300));
    assert_eq!(bench.counter("icmp_heeded"), 0);
    bench.packet(1, &error("fd00:99::1", &sent[0], 2, 0, 1300));
    assert_eq!(bench.counter("icmp_heeded"), 1);
    flow.write(&[7; 4000]);
    let longest = bench.settle().iter().map(Vec::len).max();
    assert_eq!(longest, Some(1296));
}

#[test]
fn an_ipv4_path_below_576_bytes_gets_packets_that_routers_may_fragment() {
    let mut bench = Bench::new(Config::default());
    let flow = bench.dial_datagrams(1, V4.parse().unwrap()).unwrap();
    let forbids = |packet: &[u8]| packet[6] & 0x40 > 0;
    flow.write(&[7; 1000]);
    let sent = bench.settle().remove(0);
    assert!(forbids(&sent));
    bench.packet(1, &error("10.99.0.1", &sent, 3, 4, 600));
    flow.write(&[7; 500]);
    let sent = bench.settle().remove(0);
    assert!(forbids(&sent));
    bench.packet(1, &error("10.99.0.1", &sent, 3, 4, 300));
    flow.write(&[7; 500]);
    assert!(!forbids(&bench.settle()[0]));
}
