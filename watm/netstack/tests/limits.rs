//! The bounds on the state that one peer, or many, can create.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use support::packets::{self, Tcp, read_tcp};
use support::{Bench, Random};
use watm_core::{ErrorCode, Host};
use watm_netstack::Config;

fn server() -> SocketAddr {
    "192.0.2.1:443".parse().unwrap()
}

fn client(number: usize) -> SocketAddr {
    let [high, low] = (number as u16 / 60000).to_be_bytes();
    SocketAddr::from(([10, 0, high, low], 1000 + (number % 60000) as u16))
}

/// Completes a handshake, and returns the stack's first sequence number.
fn establish(bench: &mut Bench, peer: u32, source: SocketAddr) -> u32 {
    establish_from(bench, peer, source, 100)
}

/// Opens a connection whose first number is `first`.
fn establish_from(bench: &mut Bench, peer: u32, source: SocketAddr, first: u32) -> u32 {
    let answers = bench.packet(peer, &packets::syn(source, server(), first));
    let answer = read_tcp(&answers[0]);
    assert!(answer.syn && answer.acknowledges == Some(first + 1));
    bench.packet(peer, &segment(source, first + 1, answer.sequence + 1, &[]));
    answer.sequence + 1
}

fn segment(source: SocketAddr, sequence: u32, acknowledges: u32, payload: &[u8]) -> Vec<u8> {
    Tcp {
        payload,
        ..tcp(source, sequence, acknowledges)
    }
    .packet()
}

fn tcp(source: SocketAddr, sequence: u32, acknowledges: u32) -> Tcp<'static> {
    Tcp {
        source,
        destination: server(),
        control: TcpControl::None,
        sequence,
        acknowledges: Some(acknowledges),
        window: 65535,
        scale: None,
        payload: &[],
        sack: None,
    }
}

#[test]
fn ten_thousand_idle_flows_hold_no_buffers_and_no_time() {
    let mut bench = Bench::new(Config::default());
    let mut next = Vec::new();
    for number in 0..10_000 {
        next.push(establish(&mut bench, 1, client(number)));
        bench.wait(Duration::from_millis(1));
    }
    assert_eq!(bench.stack.flows(), 10_000);
    assert_eq!(bench.app.streams().len(), 10_000);
    assert_eq!(bench.stack.held_bytes(), 0);
    // Each carries data, is answered, and is idle again.
    for (number, next) in next.into_iter().enumerate() {
        bench.packet(1, &segment(client(number), 101, next, b"question"));
        let stream = bench.app.streams()[number].clone();
        assert_eq!(stream.read(), b"question");
        stream.write(b"answer");
        let answers = bench.settle();
        assert_eq!(read_tcp(&answers[0]).payload, b"answer");
        assert_eq!(bench.stack.held_bytes(), 64 << 10);
        bench.packet(1, &segment(client(number), 109, next + 6, &[]));
        assert_eq!(bench.stack.held_bytes(), 0);
    }
}

#[test]
fn a_flood_of_syns_is_bounded_and_leaves_room_for_the_honest() {
    let mut bench = Bench::new(Config::default());
    let honest = establish(&mut bench, 2, client(1));
    for number in 0..5000 {
        bench.packet(1, &packets::syn(client(number), server(), 100));
    }
    assert_eq!(bench.stack.flows(), 1 + 256);
    assert_eq!(bench.counter("tcp_half_open_evicted"), 5000 - 256);
    // Another peer is served while the flood goes on.
    let answers = bench.packet(3, &packets::syn(client(1), server(), 100));
    let answer = read_tcp(&answers[0]);
    for number in 5000..6000 {
        bench.packet(1, &packets::syn(client(number), server(), 100));
    }
    bench.packet(3, &segment(client(1), 101, answer.sequence + 1, b"hello"));
    assert_eq!(bench.app.streams()[1].read(), b"hello");
    bench.packet(2, &segment(client(1), 101, honest, b"still here"));
    assert_eq!(bench.app.streams()[0].read(), b"still here");
    // Many peers flood together.
    for peer in 10..30 {
        for number in 0..256 {
            bench.packet(peer, &packets::syn(client(number), server(), 100));
        }
    }
    assert_eq!(bench.stack.flows(), 2 + 1024);
    assert_eq!(bench.stack.held_bytes(), 0);
    bench.wait(Duration::from_secs(11));
    assert_eq!(bench.stack.flows(), 2);
    assert_eq!(bench.app.streams().len(), 2, "none of them was offered");
}

#[test]
fn a_handshake_that_is_complete_makes_no_room() {
    let mut bench = Bench::new(Config::default());
    let answers = bench.packet(1, &packets::syn(client(0), server(), 100));
    let first = read_tcp(&answers[0]).sequence + 1;
    bench.wait(Duration::from_millis(1));
    for number in 1..256 {
        bench.packet(1, &packets::syn(client(number), server(), 100));
    }
    // The oldest one is completed in the batch in which another one needs room.
    let acknowledgement = segment(client(0), 101, first, b"hello");
    let syn = packets::syn(client(256), server(), 100);
    bench.batch(1, &[acknowledgement, syn]);
    assert_eq!(bench.stack.flows(), 257);
    assert_eq!(bench.counter("tcp_half_open_evicted"), 0);
    assert_eq!(bench.app.streams()[0].read(), b"hello");
    bench.packet(1, &packets::syn(client(257), server(), 100));
    assert_eq!(bench.stack.flows(), 257);
    assert_eq!(bench.counter("tcp_half_open_evicted"), 1);
}

#[test]
fn a_full_table_refuses_tcp_and_lets_the_oldest_udp_flow_go() {
    let config = Config {
        max_flows: 10,
        ..Config::default()
    };
    let mut bench = Bench::new(config);
    for number in 0..5 {
        establish(&mut bench, 1, client(number));
    }
    for number in 0..5 {
        bench.packet(1, &packets::udp(client(number), server(), b"one"));
        bench.wait(Duration::from_secs(1));
    }
    // The first flow is used again, so that the second is the oldest.
    bench.packet(1, &packets::udp(client(0), server(), b"two"));
    bench.packet(1, &packets::udp(client(7), server(), b"new"));
    assert_eq!(bench.stack.flows(), 10);
    assert_eq!(bench.counter("udp_evicted"), 1);
    let gone: Vec<bool> = bench.app.flows().iter().map(|flow| flow.gone()).collect();
    assert_eq!(gone, [false, true, false, false, false, false]);
    // TCP flows replace UDP flows, until there are none left.
    for number in 10..15 {
        establish(&mut bench, 2, client(number));
    }
    assert_eq!(bench.counter("udp_evicted"), 6);
    let answers = bench.packet(1, &packets::syn(client(20), server(), 100));
    let reset = read_tcp(&answers[0]);
    assert!(reset.reset && reset.acknowledges == Some(101));
    bench.packet(1, &packets::udp(client(20), server(), b"new"));
    assert_eq!(bench.counter("tcp_refused"), 1);
    assert_eq!(bench.counter("udp_refused"), 1);
    assert_eq!(bench.stack.flows(), 10);
}

#[test]
fn no_peer_can_take_all_the_flows() {
    let config = Config {
        max_flows: 12,
        ..Config::default()
    };
    let mut bench = Bench::new(config);
    for number in 0..9 {
        establish(&mut bench, 1, client(number));
    }
    for number in 0..3 {
        bench.packet(1, &packets::udp(client(number), server(), b"one"));
    }
    let answers = bench.packet(1, &packets::syn(client(20), server(), 100));
    assert!(read_tcp(&answers[0]).reset);
    assert_eq!(bench.counter("tcp_refused"), 1);
    assert_eq!(bench.counter("udp_evicted"), 0);
    for number in 0..3 {
        establish(&mut bench, 2, client(number));
    }
    assert_eq!(bench.counter("udp_evicted"), 3);
    assert_eq!(bench.stack.flows(), 12);
}

#[test]
fn a_peer_that_sprays_ports_displaces_its_own_flows() {
    let config = Config {
        max_flows: 40,
        ..Config::default()
    };
    let mut bench = Bench::new(config);
    let send = |bench: &mut Bench, peer, port| {
        bench.packet(peer, &packets::udp(client(port), server(), b"datagram"));
        bench.wait(Duration::from_millis(10));
        bench.app.flows().last().cloned().unwrap()
    };
    let quiet = [send(&mut bench, 1, 0), send(&mut bench, 2, 0)];
    let sprayed: Vec<_> = (0..1000).map(|port| send(&mut bench, 3, port)).collect();
    assert!(
        quiet.iter().all(|flow| !flow.gone()),
        "the others' are the idlest"
    );
    let left = sprayed.iter().map(|flow| !flow.gone());
    assert_eq!(left.clone().filter(|there| *there).count(), 38);
    assert!(
        left.skip(1000 - 38).all(|there| there),
        "the idlest went first"
    );
    // A peer with few flows replaces those of a peer with many: datagrams, TCP, and dialled flows.
    let more = send(&mut bench, 1, 1);
    establish(&mut bench, 2, client(1));
    let dialled = bench.dial(2, "10.0.0.2:80".parse().unwrap()).unwrap();
    let asked = bench.dial_datagrams(2, "10.0.0.2:53".parse().unwrap());
    assert!(!more.gone() && !dialled.gone() && !asked.unwrap().gone());
    assert!(quiet.iter().all(|flow| !flow.gone()));
    let left = sprayed.iter().filter(|flow| !flow.gone());
    assert_eq!(left.count(), 34);
    assert_eq!(bench.stack.flows(), 40);
}

#[test]
fn no_peer_can_take_the_memory_of_the_others() {
    let budget = 1 << 20;
    let config = Config {
        buffer_budget: budget,
        ..Config::default()
    };
    let mut bench = Bench::new(config);
    let mut flows = Vec::new();
    for number in 0..100 {
        flows.push(establish(&mut bench, 1, client(number)));
    }
    let honest = establish(&mut bench, 2, client(1));
    for (number, next) in flows.iter().enumerate() {
        // A segment beyond a gap, so that it must be kept.
        bench.packet(1, &segment(client(number), 1000, *next, &[1; 1000]));
    }
    assert!(bench.counter("tcp_no_memory") > 80);
    assert!(bench.stack.held_bytes() <= budget / 2);
    bench.packet(2, &segment(client(1), 101, honest, b"hello"));
    assert_eq!(bench.app.streams()[100].read(), b"hello");
    // A new flow of the greedy peer is refused, one of another peer is not.
    let answers = bench.packet(1, &packets::syn(client(200), server(), 100));
    assert!(read_tcp(&answers[0]).reset);
    establish(&mut bench, 3, client(1));
    // An application that sends much to all peers stays within the budget, too.
    for stream in bench.app.streams().to_vec() {
        stream.write(&[2; 200_000]);
    }
    bench.settle();
    assert!(bench.stack.held_bytes() <= budget);
    assert!(bench.app.streams()[0].unsent() > 0);
    // Flows that waited for memory go on by themselves when the greedy flows end.
    let waiting: usize = bench.app.streams().iter().map(|s| s.unsent()).sum();
    for number in 0..50 {
        let reset = Tcp {
            source: client(number),
            destination: server(),
            control: TcpControl::Rst,
            sequence: 101,
            acknowledges: None,
            window: 0,
            scale: None,
            payload: &[],
            sack: None,
        };
        bench.packet(1, &reset.packet());
    }
    let after: usize = bench.app.streams()[50..].iter().map(|s| s.unsent()).sum();
    assert!(after < waiting, "{after} of {waiting}");
    bench.stack.remove_peer(1, &mut bench.app, &mut bench.sent);
    bench.stack.remove_peer(2, &mut bench.app, &mut bench.sent);
    bench.stack.remove_peer(3, &mut bench.app, &mut bench.sent);
    assert_eq!((bench.stack.flows(), bench.stack.held_bytes()), (0, 0));
}

#[test]
fn a_flow_without_memory_is_tried_again() {
    let mut bench = Bench::new(Config {
        buffer_budget: 1 << 20,
        ..Config::default()
    });
    // The last flow is open before there is no memory for it.
    let mut opened = Vec::new();
    for peer in (1..=20).flat_map(|peer| [peer; 4]) {
        let source = client(opened.len());
        opened.push((peer, source, establish(&mut bench, peer, source)));
    }
    for &(peer, source, next) in &opened[..76] {
        // A segment beyond a gap, so that it must be kept.
        bench.packet(peer, &segment(source, 1000, next, &[1; 1000]));
    }
    bench.wait(Duration::from_secs(5));
    let last = bench.app.streams().last().cloned().unwrap();
    last.write(&[2; 1000]);
    bench.settle();
    assert_eq!(last.unsent(), 1000, "there is memory for it");
    let soon = bench.app.now() + Duration::from_millis(250);
    assert!(bench.stack.poll_timeout().is_some_and(|at| at <= soon));
}

#[test]
fn a_segment_beyond_the_buffer_is_dropped() {
    let mut bench = Bench::new(Config::default());
    let next = establish(&mut bench, 1, client(1));
    bench.app.streams()[0].set_room(0);
    // The window is 64 KiB; with its scale misread it would be two megabytes.
    bench.packet(1, &segment(client(1), 101 + 300_000, next, &[1; 1000]));
    assert_eq!(bench.counter("tcp_beyond_buffer"), 1);
    assert_eq!(bench.stack.held_bytes(), 0);
    // Bytes up to the very end are accepted, and none beyond.
    bench.packet(1, &segment(client(1), 101 + 64_535, next, &[1; 1000]));
    assert_eq!(bench.counter("tcp_beyond_buffer"), 1);
    bench.packet(1, &segment(client(1), 101, next, &[2; 1000]));
    for at in (1000..64_535).step_by(1000) {
        bench.packet(1, &segment(client(1), 101 + at, next, &[2; 1000]));
    }
    bench.app.streams()[0].set_room(usize::MAX);
    bench.app.streams()[0].read();
    bench.settle();
    assert_eq!(bench.app.streams()[0].read().len(), 65_535);
}

#[test]
fn a_probe_widens_no_buffer() {
    let mut bench = Bench::new(Config::default());
    let next = establish(&mut bench, 1, client(1));
    let closed = Tcp {
        window: 0,
        ..tcp(client(1), 101, next)
    };
    bench.packet(1, &closed.packet());
    bench.app.streams()[0].write(b"no room for this");
    let probes = bench.wait(Duration::from_secs(3));
    assert!(!probes.is_empty() && read_tcp(&probes[0]).payload.len() == 1);
    // The buffer ends within this segment.
    bench.packet(1, &segment(client(1), 101 + 64_887, next, &[1; 1200]));
    assert_eq!(bench.counter("tcp_beyond_buffer"), 1);
    for at in (0..64_887).step_by(1000) {
        bench.packet(1, &segment(client(1), 101 + at, next, &[2; 1000]));
    }
    let read = bench.app.streams()[0].read();
    assert_eq!(read, vec![2; 65_000]);
}

#[test]
fn data_behind_the_end_is_dropped() {
    let mut bench = Bench::new(Config::default());
    let next = establish(&mut bench, 1, client(1));
    let fin = Tcp {
        control: TcpControl::Fin,
        payload: b"last words",
        ..tcp(client(1), 101, next)
    };
    bench.packet(1, &fin.packet());
    let stream = bench.app.streams()[0].clone();
    assert_eq!(stream.read(), b"last words");
    assert!(stream.ended());
    bench.packet(1, &segment(client(1), 112, next, b"and more"));
    assert!(stream.read().is_empty());
    assert_eq!(bench.counter("tcp_malformed"), 1);
    // A keepalive probe, with a byte that was already sent, is answered.
    let answers = bench.packet(1, &segment(client(1), 111, next, b"?"));
    assert_eq!(read_tcp(&answers[0]).acknowledges, Some(112));
    assert_eq!(bench.counter("tcp_malformed"), 1);
    // The other direction goes on.
    stream.write(b"answer");
    assert_eq!(read_tcp(&bench.settle()[0]).payload, b"answer");
}

#[test]
fn peers_with_the_same_address_do_not_mix() {
    let mut bench = Bench::new(Config::default());
    let first = establish(&mut bench, 1, client(1));
    let second = establish(&mut bench, 2, client(1));
    bench.packet(1, &segment(client(1), 101, first, b"of one"));
    bench.packet(2, &segment(client(1), 101, second, b"of two"));
    bench.packet(1, &packets::udp(client(1), server(), b"one"));
    bench.packet(2, &packets::udp(client(1), server(), b"two"));
    let streams = bench.app.streams().to_vec();
    assert_eq!(streams[0].read(), b"of one");
    assert_eq!(streams[1].read(), b"of two");
    assert_eq!(streams[1].info().peer.as_deref(), Some("peer 2"));
    let flows = bench.app.flows().to_vec();
    assert_eq!(flows[0].read(), [b"one"]);
    assert_eq!(flows[1].read(), [b"two"]);
    streams[1].write(b"answer");
    flows[1].write(b"answer");
    for token in bench.app.take_ready() {
        bench
            .stack
            .handle_ready(token, &mut bench.app, &mut bench.sent);
    }
    bench.stack.flush(&mut bench.app, &mut bench.sent);
    assert!(bench.sent.0.iter().all(|(peer, _)| *peer == 2));
    assert_eq!(bench.sent.0.len(), 2);
    bench.stack.remove_peer(1, &mut bench.app, &mut bench.sent);
    assert_eq!(bench.stack.flows(), 2);
    assert_eq!(streams[0].reset(), Some(ErrorCode::ConnectionAborted));
    assert!(flows[0].gone() && !flows[1].gone() && !streams[1].gone());
}

#[test]
fn tokens_of_flows_that_are_gone_do_nothing() {
    let mut bench = Bench::new(Config::default());
    bench.packet(1, &packets::udp(client(1), server(), b"a"));
    establish(&mut bench, 1, client(1));
    let tokens = [bench.app.flows()[0].token(), bench.app.streams()[0].token()];
    assert!(tokens.iter().all(|token| bench.stack.owns(*token)));
    assert!(!bench.stack.owns(5));
    bench.stack.remove_peer(1, &mut bench.app, &mut bench.sent);
    // Other flows have their slots now.
    bench.packet(1, &packets::udp(client(2), server(), b"b"));
    establish(&mut bench, 1, client(2));
    for token in tokens.into_iter().chain([u64::MAX, 1 << 63, 7]) {
        bench
            .stack
            .handle_ready(token, &mut bench.app, &mut bench.sent);
    }
    assert!(bench.settle().is_empty());
    assert_eq!(bench.stack.flows(), 2);
}

#[test]
fn strays_are_answered_with_resets_within_bounds() {
    let mut bench = Bench::new(Config::default());
    let answers = bench.packet(1, &segment(client(1), 500, 900, b"abc"));
    let reset = read_tcp(&answers[0]);
    assert!(reset.reset && reset.sequence == 900 && reset.acknowledges.is_none());
    let fin = Tcp {
        source: client(1),
        destination: server(),
        control: TcpControl::Fin,
        sequence: 500,
        acknowledges: None,
        window: 0,
        scale: None,
        payload: b"abc",
        sack: None,
    };
    let reset = read_tcp(&bench.packet(1, &fin.packet())[0]);
    assert!(reset.reset && reset.sequence == 0 && reset.acknowledges == Some(504));
    let rst = Tcp {
        control: TcpControl::Rst,
        ..fin
    };
    assert!(bench.packet(1, &rst.packet()).is_empty());
    let answered: usize = (0..2000)
        .map(|number| bench.packet(1, &segment(client(number), 1, 1, &[])).len())
        .sum();
    assert_eq!(answered, 498);
    assert_eq!(bench.packet(2, &segment(client(1), 1, 1, &[])).len(), 1);
    assert_eq!(bench.counter("tcp_strays_ignored"), 2000 - 498);
}

#[test]
fn a_new_connection_replaces_one_in_time_wait() {
    let mut bench = Bench::new(Config::default());
    let next = establish(&mut bench, 1, client(1));
    bench.app.streams()[0].close();
    bench.settle();
    let fin = Tcp {
        source: client(1),
        destination: server(),
        control: TcpControl::Fin,
        sequence: 101,
        acknowledges: Some(next + 1),
        window: 65535,
        scale: None,
        payload: &[],
        sack: None,
    };
    bench.packet(1, &fin.packet());
    assert!(bench.app.streams()[0].finished());
    assert_eq!((bench.stack.flows(), bench.stack.held_bytes()), (0, 0));
    // The last acknowledgement was lost.
    let again = read_tcp(&bench.packet(1, &fin.packet())[0]);
    assert!(!again.reset && again.sequence == next + 1 && again.acknowledges == Some(102));
    assert!(
        bench
            .packet(1, &segment(client(1), 102, next + 1, &[]))
            .is_empty()
    );
    // An old SYN opens nothing (RFC 9293 section 3.6.1).
    let old = read_tcp(&bench.packet(1, &packets::syn(client(1), server(), 100))[0]);
    assert!(!old.syn && old.acknowledges == Some(102));
    let later = establish_from(&mut bench, 1, client(1), 200);
    assert!(later.wrapping_sub(next) > 64 << 10, "{next} then {later}");
    assert_eq!(bench.app.streams().len(), 2);
    assert_eq!(bench.stack.flows(), 1);
}

#[test]
fn a_client_that_forgot_a_connection_can_open_it_again() {
    let mut bench = Bench::new(Config::default());
    let next = establish(&mut bench, 1, client(0));
    bench.packet(1, &segment(client(0), 101, next, b"before"));
    // The answer reports the position of the old connection, and nothing of the new one.
    let answers = bench.packet(1, &packets::syn(client(0), server(), 5000));
    let answer = read_tcp(&answers[0]);
    assert!(!answer.syn && !answer.reset);
    assert_eq!((answer.sequence, answer.acknowledges), (next, Some(107)));
    let reset = Tcp {
        control: TcpControl::Rst,
        acknowledges: None,
        ..tcp(client(0), 107, 0)
    };
    // Both arrive together.
    let answers = bench.batch(
        1,
        &[reset.packet(), packets::syn(client(0), server(), 5000)],
    );
    assert_eq!((answers.len(), bench.stack.flows()), (1, 1));
    let answer = read_tcp(&answers[0]);
    assert!(answer.syn && answer.acknowledges == Some(5001));
}

#[test]
fn a_closed_connection_is_remembered_for_a_while() {
    let mut bench = Bench::new(Config::default());
    let mut next = 0;
    for (number, first) in [(1, 100), (2, 100), (1, 200), (3, 100)] {
        next = establish_from(&mut bench, 1, client(number), first);
        let stream = bench.app.streams().last().unwrap().clone();
        stream.write(&[1; 50_000]);
        stream.close();
        bench.settle();
        let fin = Tcp {
            control: TcpControl::Fin,
            window: 65535,
            ..tcp(client(number), first + 1, next + 50_001)
        };
        for end in [10_000, 20_000, 30_000, 40_000, 50_000] {
            bench.packet(1, &segment(client(number), first + 1, next + end, &[]));
        }
        bench.packet(1, &fin.packet());
        assert!(stream.finished());
        assert_eq!((bench.stack.flows(), bench.stack.held_bytes()), (0, 0));
        bench.wait(Duration::from_secs(4));
    }
    // The second was closed twelve seconds ago, the first's successor eight.
    let late = |number| {
        Tcp {
            control: TcpControl::Fin,
            window: 65535,
            ..tcp(client(number), 101, next)
        }
        .packet()
    };
    assert!(read_tcp(&bench.packet(1, &late(2))[0]).reset);
    assert!(!read_tcp(&bench.packet(1, &late(1))[0]).reset);
    assert!(!read_tcp(&bench.packet(1, &late(3))[0]).reset);
    bench.wait(Duration::from_secs(10));
    assert_eq!(bench.stack.poll_timeout(), None);
    assert!(read_tcp(&bench.packet(1, &late(3))[0]).reset);
}

/// Mutated packets cause no panic and exceed no bound.
#[test]
fn mutated_packets_break_nothing() {
    let config = Config {
        max_flows: 200,
        buffer_budget: 4 << 20,
        ..Config::default()
    };
    let mut bench = Bench::new(config.clone());
    let mut random = Random(99);
    let v6_client: SocketAddr = "[fd00::2]:4000".parse().unwrap();
    let v6_server: SocketAddr = "[2001:db8::1]:53".parse().unwrap();
    let (mut next, mut sequence) = (1u32, 100u32);
    for round in 0..60_000 {
        let at = client(random.below(4));
        let size = random.below(1300);
        let data = random.bytes(size);
        let jump = random.below(200_000) as u32;
        let controls = [
            TcpControl::None,
            TcpControl::Psh,
            TcpControl::Syn,
            TcpControl::Fin,
            TcpControl::Rst,
        ];
        let mut packet = match random.below(8) {
            0 => packets::udp(at, server(), &data),
            1 => packets::udp(v6_client, v6_server, &data),
            2 => packets::syn(at, server(), random.next() as u32),
            3 => {
                let whole = packets::udp(v6_client, v6_server, &[3; 400]);
                let id = random.below(100) as u32;
                packets::fragments(&whole, id, &[160, 320]).swap_remove(random.below(3))
            }
            4 => {
                let whole = packets::udp(at, server(), &data);
                let offset = random.below(300) * 8;
                let id = random.below(5) as u32;
                packets::fragment(&whole, 17, id, offset, random.below(2) == 0, &data)
            }
            5 => random.bytes(size),
            _ => Tcp {
                source: at,
                destination: server(),
                control: controls[random.below(20).min(4) * usize::from(random.below(9) == 0)],
                sequence: sequence.wrapping_add(jump).wrapping_sub(1000),
                acknowledges: Some(next.wrapping_add(random.below(3000) as u32)),
                window: random.next() as u16,
                scale: (random.below(3) == 0).then_some(14),
                payload: &data,
                sack: (random.below(3) == 0)
                    .then(|| (next, next.wrapping_add(random.below(9000) as u32))),
            }
            .packet(),
        };
        for _ in 0..random.below(3) * usize::from(random.below(3) == 0) {
            if !packet.is_empty() {
                let at = random.below(packet.len());
                packet[at] = random.next() as u8;
            }
        }
        packet.truncate(
            packet.len() - random.below(packet.len() + 1) * usize::from(random.below(20) == 0),
        );
        for answer in bench.packet(1 + random.below(2) as u32, &packet) {
            if answer[0] >> 4 == 4 && answer[9] == 6 {
                let answer = read_tcp(&answer);
                if answer.syn {
                    next = answer.sequence.wrapping_add(1);
                    sequence = answer.acknowledges.unwrap();
                } else if let Some(acknowledged) = answer.acknowledges {
                    sequence = acknowledged;
                }
            }
        }
        if round % 50 == 0 {
            let source = client(random.below(4));
            let answers = bench.packet(1, &packets::syn(source, server(), sequence));
            if let Some(answer) = answers.first().map(|answer| read_tcp(answer))
                && answer.syn
            {
                next = answer.sequence.wrapping_add(1);
                sequence = answer.acknowledges.unwrap();
                bench.packet(1, &segment(source, sequence, next, &[]));
            }
        }
        if round % 7 == 0 {
            let time = random.below(200) as u64;
            bench.wait(Duration::from_millis(time));
            for stream in bench.app.streams().iter().rev().take(5) {
                match random.below(8) {
                    0 => stream.set_room(random.below(5000)),
                    1 => stream.close(),
                    2 => stream.abort(),
                    3 => stream.write(&data),
                    _ => drop(stream.read()),
                }
            }
            for flow in bench.app.flows().iter().rev().take(5) {
                match random.below(8) {
                    0 => flow.close(random.below(2) == 0),
                    1 => flow.write(&data),
                    _ => drop(flow.read()),
                }
            }
        }
        assert!(bench.stack.flows() <= config.max_flows);
        assert!(bench.stack.held_bytes() <= config.buffer_budget);
    }
    for name in [
        "ip_malformed",
        "tcp_opened",
        "tcp_malformed",
        "tcp_beyond_buffer",
        "tcp_strays_reset",
        "udp_opened",
        "fragments_dropped",
        "fragments_reassembled",
    ] {
        let count = bench.counter(name);
        assert!(count > 10, "{name} was reached {count} times");
    }
    for peer in [1, 2] {
        bench
            .stack
            .remove_peer(peer, &mut bench.app, &mut bench.sent);
    }
    assert_eq!((bench.stack.flows(), bench.stack.held_bytes()), (0, 0));
}
