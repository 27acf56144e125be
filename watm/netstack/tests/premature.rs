//! Losses and timeouts that turn out to be wrong: packets were late, reordered, or duplicated.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use support::{Bench, StreamEnd, packets};
use watm_netstack::Config;

/// The bytes of a full segment.
const SEGMENT: u32 = 1380;

/// The other end of a connection that the stack opened.
struct Peer {
    address: SocketAddr,
    stack: SocketAddr,
    /// The number of the stack's first byte.
    first: u32,
}

impl Peer {
    /// Opens a connection over a path of 20 ms.
    fn connect(bench: &mut Bench) -> (StreamEnd, Peer) {
        let address: SocketAddr = "10.0.0.2:5000".parse().unwrap();
        let stream = bench.dial(1, address).unwrap();
        let syn = packets::read_tcp(&bench.settle()[0]);
        let peer = Peer {
            address,
            stack: format!("10.0.0.1:{}", syn.source_port).parse().unwrap(),
            first: syn.sequence.wrapping_add(1),
        };
        bench.wait(Duration::from_millis(20));
        let accepted = packets::Tcp {
            control: TcpControl::Syn,
            sequence: 100,
            scale: Some(7),
            ..peer.segment(0, None)
        };
        bench.packet(1, &accepted.packet());
        (stream, peer)
    }

    /// Acknowledges this many full segments, and optionally those between two others.
    fn acknowledge(&self, segments: u32, sack: Option<(u32, u32)>) -> Vec<u8> {
        self.segment(segments, sack).packet()
    }

    fn segment(&self, segments: u32, sack: Option<(u32, u32)>) -> packets::Tcp<'static> {
        let at = |segments: u32| self.first.wrapping_add(segments * SEGMENT);
        packets::Tcp {
            source: self.address,
            destination: self.stack,
            control: TcpControl::None,
            sequence: 101,
            acknowledges: Some(at(segments)),
            window: u16::MAX,
            scale: None,
            payload: &[],
            sack: sack.map(|(start, end)| (at(start), at(end))),
        }
    }

    /// The numbers of the full segments among these packets.
    fn numbers(&self, packets: &[Vec<u8>]) -> Vec<u32> {
        let sequences = packets.iter().map(|packet| packets::read_tcp(packet));
        let full = sequences.filter(|segment| segment.payload.len() == SEGMENT as usize);
        full.map(|segment| segment.sequence.wrapping_sub(self.first) / SEGMENT)
            .collect()
    }
}

/// A connection with the first ten segments of `bytes` in flight.
fn sending(bytes: usize) -> (Bench, StreamEnd, Peer) {
    let mut bench = Bench::new(Config::default());
    let (stream, peer) = Peer::connect(&mut bench);
    stream.write(&vec![1; bytes]);
    let sent = bench.settle();
    assert_eq!(peer.numbers(&sent), Vec::from_iter(0..10));
    (bench, stream, peer)
}

#[test]
fn a_timeout_that_came_too_early_leaves_the_window() {
    let (mut bench, _, peer) = sending(100_000);
    let again = bench.wait(Duration::from_millis(400));
    // A probe, and the timeout.
    assert_eq!(peer.numbers(&again), [9, 0]);
    let sent = bench.packet(1, &peer.acknowledge(10, None));
    assert!(peer.numbers(&sent).len() >= 10, "{:?}", peer.numbers(&sent));
}

#[test]
fn a_timeout_after_a_loss_shrinks_the_window() {
    let (mut bench, stream, peer) = sending(13_800);
    bench.packet(1, &peer.acknowledge(7, None));
    bench.packet(1, &peer.acknowledge(7, Some((8, 10))));
    let again = bench.wait(Duration::from_millis(600));
    // A probe that is lost, and the timeout.
    assert_eq!(peer.numbers(&again), [7, 7]);
    stream.write(&[1; 100_000]);
    let sent = bench.packet(1, &peer.acknowledge(10, None));
    assert!(peer.numbers(&sent).len() <= 4, "{:?}", peer.numbers(&sent));
}

#[test]
fn a_lost_tail_is_found_without_a_timeout() {
    let (mut bench, _, peer) = sending(13_800);
    bench.packet(1, &peer.acknowledge(6, None));
    // The last four are lost. Two round trips later, the last is sent again and acknowledged.
    let again = bench.wait(Duration::from_millis(60));
    assert_eq!(peer.numbers(&again), [9]);
    let again = bench.packet(1, &peer.acknowledge(6, Some((9, 10))));
    assert_eq!(peer.numbers(&again), [6, 7, 8]);
    // One of three that is lost is found by time, because too few overtake it.
    let (mut bench, _, peer) = sending(13_800);
    bench.packet(1, &peer.acknowledge(7, None));
    let again = bench.packet(1, &peer.acknowledge(7, Some((8, 10))));
    assert_eq!(peer.numbers(&again), Vec::<u32>::new());
    let again = bench.wait(Duration::from_millis(60));
    assert_eq!(peer.numbers(&again), [7]);
}

#[test]
fn segments_are_full_again_after_a_silence() {
    let (mut bench, _, peer) = sending(100_000);
    let longest = |packets: &[Vec<u8>]| packets.iter().map(Vec::len).max();
    bench.wait(Duration::from_secs(2));
    let again = bench.wait(Duration::from_secs(8));
    assert!(longest(&again) < Some(1420), "segments were not cut");
    // A probe of 1280 bytes passes, and then one of 1420.
    let mut sent = bench.packet(1, &peer.acknowledge(10, None));
    for expected in [1280, 1420] {
        assert_eq!(longest(&sent), Some(expected));
        let last = packets::read_tcp(sent.last().unwrap());
        let end = last.sequence.wrapping_add(last.payload.len() as u32);
        let everything = packets::Tcp {
            acknowledges: Some(end),
            ..peer.segment(0, None)
        };
        sent = bench.packet(1, &everything.packet());
    }
    let short = |packet: &&Vec<u8>| packet.len() < 1420;
    assert_eq!(sent.iter().filter(short).count(), 0);
}

#[test]
fn answers_to_duplicates_are_no_losses() {
    let (mut bench, _, peer) = sending(13_800);
    for _ in 0..5 {
        // Acknowledgements with and without the range of RFC 2883.
        for sack in [None, Some((0, 1))] {
            let sent = bench.packet(1, &peer.acknowledge(2, sack));
            assert_eq!(peer.numbers(&sent), Vec::<u32>::new());
        }
    }
    let sent = bench.packet(1, &peer.acknowledge(2, Some((3, 6))));
    assert_eq!(peer.numbers(&sent), [2]);
}

#[test]
fn a_path_that_reorders_is_tolerated() {
    let (mut bench, _, peer) = sending(1_000_000);
    // Five others overtake the first, which is sent again and arrives twice.
    let sent = bench.packet(1, &peer.acknowledge(0, Some((1, 6))));
    assert!(peer.numbers(&sent).contains(&0));
    let sent = bench.packet(1, &peer.acknowledge(6, None));
    let next = *peer.numbers(&sent).last().unwrap() + 1;
    bench.packet(1, &peer.acknowledge(6, Some((0, 1))));
    // A segment that five others overtake now is waited for.
    let sent = bench.packet(1, &peer.acknowledge(6, Some((7, 12))));
    assert!(peer.numbers(&sent).iter().all(|number| *number >= next));
    // A gap that stays is a loss.
    let sent = bench.packet(1, &peer.acknowledge(6, Some((7, next))));
    assert!(peer.numbers(&sent).contains(&6));
}
