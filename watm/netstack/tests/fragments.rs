//! Fragmented packets: what a receiver of fragments owes their source.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use support::packets::{self, read_ip, set_class};
use support::{Bench, MINUTES};
use watm_netstack::Config;

/// ECN fields (RFC 3168 section 5).
const ECT0: u8 = 2;
const CE: u8 = 3;
/// Flags of TCP.
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

fn families() -> [(SocketAddr, SocketAddr); 2] {
    [
        ("10.0.0.2:4000", "10.1.2.3:53"),
        ("[fd00::2]:4000", "[fd00:1::2]:53"),
    ]
    .map(|(source, destination)| (source.parse().unwrap(), destination.parse().unwrap()))
}

#[test]
fn a_mark_on_one_fragment_marks_the_packet() {
    // RFC 3168 section 5.3.
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let mut syn = packets::syn(source, destination, 1);
        packets::set_flags(&mut syn, SYN | ECE | CWR);
        let answer = bench.packet(1, &syn).remove(0);
        assert_eq!(packets::flags(&answer), SYN | ACK | ECE);
        let ours = packets::read_tcp(&answer).sequence;
        for (id, classes, echoes) in [
            (1, [ECT0, ECT0], Some(false)),
            (2, [ECT0, CE], Some(true)),
            // Routers drop packets that cannot be marked. One that is marked must not pass.
            (3, [0, CE], None),
        ] {
            let data = packets::Tcp {
                source,
                destination,
                control: TcpControl::None,
                sequence: 2 + 400 * (id - 1),
                acknowledges: Some(ours.wrapping_add(1)),
                window: 60_000,
                scale: None,
                payload: &[7; 400],
                sack: None,
            };
            let mut pieces = packets::fragments(&data.packet(), id, &[200]);
            for (piece, class) in pieces.iter_mut().zip(classes) {
                set_class(piece, class);
            }
            let mut answers = bench.batch(1, &pieces);
            answers.extend(bench.wait(Duration::from_secs(1)));
            let mut echo = answers
                .iter()
                .map(|answer| packets::flags(answer) & ECE > 0);
            assert_eq!(echo.next_back(), echoes, "{classes:?}");
        }
    }
}

#[test]
fn the_source_learns_that_a_fragment_is_missing() {
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let ends = (source.ip(), destination.ip());
        let whole = packets::udp(source, destination, &[1; 2000]);
        let pieces = packets::fragments(&whole, 1, &[1360]);
        assert!(bench.packet(1, &pieces[0]).is_empty());
        assert!(bench.wait(Duration::from_secs(59)).is_empty());
        let told = bench.wait(Duration::from_secs(2));
        let (from, to, _, message) = read_ip(&told[0]);
        assert_eq!((to, from), ends);
        let (kind, size) = match source {
            SocketAddr::V4(_) => (11, 576),
            SocketAddr::V6(_) => (3, 1280),
        };
        assert_eq!(message[..2], [kind, 1]);
        assert_eq!(packets::icmp_sum(from, to, message), 0xffff);
        assert_eq!(told[0].len(), size);
        assert_eq!(message[8..], pieces[0][..message.len() - 8]);
        // No error is sent without the first fragment, or about an ICMP error.
        bench.packet(1, &pieces[1]);
        let error = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &[5; 400]].concat();
        let error = packets::icmp(ends.0, ends.1, &error);
        bench.packet(1, &packets::fragments(&error, 2, &[200])[0]);
        assert!(bench.wait(MINUTES).is_empty());
        assert_eq!(bench.counter("fragments_expired"), 3);
    }
}

#[test]
fn short_fragments_are_put_together() {
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let message = packets::udp(source, destination, &[1; 120]);
        let cuts: Vec<_> = (1..8).map(|number| number * 16).collect();
        bench.batch(1, &packets::fragments(&message, 3, &cuts));
        assert_eq!(bench.app.flows()[0].read(), [[1; 120]]);
    }
}

#[test]
fn a_first_fragment_has_all_headers() {
    for (source, destination) in families() {
        let mut bench = Bench::new(Config::default());
        let syn = packets::syn(source, destination, 1);
        let answers = bench.batch(1, &packets::fragments(&syn, 3, &[16]));
        assert_eq!(bench.stack.flows(), 0, "RFC 1858 and 7112");
        match source {
            SocketAddr::V4(_) => assert!(answers.is_empty()),
            SocketAddr::V6(_) => {
                let (.., message) = read_ip(&answers[0]);
                assert_eq!(message[..2], [4, 3]);
                assert_eq!(message[4..8], [0; 4]);
            }
        }
    }
}
