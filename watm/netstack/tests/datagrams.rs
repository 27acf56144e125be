//! UDP, ICMP and fragments.

mod support;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use support::packets::{self, read_ip, read_udp};
use support::{Bench, Random};
use watm_core::{Destination, ErrorCode};
use watm_netstack::Config;

fn client() -> SocketAddr {
    "10.0.0.2:4000".parse().unwrap()
}

fn server() -> SocketAddr {
    "192.0.2.1:53".parse().unwrap()
}

fn client6() -> SocketAddr {
    "[fd00::2]:4000".parse().unwrap()
}

fn server6() -> SocketAddr {
    "[2001:db8::1]:53".parse().unwrap()
}

fn families() -> [(SocketAddr, SocketAddr); 2] {
    [(client(), server()), (client6(), server6())]
}

/// Reassembles fragments in the simple way; the order must be right.
fn join(fragments: &[Vec<u8>], mtu: usize) -> (u8, Vec<u8>) {
    let mut data = Vec::new();
    let mut protocol = None;
    for (number, packet) in fragments.iter().enumerate() {
        assert!(packet.len() <= mtu);
        let (source, _, next, payload) = read_ip(packet);
        let (offset, more, id, next, payload) = if source.is_ipv4() {
            let field = u16::from_be_bytes([packet[6], packet[7]]);
            assert_eq!(field & 0x4000, 0, "may be fragmented");
            let offset = usize::from(field & 0x1fff) * 8;
            let id = u32::from(u16::from_be_bytes([packet[4], packet[5]]));
            (offset, field & 0x2000 != 0, id, next, payload)
        } else {
            assert_eq!(next, 44);
            let field = u16::from_be_bytes([payload[2], payload[3]]);
            let id = u32::from_be_bytes(payload[4..8].try_into().unwrap());
            (
                usize::from(field & !7),
                field & 1 == 1,
                id,
                payload[0],
                &payload[8..],
            )
        };
        assert_eq!(offset, data.len());
        assert_eq!(more, number + 1 < fragments.len());
        assert_eq!(*protocol.get_or_insert((next, id)), (next, id));
        data.extend_from_slice(payload);
    }
    (protocol.unwrap().0, data)
}

#[test]
fn datagrams_of_ours_are_answered_by_whom_they_were_for_alone() {
    for (_, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let flow = bench.dial_datagrams(1, destination).unwrap();
        flow.write(b"question");
        let sent = bench.settle();
        let (source, to, data) = read_udp(&sent[0]);
        assert_eq!((to, data), (destination, b"question".to_vec()));
        bench.packet(1, &packets::udp(destination, source, b"answer"));
        assert_eq!(flow.read(), [b"answer"]);
        let mut stranger = destination;
        stranger.set_port(54);
        bench.packet(1, &packets::udp(stranger, source, b"lie"));
        bench.packet(2, &packets::udp(destination, source, b"lie"));
        assert!(flow.read().is_empty());
        let other = bench.dial_datagrams(1, destination).unwrap();
        assert_ne!(other.token(), flow.token(), "a port of its own");
        // The flow is closed without the stack's knowledge: later datagrams have no receiver.
        let offered = bench.app.flows().len();
        flow.close(false);
        bench.packet(1, &packets::udp(destination, source, b"late"));
        assert!(flow.gone());
        assert_eq!(bench.app.flows().len(), offered);
        bench.wait(Duration::from_secs(61));
        assert!(other.gone(), "idle");
    }
}

#[test]
fn datagrams_of_ours_need_a_place_to_go() {
    let mut bench = Bench::new(Config {
        max_flows: 2,
        ..Config::default()
    });
    for to in ["192.0.2.1:0", "0.0.0.0:53", "224.0.0.1:53"] {
        let refused = bench.dial_datagrams(1, to.parse().unwrap()).err();
        assert_eq!(refused, Some(ErrorCode::InvalidArgument), "{to}");
    }
    let first = bench.dial_datagrams(1, server()).unwrap();
    bench.wait(Duration::from_secs(1));
    let flows = [server(), server()].map(|to| bench.dial_datagrams(1, to).unwrap());
    assert!(first.gone(), "the one that was idle for longest gives way");
    assert!(flows.iter().all(|flow| !flow.gone()));
}

#[test]
fn datagrams_pass_both_ways() {
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let packets =
            [b"a".as_slice(), b"", &[7; 1300]].map(|data| packets::udp(source, destination, data));
        bench.batch(1, &packets);
        let flow = bench.app.flows()[0].clone();
        assert_eq!(flow.info().source, source);
        assert_eq!(flow.info().destination, Destination::Address(destination));
        assert_eq!(flow.read(), [b"a".to_vec(), vec![], vec![7; 1300]]);
        flow.write(b"b");
        flow.write(b"");
        let answers = bench.settle();
        let read: Vec<_> = answers.iter().map(|packet| read_udp(packet)).collect();
        assert_eq!(read[0], (destination, source, b"b".to_vec()));
        assert_eq!(read[1], (destination, source, vec![]));
        assert_eq!(bench.app.flows().len(), 1);
    }
}

#[test]
fn a_large_batch_passes_whole() {
    let mut bench = Bench::new(Config::default());
    let batch: Vec<_> = (0..1000u32)
        .map(|number| packets::udp(client(), server(), &number.to_be_bytes()))
        .collect();
    bench.batch(1, &batch);
    let got = bench.app.flows()[0].read();
    assert!(
        got.iter()
            .zip(0u32..)
            .all(|(data, number)| *data == number.to_be_bytes())
    );
    assert_eq!(got.len(), 1000);
    for number in 0..1000u32 {
        bench.app.flows()[0].write(&number.to_be_bytes());
    }
    let sent = bench.settle();
    assert_eq!(sent.len(), 1000);
    assert_eq!(read_udp(&sent[999]).2, 999u32.to_be_bytes());
}

#[test]
fn a_flow_ends_when_idle_and_opens_again() {
    let mut bench = Bench::new(Config::default());
    bench.packet(1, &packets::udp(client(), server(), b"one"));
    bench.wait(Duration::from_secs(59));
    // Both directions count.
    bench.app.flows()[0].write(b"answer");
    assert_eq!(bench.settle().len(), 1);
    bench.wait(Duration::from_secs(59));
    bench.packet(1, &packets::udp(client(), server(), b"two"));
    bench.wait(Duration::from_secs(59));
    assert_eq!(bench.app.flows().len(), 1);
    assert!(!bench.app.flows()[0].gone());
    bench.wait(Duration::from_secs(2));
    assert!(bench.app.flows()[0].gone());
    assert_eq!(bench.counter("udp_expired"), 1);
    assert_eq!(bench.stack.flows(), 0);
    bench.packet(1, &packets::udp(client(), server(), b"three"));
    assert_eq!(bench.app.flows()[1].read(), [b"three"]);
}

#[test]
fn the_idle_timeout_can_be_changed_for_open_flows() {
    let mut bench = Bench::new(Config::default());
    bench.packet(1, &packets::udp(client(), server(), b"one"));
    bench.stack.reconfigure(Config {
        udp_idle_timeout: Duration::from_secs(5),
        ..Config::default()
    });
    bench.wait(Duration::from_secs(6));
    assert!(bench.app.flows()[0].gone());
    assert_eq!(bench.stack.poll_timeout(), None);
}

#[test]
fn a_closed_flow_is_never_a_dead_address() {
    let mut bench = Bench::new(Config::default());
    bench.packet(1, &packets::udp(client(), server(), b"one"));
    bench.app.flows()[0].close(true);
    bench.settle();
    assert!(bench.app.flows()[0].gone());
    bench.packet(1, &packets::udp(client(), server(), b"two"));
    assert_eq!(bench.app.flows()[1].read(), [b"two"]);
    // The flow is closed, and the next datagram comes before the stack is told.
    bench.app.flows()[1].close(false);
    bench.packet(1, &packets::udp(client(), server(), b"three"));
    assert_eq!(bench.app.flows()[2].read(), [b"three"]);
    bench.app.flows()[2].write(b"answer");
    assert_eq!(bench.settle().len(), 1);
    assert_eq!(bench.stack.flows(), 1);
    assert_eq!(bench.counter("udp_dropped"), 0);
}

#[test]
fn what_the_application_does_not_take_is_counted() {
    let mut bench = Bench::new(Config::default());
    bench.app.room = Some(3);
    let batch = vec![packets::udp(client(), server(), b"x"); 10];
    bench.batch(1, &batch);
    assert_eq!(bench.app.flows()[0].read().len(), 3);
    assert_eq!(bench.counter("udp_dropped"), 7);
    bench.app.refuse = Some(ErrorCode::LimitReached);
    bench.packet(1, &packets::udp(client6(), server6(), b"x"));
    assert_eq!(bench.counter("udp_refused"), 1);
    assert_eq!(bench.stack.flows(), 1);
}

#[test]
fn wrong_datagrams_are_dropped() {
    let mut bench = Bench::new(Config::default());
    for (source, destination) in families() {
        let mut flipped = packets::udp(source, destination, b"hello");
        *flipped.last_mut().unwrap() ^= 1;
        bench.packet(1, &flipped);
        let mut long = packets::udp_message(source, destination, b"hello");
        long[5] += 1;
        bench.packet(1, &packets::ip(source.ip(), destination.ip(), 17, &long));
        bench.packet(
            1,
            &packets::ip(source.ip(), destination.ip(), 17, &long[..7]),
        );
    }
    // A datagram without a checksum is allowed in IPv4, but not in IPv6.
    for (source, destination) in families() {
        let mut bare = packets::udp_message(source, destination, b"bare");
        bare[6..8].fill(0);
        bench.packet(1, &packets::ip(source.ip(), destination.ip(), 17, &bare));
    }
    assert_eq!(bench.counter("udp_malformed"), 7);
    assert_eq!(bench.app.flows().len(), 1);
    assert_eq!(bench.app.flows()[0].read(), [b"bare"]);
}

#[test]
fn wrong_ip_headers_are_dropped() {
    let mut bench = Bench::new(Config::default());
    let good = packets::udp(client(), server(), b"hello");
    let mut wrong = vec![vec![], vec![0x45], good[..30].to_vec(), vec![0x50; 60]];
    for (at, value) in [(0, 0x44), (3, 200), (10, 0xff), (16, 0xff)] {
        let mut packet = good.clone();
        packet[at] = value;
        wrong.push(packet);
    }
    let good = packets::udp(client6(), server6(), b"hello");
    wrong.push(good[..50].to_vec());
    // Options of IPv4: source routes, and lengths that are none.
    let bad: [&[u8]; 5] = [
        &[131, 7, 8, 10, 9, 9, 9, 0],
        &[1, 137, 7, 4, 10, 9, 9, 9],
        &[7, 1, 0, 0],
        &[7, 9, 0, 0],
        &[1, 1, 1, 7],
    ];
    wrong.extend(bad.map(with_options));
    let count = wrong.len();
    assert!(bench.batch(1, &wrong).is_empty());
    assert_eq!(bench.counter("ip_malformed"), count as u64);
    // The record of a route, and a router alert.
    let good: [&[u8]; 2] = [&[1, 7, 7, 4, 0, 0, 0, 0], &[148, 4, 0, 0]];
    for options in good {
        bench.packet(1, &with_options(options));
    }
    assert_eq!(bench.app.flows()[0].read().len(), 2);
    let group: Vec<_> = ["224.0.0.251:5353", "255.255.255.255:67"]
        .map(|to| packets::udp(client(), to.parse().unwrap(), b"hello"))
        .into_iter()
        .chain([packets::udp(
            client6(),
            "[ff02::fb]:5353".parse().unwrap(),
            b"x",
        )])
        .collect();
    assert!(bench.batch(1, &group).is_empty());
    assert_eq!(bench.counter("ip_multicast"), 3);
    let nowhere = [
        packets::udp(client(), "0.0.0.0:53".parse().unwrap(), b"x"),
        packets::udp("224.0.0.1:1".parse().unwrap(), server(), b"x"),
        packets::udp(client6(), "[::]:53".parse().unwrap(), b"x"),
        packets::udp(client6(), "[::ffff:192.0.2.1]:53".parse().unwrap(), b"x"),
    ];
    assert!(bench.batch(1, &nowhere).is_empty());
    assert_eq!(bench.counter("ip_bad_address"), 4);
    assert_eq!(bench.stack.flows(), 1);
}

/// A datagram over IPv4 with these options.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut packet = packets::udp(client(), server(), b"hello");
    packet.splice(20..20, options.iter().copied());
    packet[0] = 0x40 | (5 + options.len() / 4) as u8;
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packets::fill_header_sum(&mut packet);
    packet
}

#[test]
fn fragments_are_put_together_in_any_order() {
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let data = Random(1).bytes(10_000);
        let whole = packets::udp(source, destination, &data);
        let cuts: Vec<usize> = (1..8).map(|cut| cut * 1360).collect();
        let mut pieces = packets::fragments(&whole, 1, &cuts);
        bench.batch(1, &pieces);
        let mut pieces_of_next = packets::fragments(&whole, 2, &cuts);
        pieces_of_next.reverse();
        bench.batch(1, &pieces_of_next);
        // The network may repeat a fragment.
        pieces = packets::fragments(&whole, 3, &cuts);
        pieces.insert(3, pieces[1].clone());
        bench.batch(1, &pieces);
        let got = bench.app.flows()[0].read();
        assert_eq!(got.len(), 3);
        assert!(got.iter().all(|datagram| *datagram == data));
        assert_eq!(bench.counter("fragments_reassembled"), 3);
        assert_eq!(bench.counter("fragments_dropped"), 1);
        assert_eq!(
            bench.stack.poll_timeout().map(|at| at.0),
            Some(60_000_000_000)
        );
    }
}

#[test]
fn the_largest_datagram_passes_both_ways() {
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let data = Random(1).bytes(65507);
        let message = packets::udp_message(source, destination, &data);
        let shell = packets::ip(source.ip(), destination.ip(), 17, &[]);
        let pieces: Vec<_> = message
            .chunks(1360)
            .enumerate()
            .map(|(number, piece)| {
                let offset = number * 1360;
                let more = offset + piece.len() < message.len();
                packets::fragment(&shell, 17, 9, offset, more, piece)
            })
            .collect();
        bench.batch(1, &pieces);
        assert!(bench.app.flows()[0].read() == [data.clone()]);
        bench.app.flows()[0].write(&data);
        let (protocol, joined) = join(&bench.settle(), 1420);
        assert_eq!(protocol, 17);
        let expected = packets::udp_message(destination, source, &data);
        assert!(joined == expected);
        bench.app.flows()[0].write(&[0; 65530]);
        assert!(bench.settle().is_empty());
        assert_eq!(bench.counter("udp_too_large"), 1);
    }
}

#[test]
fn overlapping_fragments_spoil_the_packet() {
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let whole = packets::udp(source, destination, &[1; 400]);
        let (.., payload) = read_ip(&whole);
        let piece = |id, start: usize, end: usize, more| {
            packets::fragment(&whole, 17, id, start, more, &payload[start..end])
        };
        let end = payload.len();
        let cases: [&[(usize, usize, bool)]; 6] = [
            // The second begins within the first.
            &[
                (0, 160, true),
                (80, 240, true),
                (240, end, false),
                (160, 240, true),
            ],
            // Teardrop: the second lies within the first.
            &[(0, 160, true), (64, 112, true), (160, end, false)],
            // The same offset, with another length.
            &[(0, 160, true), (0, 80, true), (160, end, false)],
            // Two ends.
            &[(160, end, false), (160, 240, false), (0, 160, true)],
            // A fragment beyond the end.
            &[(160, 240, false), (240, 320, true), (0, 160, true)],
            // An end before earlier fragments.
            &[(160, 320, true), (80, 160, false), (0, 80, true)],
        ];
        for (case, id) in cases.iter().zip(1..) {
            for (start, end, more) in *case {
                bench.packet(1, &piece(id, *start, *end, *more));
            }
            assert_eq!(bench.counter("fragments_reassembled"), 0, "case {id}");
        }
        bench.wait(Duration::from_secs(61));
        assert_eq!(bench.counter("fragments_expired"), 6);
        // Impossible fragments.
        bench.packet(1, &piece(20, 0, 161, true));
        bench.packet(
            1,
            &packets::fragment(&whole, 17, 20, 65528, false, &[0; 16]),
        );
        assert_eq!(bench.stack.poll_timeout(), None, "nothing is kept of them");
    }
}

#[test]
fn incomplete_packets_are_given_up_and_bounded() {
    let mut bench = Bench::new(Config::default());
    let whole = packets::udp(client(), server(), &[1; 400]);
    let first = |id| packets::fragments(&whole, id, &[160]).remove(0);
    let last = |id| packets::fragments(&whole, id, &[160]).remove(1);
    for id in 0..100 {
        bench.packet(1, &first(id));
    }
    assert_eq!(bench.counter("fragments_expired"), 68);
    // The flood of one peer does not affect another one.
    bench.packet(2, &first(0));
    bench.packet(2, &last(0));
    assert_eq!(bench.counter("fragments_reassembled"), 1);
    bench.packet(1, &last(99));
    assert_eq!(bench.counter("fragments_reassembled"), 2);
    bench.packet(1, &last(0));
    assert_eq!(bench.counter("fragments_reassembled"), 2);
    for peer in 10..40 {
        for id in 0..32 {
            bench.packet(peer, &first(id));
        }
    }
    let before = bench.counter("fragments_expired");
    bench.wait(Duration::from_secs(61));
    assert_eq!(bench.counter("fragments_expired") - before, 256);
    bench.wait(Duration::from_secs(61));
    assert_eq!(bench.stack.poll_timeout(), None);
}

fn echo(source: IpAddr, destination: IpAddr, data: &[u8]) -> Vec<u8> {
    let kind = if source.is_ipv4() { 8 } else { 128 };
    let mut message = vec![kind, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend_from_slice(data);
    packets::icmp(source, destination, &message)
}

#[test]
fn echo_is_answered_for_any_destination() {
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let (source, destination) = (source.ip(), destination.ip());
        let answers = bench.packet(1, &echo(source, destination, b"payload"));
        let (from, to, protocol, message) = read_ip(&answers[0]);
        assert_eq!((from, to), (destination, source));
        assert_eq!(protocol, if source.is_ipv4() { 1 } else { 58 });
        assert_eq!(message[..2], [if source.is_ipv4() { 0 } else { 129 }, 0]);
        assert_eq!(message[4..], *b"\x12\x34\0\x01payload");
        assert_eq!(packets::icmp_sum(from, to, message), 0xffff);
        // Echo messages above the MTU, both ways.
        let whole = echo(source, destination, &[5; 4000]);
        let pieces = packets::fragments(&whole, 1, &[1360, 2720]);
        let (_, joined) = join(&bench.batch(1, &pieces), 1420);
        assert_eq!(packets::icmp_sum(from, to, &joined), 0xffff);
        assert_eq!(joined[8..], [5; 4000]);
        // Routers may fragment the reply, because it learns of no narrow path.
        let alone = &bench.packet(1, &echo(source, destination, &[5; 1360]))[0];
        let pieces = match source {
            IpAddr::V4(_) => u16::from_be_bytes([alone[6], alone[7]]) & 0x4000,
            IpAddr::V6(_) => u16::from(alone.len() > 1280),
        };
        assert_eq!(pieces, 0, "{alone:?}");
        // It has the service of the request.
        let mut urgent = echo(source, destination, b"payload");
        packets::set_class(&mut urgent, 46 << 2 | 3);
        assert_eq!(
            packets::class(&bench.packet(1, &urgent)[0]),
            46 << 2,
            "without ECN"
        );
        // Malformed messages, and messages without an answer.
        let mut wrong = echo(source, destination, b"payload");
        *wrong.last_mut().unwrap() ^= 1;
        assert!(bench.packet(1, &wrong).is_empty());
        assert!(bench.packet(1, &answers[0]).is_empty());
        assert_eq!(bench.counter("icmp_echoed"), 4);
        assert_eq!(bench.counter("icmp_malformed"), 1);
        assert_eq!(bench.counter("icmp_ignored"), 1);
    }
}

#[test]
fn what_is_not_carried_is_refused_at_a_bounded_rate() {
    const GRE: u8 = 47;
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let (source, destination) = (source.ip(), destination.ip());
        let packet = packets::ip(source, destination, GRE, &[9; 1300]);
        let answers = bench.packet(1, &packet);
        let (from, to, protocol, message) = read_ip(&answers[0]);
        assert_eq!((from, to), (destination, source));
        assert_eq!(packets::icmp_sum(from, to, message), 0xffff);
        let (kind, field, size) = if source.is_ipv4() {
            assert_eq!(protocol, 1);
            ([3, 2], 0, 576)
        } else {
            assert_eq!(protocol, 58);
            ([4, 1], 6, 1280)
        };
        assert_eq!(message[..2], kind);
        assert_eq!(message[4..8], u32::to_be_bytes(field));
        assert_eq!(message[8..], packet[..message.len() - 8]);
        assert_eq!(answers[0].len(), size);
        let answered: usize = (0..100).map(|_| bench.packet(1, &packet).len()).sum();
        assert_eq!(answered, 19);
        assert_eq!(bench.packet(2, &packet).len(), 1);
        assert_eq!(bench.counter("icmp_errors_withheld"), 81);
        bench.wait(Duration::from_secs(1));
        let answered: usize = (0..100).map(|_| bench.packet(1, &packet).len()).sum();
        assert_eq!(answered, 10);
        // A single fragment is not answered, and neither is a group.
        let piece = packets::fragment(&packet, GRE, 1, 160, true, &[9; 160]);
        assert!(bench.packet(3, &piece).is_empty());
        let group = if source.is_ipv4() {
            "224.0.0.1"
        } else {
            "ff02::1"
        };
        let packet = packets::ip(source, group.parse().unwrap(), GRE, &[9; 100]);
        assert!(bench.packet(3, &packet).is_empty());
    }
}

#[test]
fn ipv6_extension_headers_are_walked() {
    let mut bench = Bench::new(Config::default());
    let (source, destination) = (client6(), server6());
    let message = packets::udp_message(source, destination, b"hello");
    let with = |first: u8, headers: &[u8]| {
        let body = [headers, &message].concat();
        packets::ip(source.ip(), destination.ip(), first, &body)
    };
    // Hop-by-hop with padding, then destination options, then UDP.
    let headers = [60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0];
    bench.packet(1, &with(0, &headers));
    assert_eq!(bench.app.flows()[0].read(), [b"hello"]);
    // The error about an unknown protocol behind one points at it.
    let unknown = packets::ip(
        source.ip(),
        destination.ip(),
        60,
        &[99, 0, 1, 4, 0, 0, 0, 0],
    );
    let answers = bench.packet(1, &unknown);
    let (.., message) = read_ip(&answers[0]);
    assert_eq!(message[..2], [4, 1]);
    assert_eq!(message[4..8], 40u32.to_be_bytes());
    // A packet without a next header.
    let nothing = packets::ip(source.ip(), destination.ip(), 59, &[]);
    assert!(bench.packet(1, &nothing).is_empty());
    assert_eq!(bench.counter("ip_empty"), 1);
    // TCP behind one, and in fragments.
    let syn = packets::syn(source, destination, 1);
    let (.., segment) = read_ip(&syn);
    let body = [&[6, 0, 1, 4, 0, 0, 0, 0], segment].concat();
    let answers = bench.packet(1, &packets::ip(source.ip(), destination.ip(), 60, &body));
    assert!(packets::read_tcp(&answers[0]).syn);
}

#[test]
fn reassembled_segments_reach_their_flow() {
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let answers = bench.packet(1, &packets::syn(source, destination, 1));
        let next = packets::read_tcp(&answers[0]).sequence.wrapping_add(1);
        let data = Random(3).bytes(5000);
        let segment = packets::Tcp {
            source,
            destination,
            control: smoltcp::wire::TcpControl::Psh,
            sequence: 2,
            acknowledges: Some(next),
            window: 1000,
            scale: None,
            payload: &data,
            sack: None,
        };
        let pieces = packets::fragments(&segment.packet(), 5, &[1360, 2720, 4080]);
        bench.batch(1, &pieces);
        assert!(bench.app.streams()[0].read() == data);
    }
}

#[test]
fn wrong_segments_are_counted() {
    let mut bench = Bench::new(Config::default());
    for (source, destination) in families() {
        let syn = packets::syn(source, destination, 1);
        let header = if source.is_ipv4() { 20 } else { 40 };
        // Ports, a checksum, a header that is too long or too short, a truncated option.
        let mut wrong = Vec::new();
        for (at, value) in [(0, 77), (16, 0), (12, 0xf0), (12, 0x40), (21, 0)] {
            let mut packet = syn.clone();
            assert_ne!(packet[header + at], value);
            packet[header + at] = value;
            wrong.push(packet);
        }
        assert!(bench.batch(1, &wrong).is_empty());
    }
    assert_eq!(bench.counter("tcp_malformed"), 10);
    assert_eq!(bench.stack.flows(), 0);
}
