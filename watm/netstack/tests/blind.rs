//! Attacks on a connection by somebody who does not see its packets: predicting its numbers (RFC
//! 6528), and ending it with a guess (RFC 5961).

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use support::packets::{self, Segment, Tcp, read_tcp};
use support::{Bench, StreamEnd};
use watm_core::ErrorCode;
use watm_netstack::Config;

fn server() -> SocketAddr {
    "192.0.2.1:443".parse().unwrap()
}

fn client(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], port))
}

/// The generator that smoltcp draws from: sPCG32 (O'Neill, 2014). A number is a part of the state,
/// chosen by its highest three bits.
struct Generator(u64);

impl Generator {
    const FACTOR: u64 = 0xbb2e_fcec_3c39_611d;
    const TERM: u64 = 0x7590_ef39;

    fn step(state: u64) -> u64 {
        state.wrapping_mul(Self::FACTOR).wrapping_add(Self::TERM)
    }

    fn next(&mut self) -> u32 {
        self.0 = Self::step(self.0);
        (self.0 >> (29 - (self.0 >> 61))) as u32
    }

    /// Finds a generator of these numbers, if one of them shows bits 22 to 53 of the state, as one
    /// in eight does. Returns its next number.
    fn foretell(numbers: &[u32]) -> Option<u32> {
        const KNOWN: u64 = (1 << 54) - 1;
        for at in 0..numbers.len() - 3 {
            for low in 0..1 << 22 {
                let low = u64::from(numbers[at]) << 22 | low;
                // The lower bits of a state follow from the lower bits of the one before.
                let next = Self::step(low) & KNOWN;
                let shows = |shift: u32| {
                    (next >> shift) as u32 == numbers[at + 1] & (KNOWN >> shift) as u32
                };
                if !(22..30).any(shows) {
                    continue;
                }
                for high in 0..1 << 7 {
                    let mut generator = Generator(7 << 61 | high << 54 | low);
                    if numbers[at + 1..]
                        .iter()
                        .all(|number| generator.next() == *number)
                    {
                        return Some(generator.next());
                    }
                }
            }
        }
        None
    }
}

#[test]
fn numbers_of_connections_do_not_follow_from_those_of_others() {
    const SEEN: usize = 20;
    // Numbers drawn from the generator are detected.
    let mut generator = Generator(0x0123_4567_89ab_cdef);
    let drawn: Vec<u32> = (0..SEEN).map(|_| generator.next()).collect();
    assert_eq!(Generator::foretell(&drawn), Some(generator.next()));
    let mut bench = Bench::new(Config::default());
    // The numbers in the order of their drawing, if they are drawn.
    let mut numbers = Vec::new();
    for port in 1000..1000 + SEEN as u16 / 2 {
        let answers = bench.packet(1, &packets::syn(client(port), server(), 100));
        numbers.push(read_tcp(&answers[0]).sequence);
        let _end = bench.dial(2, "10.0.0.2:80".parse().unwrap()).unwrap();
        numbers.push(read_tcp(&bench.settle()[0]).sequence);
    }
    assert_eq!(Generator::foretell(&numbers), None);
    // Numbers are not close to each other either.
    for pair in numbers.windows(2) {
        assert!(pair[0].abs_diff(pair[1]) > 1000, "{pair:?}");
    }
}

#[test]
fn a_later_connection_between_the_same_ends_has_later_numbers() {
    let mut bench = Bench::new(Config::default());
    let number = |bench: &mut Bench| {
        let answers = bench.packet(1, &packets::syn(client(1000), server(), 100));
        let first = read_tcp(&answers[0]).sequence;
        let reset = Tcp {
            control: TcpControl::Rst,
            ..segment(101, first.wrapping_add(1))
        };
        bench.packet(1, &reset.packet());
        assert_eq!(bench.stack.flows(), 0);
        first
    };
    let before = number(&mut bench);
    bench.wait(Duration::from_millis(40));
    // A tick of the clock is four microseconds.
    assert_eq!(number(&mut bench).wrapping_sub(before), 10_000);
}

/// A segment of the client.
fn segment(sequence: u32, acknowledges: u32) -> Tcp<'static> {
    Tcp {
        source: client(1000),
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

/// A connection whose client has sent the bytes before number 108, and the number of the stack's
/// first byte.
fn established() -> (Bench, StreamEnd, u32) {
    let mut bench = Bench::new(Config::default());
    let answers = bench.packet(1, &packets::syn(client(1000), server(), 100));
    let first = read_tcp(&answers[0]).sequence.wrapping_add(1);
    let request = Tcp {
        payload: b"request",
        ..segment(101, first)
    };
    bench.packet(1, &request.packet());
    bench.wait(Duration::from_millis(10));
    let stream = bench.app.streams()[0].clone();
    assert_eq!(stream.read(), b"request");
    (bench, stream, first)
}

/// The answer to a reset or SYN with this number.
fn guess(bench: &mut Bench, control: TcpControl, sequence: u32) -> Option<Segment> {
    let guess = Tcp {
        control,
        acknowledges: None,
        scale: (control == TcpControl::Syn).then_some(7),
        ..segment(sequence, 0)
    };
    let answers = bench.packet(1, &guess.packet());
    assert!(answers.len() <= 1);
    answers.first().map(|answer| read_tcp(answer))
}

/// Checks that an answer only reports the position of a connection that has sent nothing.
fn is_challenge(answer: Option<Segment>, first: u32) -> bool {
    answer.is_some_and(|answer| {
        let here = (answer.sequence, answer.acknowledges) == (first, Some(108));
        // A window of zero would stop the client.
        here && !answer.reset && !answer.syn && answer.window > 900
    })
}

#[test]
fn a_reset_within_the_window_ends_nothing() {
    let (mut bench, stream, first) = established();
    for sequence in [109, 1000, 60_000] {
        let answer = guess(&mut bench, TcpControl::Rst, sequence);
        assert!(is_challenge(answer, first), "{sequence}");
        bench.wait(Duration::from_secs(1));
    }
    // Numbers beyond the window get no answer at all.
    for sequence in [107, 10_000_000, 0x8000_0000] {
        assert!(guess(&mut bench, TcpControl::Rst, sequence).is_none());
    }
    assert_eq!(bench.counter("tcp_challenged"), 3);
    assert!(!stream.gone());
    let more = Tcp {
        payload: b"more",
        ..segment(108, first)
    };
    bench.packet(1, &more.packet());
    assert_eq!(stream.read(), b"more");
    // A genuine peer has the number from the challenge.
    assert!(guess(&mut bench, TcpControl::Rst, 112).is_none());
    assert_eq!(stream.reset(), Some(ErrorCode::ConnectionReset));
    assert_eq!(bench.stack.flows(), 0);
}

#[test]
fn a_reset_within_the_window_ends_no_handshake() {
    let mut bench = Bench::new(Config::default());
    let answers = bench.packet(1, &packets::syn(client(1000), server(), 107));
    let first = read_tcp(&answers[0]).sequence.wrapping_add(1);
    let answer = guess(&mut bench, TcpControl::Rst, 500);
    assert!(is_challenge(answer, first));
    bench.packet(1, &segment(108, first).packet());
    assert_eq!(bench.app.streams().len(), 1);
}

#[test]
fn a_reset_after_the_end_of_the_client_has_to_be_exact_too() {
    let (mut bench, stream, first) = established();
    let end = Tcp {
        control: TcpControl::Fin,
        ..segment(108, first)
    };
    bench.packet(1, &end.packet());
    assert!(stream.ended());
    assert!(guess(&mut bench, TcpControl::Rst, 108).is_none());
    assert!(guess(&mut bench, TcpControl::Rst, 110).is_some());
    assert!(!stream.gone());
    guess(&mut bench, TcpControl::Rst, 109);
    assert_eq!(stream.reset(), Some(ErrorCode::ConnectionReset));
}

#[test]
fn a_syn_is_answered_with_where_the_connection_is() {
    let (mut bench, stream, first) = established();
    for sequence in [108, 1000, 0x8000_0000] {
        let answer = guess(&mut bench, TcpControl::Syn, sequence);
        assert!(is_challenge(answer, first), "{sequence}");
        bench.wait(Duration::from_secs(1));
    }
    // A segment that accepts is challenged too.
    let accepts = Tcp {
        control: TcpControl::Syn,
        scale: Some(7),
        ..segment(1000, first)
    };
    let answers = bench.packet(1, &accepts.packet());
    assert!(is_challenge(
        answers.first().map(|answer| read_tcp(answer)),
        first
    ));
    assert!(!stream.gone());
}

#[test]
fn challenges_of_a_connection_are_bounded_and_leave_others_theirs() {
    let (mut bench, _, first) = established();
    let answered = (0..100)
        .filter_map(|at| guess(&mut bench, TcpControl::Rst, 200 + at))
        .count();
    assert_eq!(answered, 1);
    let answered = (0..100)
        .filter_map(|_| {
            bench.wait(Duration::from_millis(20));
            guess(&mut bench, TcpControl::Syn, 200)
        })
        .count();
    assert!((3..=4).contains(&answered), "{answered} in two seconds");
    let answers = bench.packet(1, &packets::syn(client(2000), server(), 100));
    let other = read_tcp(&answers[0]).sequence.wrapping_add(1);
    let third = Tcp {
        source: client(2000),
        ..segment(101, other)
    };
    bench.packet(1, &third.packet());
    let again = bench.packet(1, &packets::syn(client(2000), server(), 5000));
    assert_eq!(again.len(), 1);
    assert_ne!(other, first);
}
