//! The acknowledgements of bytes that arrive out of order (RFC 2018) or twice (RFC 2883).

mod support;

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use support::packets::{self, Tcp, read_tcp};
use support::{Bench, StreamEnd};
use watm_core::Host;
use watm_netstack::Config;

/// The number of the peer's first byte. The numbers wrap in the scripts.
const FIRST: u32 = u32::MAX - 1499;

/// The number that an answer acknowledges, and its blocks. All count from the peer's first byte.
type Answer = (u32, &'static [(u32, u32)]);

/// A line of a script: milliseconds after its beginning, the bytes that arrive then (none to let
/// time pass only), and the answer at that time.
type Line = (u64, Range<u32>, Option<Answer>);

/// A connection from a peer, which only sends.
struct Flow {
    bench: Bench,
    stream: StreamEnd,
    peer: SocketAddr,
    stack: SocketAddr,
    /// The number of the stack's first byte.
    first: u32,
}

impl Flow {
    fn open([peer, stack]: [&str; 2]) -> Flow {
        let (peer, stack) = (peer.parse().unwrap(), stack.parse().unwrap());
        let mut bench = Bench::new(Config::default());
        let answers = bench.packet(1, &packets::syn(peer, stack, FIRST - 1));
        let first = read_tcp(&answers[0]).sequence.wrapping_add(1);
        let third = segment(peer, stack, first, 0..0);
        bench.packet(1, &third.packet());
        let stream = bench.app.streams()[0].clone();
        Flow {
            bench,
            stream,
            peer,
            stack,
            first,
        }
    }

    /// The stack's answers when these bytes arrive.
    fn inject(&mut self, bytes: Range<u32>) -> Vec<(u32, Vec<(u32, u32)>)> {
        let payload: Vec<u8> = bytes.clone().map(|at| at as u8).collect();
        let segment = Tcp {
            payload: &payload,
            ..segment(self.peer, self.stack, self.first, bytes)
        };
        let sent = self.bench.packet(1, &segment.packet());
        sent.iter().map(|packet| answer(packet)).collect()
    }

    fn run(&mut self, script: &[Line]) {
        let begun = self.bench.app.now();
        for (at, bytes, expected) in script {
            let passes = begun + Duration::from_millis(*at) - self.bench.app.now();
            let mut answers: Vec<_> = self
                .bench
                .wait(passes)
                .iter()
                .map(|sent| answer(sent))
                .collect();
            if !bytes.is_empty() {
                assert_eq!(answers, [], "before {at} ms");
                answers = self.inject(bytes.clone());
            }
            let expected = expected.map(|(acknowledged, blocks)| (acknowledged, blocks.to_vec()));
            assert_eq!(answers, Vec::from_iter(expected), "at {at} ms");
        }
    }

    /// Checks that the application has received this many bytes, as they were sent.
    fn check(&self, bytes: u32) {
        let expected: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        assert!(self.stream.read() == expected);
    }
}

/// A segment that begins with the first of these bytes.
fn segment(peer: SocketAddr, stack: SocketAddr, first: u32, bytes: Range<u32>) -> Tcp<'static> {
    Tcp {
        source: peer,
        destination: stack,
        control: TcpControl::None,
        sequence: FIRST.wrapping_add(bytes.start),
        acknowledges: Some(first),
        window: 65535,
        scale: None,
        payload: &[],
        sack: None,
    }
}

/// The acknowledgement and the blocks of a packet.
fn answer(packet: &[u8]) -> (u32, Vec<(u32, u32)>) {
    let segment = read_tcp(packet);
    assert!(segment.payload.is_empty() && !segment.reset);
    let from_first = |number: u32| number.wrapping_sub(FIRST);
    let blocks = segment.blocks.iter();
    (
        from_first(segment.acknowledges.unwrap()),
        blocks
            .map(|&(s, e)| (from_first(s), from_first(e)))
            .collect(),
    )
}

const V4: [&str; 2] = ["10.0.0.2:5000", "192.0.2.1:80"];
const V6: [&str; 2] = ["[fd00::2]:5000", "[2001:db8::1]:80"];

#[test]
fn the_block_that_grew_last_comes_first_and_those_of_before_follow() {
    for ends in [V4, V6] {
        let mut flow = Flow::open(ends);
        flow.run(&[
            (0, 0..100, None),
            (2, 0..0, Some((100, &[]))),
            (10, 200..300, Some((100, &[(200, 300)]))),
            (11, 400..500, Some((100, &[(400, 500), (200, 300)]))),
            (
                12,
                600..700,
                Some((100, &[(600, 700), (400, 500), (200, 300)])),
            ),
            (
                13,
                800..900,
                Some((100, &[(800, 900), (600, 700), (400, 500), (200, 300)])),
            ),
            // At most four fit.
            (
                14,
                1000..1100,
                Some((100, &[(1000, 1100), (800, 900), (600, 700), (400, 500)])),
            ),
            // An old one grows.
            (
                15,
                300..350,
                Some((100, &[(200, 350), (1000, 1100), (800, 900), (600, 700)])),
            ),
            // Two become one.
            (
                16,
                700..800,
                Some((100, &[(600, 900), (200, 350), (1000, 1100), (400, 500)])),
            ),
            // The first gap is filled.
            (
                17,
                100..200,
                Some((350, &[(600, 900), (1000, 1100), (400, 500)])),
            ),
            (18, 350..400, Some((500, &[(600, 900), (1000, 1100)]))),
            (19, 900..1000, Some((500, &[(600, 1100)]))),
            (20, 500..600, Some((1100, &[]))),
        ]);
        flow.check(1100);
    }
}

#[test]
fn what_comes_twice_is_told_at_once() {
    for ends in [V4, V6] {
        let mut flow = Flow::open(ends);
        flow.run(&[
            (0, 0..1000, None),
            (2, 0..0, Some((1000, &[]))),
            // Bytes below the acknowledged number.
            (10, 0..1000, Some((1000, &[(0, 1000)]))),
            (11, 200..300, Some((1000, &[(200, 300)]))),
            // The same beside a gap.
            (12, 2000..3000, Some((1000, &[(2000, 3000)]))),
            (13, 500..1000, Some((1000, &[(500, 1000), (2000, 3000)]))),
            // Bytes in a block, which follows them.
            (14, 4000..5000, Some((1000, &[(4000, 5000), (2000, 3000)]))),
            (
                15,
                2000..2500,
                Some((1000, &[(2000, 2500), (2000, 3000), (4000, 5000)])),
            ),
            // A partial overlap.
            (
                16,
                4500..5500,
                Some((1000, &[(4500, 5000), (4000, 5500), (2000, 3000)])),
            ),
            (
                17,
                900..1200,
                Some((1200, &[(900, 1000), (4000, 5500), (2000, 3000)])),
            ),
            // It is reported once.
            (
                18,
                6000..7000,
                Some((1200, &[(6000, 7000), (4000, 5500), (2000, 3000)])),
            ),
            (19, 1200..2000, Some((3000, &[(6000, 7000), (4000, 5500)]))),
            (20, 3000..4000, Some((5500, &[(6000, 7000)]))),
            (21, 5500..6000, Some((7000, &[]))),
            (22, 6500..7500, Some((7500, &[(6500, 7000)]))),
            (23, 7500..8000, None),
            (25, 0..0, Some((8000, &[]))),
        ]);
        flow.check(8000);
    }
}

#[test]
fn what_is_passed_by_an_acknowledgement_is_taken() {
    let mut flow = Flow::open(V4);
    flow.stream.write(&[1; 500]);
    assert_eq!(flow.bench.settle().len(), 1);
    // The second was sent after the answer had arrived, and overtakes the first.
    let before = flow.first;
    flow.first = before.wrapping_add(500);
    assert_eq!(flow.inject(100..200), [(0, vec![(100, 200)])]);
    let after = std::mem::replace(&mut flow.first, before);
    assert_eq!(flow.inject(0..100), [(200, vec![])]);
    flow.check(200);
    // Duplicates among it are answered too.
    assert_eq!(flow.inject(0..100), [(200, vec![(0, 100)])]);
    // The window has changed since.
    flow.stream.write(&[1; 500]);
    let sent = flow.bench.settle();
    assert_eq!(read_tcp(&sent[0]).sequence, after);
}

#[test]
fn there_are_no_more_gaps_than_there_is_room_for() {
    let mut flow = Flow::open(V4);
    for number in 1..=264 {
        let answers = flow.inject(number * 200..number * 200 + 100);
        // Bytes without room are not reported.
        let newest = number.min(256) * 200;
        let [(0, blocks)] = &answers[..] else {
            panic!("segment {number}: {answers:?}");
        };
        assert_eq!(blocks[0], (newest, newest + 100), "segment {number}");
    }
    assert_eq!(flow.bench.counter("tcp_too_many_gaps"), 8);
    let missing = (0..=256).map(|number| number * 200);
    for start in missing {
        flow.inject(if start == 0 {
            0..200
        } else {
            start - 100..start + 100
        });
    }
    flow.check(51_300);
}
