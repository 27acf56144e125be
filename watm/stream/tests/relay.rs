//! The relay: the bytes that it moves and holds, and its end.

mod support;

use support::{Copy, Echo, Framed, Random, UntilZero, Wire};
use watm_core::ErrorCode;
use watm_stream::{CHUNK, Codec, Progress, Ready, Relay};

/// A relay and its two streams.
struct Pair<C> {
    relay: Relay<C>,
    network: Wire,
    application: Wire,
}

impl<C: Codec + Default> Pair<C> {
    fn new() -> Pair<C> {
        Pair {
            relay: Relay::new(C::default()),
            network: Wire::default(),
            application: Wire::default(),
        }
    }

    fn step(&mut self, ready: Ready) -> Result<Progress, ErrorCode> {
        self.relay
            .run(ready, &mut self.network, &mut self.application)
    }

    /// Runs until the relay needs nothing that is available.
    fn settle(&mut self) -> Result<Progress, ErrorCode> {
        for _ in 0..10_000 {
            let progress = self.step(Ready::BOTH)?;
            if progress == Progress::Done || progress == Progress::Waiting && !self.called_for() {
                return Ok(progress);
            }
        }
        panic!("it does not come to rest");
    }

    /// Returns true if a condition that the relay waits for has occurred.
    fn called_for(&self) -> bool {
        let needs = self.relay.needs();
        needs.network_read && self.network.readable()
            || needs.network_write && self.network.writable()
            || needs.application_read && self.application.readable()
            || needs.application_write && self.application.writable()
    }

    /// The bytes inside the relay, as far as a codec that changes nothing reveals them.
    fn held(&self) -> (usize, usize) {
        (
            self.network.read - self.application.received.len(),
            self.application.read - self.network.received.len(),
        )
    }
}

#[test]
fn bytes_go_both_ways_until_both_streams_have_ended() {
    let mut pair = Pair::<Copy>::new();
    pair.application.send(b"question");
    pair.network.send(b"answer");
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert_eq!(pair.network.received, b"question");
    assert_eq!(pair.application.received, b"answer");

    pair.application.ended = true;
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert!(pair.network.finished && !pair.application.finished);

    pair.network.send(b", and more");
    pair.network.ended = true;
    assert_eq!(pair.settle(), Ok(Progress::Done));
    assert_eq!(pair.application.received, b"answer, and more");
    assert!(pair.application.finished);
}

#[test]
fn streams_that_end_at_once_are_done_at_once() {
    let mut pair = Pair::<Copy>::new();
    pair.application.ended = true;
    pair.network.ended = true;
    assert_eq!(pair.settle(), Ok(Progress::Done));
    assert!(pair.network.finished && pair.application.finished);
}

#[test]
fn an_end_that_is_said_inside_needs_none_of_the_stream() {
    let mut pair = Pair::<UntilZero>::new();
    pair.network.send(b"question\0");
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert!(pair.application.finished && !pair.network.ignored);
    assert_eq!(pair.application.received, b"question");
    pair.application.send(b"answer");
    pair.application.ended = true;
    assert_eq!(pair.settle(), Ok(Progress::Done));
    assert_eq!(pair.network.received, b"answer");
    // A stream released now is closed and not reset.
    assert!(pair.network.finished && pair.network.ignored);
}

#[test]
fn the_end_comes_after_what_is_queued() {
    let mut pair = Pair::<Copy>::new();
    pair.network.room = 3;
    pair.application.send(b"goodbye");
    pair.application.ended = true;
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert_eq!(pair.network.received, b"goo");
    assert!(!pair.network.finished);

    pair.network.room = usize::MAX;
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert_eq!(pair.network.received, b"goodbye");
    assert!(pair.network.finished);
}

#[test]
fn a_stream_that_takes_no_more_stops_the_other_and_not_its_own() {
    let mut pair = Pair::<Copy>::new();
    let data = Random(1).bytes(4 * CHUNK);
    pair.network.room = 0;
    pair.application.send(&data);
    pair.network.send(b"the other way");
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert_eq!(pair.application.read, CHUNK);
    assert_eq!(pair.application.received, b"the other way");
    let needs = pair.relay.needs();
    assert!(needs.network_write && !needs.application_read && needs.network_read);

    pair.network.room = usize::MAX;
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert_eq!(pair.network.received, data);
}

#[test]
fn one_call_moves_a_bounded_amount() {
    let mut pair = Pair::<Copy>::new();
    pair.application.send(&vec![1; 100 * CHUNK]);
    pair.network.send(&vec![2; 100 * CHUNK]);
    assert_eq!(pair.step(Ready::BOTH), Ok(Progress::Again));
    assert!(pair.application.read <= 10 * CHUNK && pair.network.read <= 10 * CHUNK);
    assert!(pair.application.read > 0 && pair.network.read > 0);
}

#[test]
fn only_what_is_ready_is_asked() {
    let mut pair = Pair::<Copy>::new();
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    pair.application.send(b"a");
    pair.network.send(b"b");
    let network = Ready {
        network: true,
        application: false,
    };
    assert_eq!(pair.step(network), Ok(Progress::Waiting));
    assert_eq!((pair.application.read, pair.network.read), (0, 1));
}

#[test]
fn a_broken_stream_is_an_error_of_the_relay() {
    for broken_network in [true, false] {
        let mut pair = Pair::<Copy>::new();
        let (broken, other) = match broken_network {
            true => (&mut pair.network, &mut pair.application),
            false => (&mut pair.application, &mut pair.network),
        };
        other.send(b"data");
        broken.broken = Some(ErrorCode::ConnectionReset);
        assert_eq!(pair.settle(), Err(ErrorCode::ConnectionReset));
    }
}

#[test]
fn a_stream_that_reads_no_more_is_still_read() {
    let mut pair = Pair::<Copy>::new();
    pair.network.deaf = true;
    pair.application.send(b"nobody reads this");
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert!(pair.application.ignored);
    let needs = pair.relay.needs();
    assert!(needs.network_read && !needs.network_write && !needs.application_read);

    pair.network.send(b"the last words");
    pair.network.ended = true;
    assert_eq!(pair.settle(), Ok(Progress::Done));
    assert_eq!(pair.application.received, b"the last words");
}

#[test]
fn what_moves_in_drips_arrives_whole_and_no_call_is_for_nothing() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut pair = Pair::<Copy>::new();
        let question = random.bytes(700);
        let answer = random.bytes(900);
        let mut unsent = [question.as_slice(), answer.as_slice()];
        let mut done = false;
        pair.network.room = 0;
        pair.application.room = 0;
        pair.network.sip = 1 + random.below(3);
        pair.application.sip = 1 + random.below(3);
        pair.settle().unwrap();
        for _ in 0..20_000 {
            match random.below(4) {
                side @ 0..2 => {
                    let wire = match side {
                        0 => &mut pair.application,
                        _ => &mut pair.network,
                    };
                    match unsent[side] {
                        [] => wire.ended = true,
                        [first, rest @ ..] => {
                            wire.send(&[*first]);
                            unsent[side] = rest;
                        }
                    }
                }
                2 => pair.network.room = 1,
                _ => pair.application.room = 1,
            }
            while !done && pair.called_for() {
                let before = (pair.held(), pair.network.read, pair.application.read);
                let ended = (pair.network.finished, pair.application.finished);
                done = pair.step(Ready::BOTH).unwrap() == Progress::Done;
                assert!(pair.held().0 <= CHUNK && pair.held().1 <= CHUNK);
                let moved = before != (pair.held(), pair.network.read, pair.application.read)
                    || ended != (pair.network.finished, pair.application.finished);
                assert!(moved, "it asked for what it has no use for (seed {seed})");
            }
        }
        assert!(done, "seed {seed}");
        assert_eq!(pair.network.received, question);
        assert_eq!(pair.application.received, answer);
    }
}

#[test]
fn nothing_is_read_from_the_application_before_the_handshake_is_over() {
    let mut pair = Pair::<Framed>::new();
    pair.application.send(b"data");
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert_eq!(pair.network.received, b"hello me\n");
    assert_eq!(pair.application.read, 0);
    assert!(!pair.relay.established() && !pair.relay.needs().application_read);

    pair.network.send(b"hello y");
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert!(!pair.relay.established());

    // The first message comes with the rest of the greeting.
    pair.network.send(b"ou\n\x00\x02hi\x00");
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert_eq!(pair.application.received, b"hi");
    assert_eq!(pair.network.received, b"hello me\n\x00\x04data");

    pair.network.send(b"\x00");
    pair.network.ended = true;
    pair.application.ended = true;
    assert_eq!(pair.settle(), Ok(Progress::Done));
    assert!(pair.network.received.ends_with(b"data\x00\x00"));
}

#[test]
fn a_handshake_that_cannot_be_answered_does_not_ask_to_be_read() {
    let mut pair = Pair::<Framed>::new();
    pair.network.room = 2;
    pair.network.send(b"hello y");
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    let needs = pair.relay.needs();
    assert!(needs.network_write && !needs.network_read);
}

#[test]
fn an_end_in_the_handshake_or_within_a_message_is_an_error() {
    for sent in [
        &b""[..],
        b"hello",
        b"hello you\n\x00",
        b"hello you\n\x00\x05abc",
    ] {
        let mut pair = Pair::<Framed>::new();
        pair.network.send(sent);
        pair.network.ended = true;
        assert!(pair.settle().is_err(), "{sent:?}");
    }
    let mut pair = Pair::<Framed>::new();
    pair.network.send(b"goodbye\n");
    assert_eq!(pair.settle(), Err(ErrorCode::AccessDenied));
}

#[test]
fn a_handshake_without_an_end_does_not_fill_memory() {
    let mut pair = Pair::<Framed>::new();
    pair.network.send(&vec![b'x'; 10 * CHUNK]);
    assert!(pair.settle().is_err());
    assert!(pair.network.read <= CHUNK);
}

#[test]
fn messages_of_any_size_arrive_whole() {
    let mut random = Random(7);
    for _ in 0..30 {
        let mut pair = Pair::<Framed>::new();
        let size = random.below(3 * CHUNK);
        let answer = random.bytes(size);
        let size = random.below(3 * CHUNK);
        let question = random.bytes(size);
        pair.network.sip = 1 + random.below(5000);
        pair.application.sip = 1 + random.below(5000);
        pair.network.send(&Framed::stream("you", &answer));
        pair.network.ended = true;
        pair.application.send(&question);
        pair.application.ended = true;
        assert_eq!(pair.settle(), Ok(Progress::Done));
        assert_eq!(pair.application.received, answer);
        let sent: usize = pair.network.received.len();
        assert!(sent >= question.len() + 2);
        assert!(pair.network.finished && pair.application.finished);
    }
}

#[test]
fn answers_that_nobody_takes_stop_the_reading() {
    let mut pair = Pair::<Echo>::new();
    pair.network.room = 0;
    pair.network.send(&vec![1; 20 * CHUNK]);
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert!(pair.network.read <= 3 * CHUNK, "{}", pair.network.read);
    assert!(!pair.called_for());

    pair.network.room = usize::MAX;
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert_eq!(pair.network.received.len(), 20 * CHUNK);
    assert_eq!(pair.application.received.len(), 20 * CHUNK);
}

#[test]
fn answers_after_the_applications_end_are_dropped() {
    let mut pair = Pair::<Echo>::new();
    pair.application.ended = true;
    assert_eq!(pair.settle(), Ok(Progress::Waiting));
    assert!(pair.network.finished);
    pair.network.send(b"still there?");
    pair.network.ended = true;
    assert_eq!(pair.settle(), Ok(Progress::Done));
    assert_eq!(pair.application.received, b"still there?");
}
