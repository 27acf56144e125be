//! Captures of packets, as the user enables them.

mod support;

use std::cell::RefCell;

use support::{
    Application, Post, SERVER, arrive, counter, grant, limit, options, run, sent, start_with, udp,
    udp_to,
};
use watm_core::capture::{Capture, Direction, set_provider};
use watm_core::{Instant, Transport};
use watm_tun::Tun;

type Copy = (Direction, Vec<u8>);

thread_local! {
    static PACKETS: RefCell<Vec<Copy>> = const { RefCell::new(Vec::new()) };
}

struct User;

impl Capture for User {
    fn wants_packets(&self) -> bool {
        true
    }

    fn wants_secrets(&self) -> bool {
        true
    }

    fn packet(&self, peer: &str, direction: Direction, packet: &[u8]) {
        assert_eq!(peer, "tun");
        PACKETS.with_borrow_mut(|all| all.push((direction, packet.to_vec())));
    }

    fn secret(&self, lines: &str) {
        panic!("a device has no keys, and logs {lines}");
    }
}

/// Begins or ends the user's capture, which a transport learns when it starts or is reconfigured.
fn want(wanted: bool) {
    set_provider(match wanted {
        true => Some(|| Some(Box::new(User))),
        false => None,
    });
}

/// A device with this configuration and an application, and a capture if the user wants one.
fn with(config: &str, wanted: bool) -> (Tun, Application) {
    grant();
    want(wanted);
    let mut host = Application::new(0, &Post::default());
    let tun = start_with(config, &mut host);
    (tun, host)
}

/// Sends a question through the device, and an answer back.
fn talk(tun: &mut Tun, host: &mut Application) {
    arrive(udp(4000, b"question"));
    run(tun, &[0], host);
    let token = host.answer(b"answer");
    run(tun, &[token], host);
}

#[test]
fn packets_are_copied_as_they_pass_the_device() {
    let (mut tun, mut host) = with("", true);
    talk(&mut tun, &mut host);
    let answer = sent().pop().expect("an answer");
    let expected = [
        (Direction::FromPeer, udp(4000, b"question")),
        (Direction::ToPeer, answer),
    ];
    assert_eq!(PACKETS.take(), expected);
}

#[test]
fn a_capture_begins_and_ends_with_a_configuration() {
    let (mut tun, mut host) = with("", false);
    for (wanted, copied) in [(false, 0), (true, 2), (false, 0)] {
        want(wanted);
        tun.reconfigure(b"", &mut host)
            .expect("a good configuration");
        talk(&mut tun, &mut host);
        assert_eq!(PACKETS.take().len(), copied);
    }
}

#[test]
fn a_capture_is_at_the_programs_end_of_the_bad_network() {
    let config = format!(r#"{{"network": "host={SERVER}:53 loss=100%"}}"#);
    let (mut tun, mut host) = with(&config, true);
    // The program has sent it, before it is lost.
    arrive(udp(4000, b"question"));
    run(&mut tun, &[0], &mut host);
    assert_eq!(PACKETS.take().len(), 1);
    assert!(host.flows.is_empty());
    // A packet that is lost on the way to the program never comes there.
    arrive(udp_to(54, 4000, b"question"));
    run(&mut tun, &[0], &mut host);
    let lossy = r#"{"network": "direction=to-peer loss=100%"}"#;
    tun.reconfigure(lossy.as_bytes(), &mut host)
        .expect("a good configuration");
    let token = host.answer(b"answer");
    run(&mut tun, &[token], &mut host);
    let directions: Vec<_> = PACKETS.take().into_iter().map(|(way, _)| way).collect();
    assert_eq!(directions, [Direction::FromPeer]);
    assert_eq!(counter(&tun, "network.lost"), 2);
}

#[test]
fn packets_that_the_device_has_no_room_for_are_not_copied() {
    let (mut tun, mut host) = with("", true);
    arrive(udp(4000, b"question"));
    run(&mut tun, &[0], &mut host);
    PACKETS.take();
    limit(1);
    host.answer(b"one");
    let token = host.answer(b"two");
    run(&mut tun, &[token], &mut host);
    assert_eq!(counter(&tun, "tun.dropped.full"), 1);
    assert_eq!(PACKETS.take(), [(Direction::ToPeer, sent().remove(0))]);
}

#[test]
fn packets_of_an_older_generation_are_in_the_capture_of_the_one_that_serves() {
    let (mut old, mut old_host) = with("", false);
    arrive(udp(4000, b"question"));
    run(&mut old, &[0], &mut old_host);
    let snapshot = old.snapshot(Instant(1));
    want(true);
    let mut new_host = Application::new(1, &old_host.post);
    let mut new = Tun::start(options("", 1, Some(snapshot)), &mut new_host).expect("it starts");
    new.serving(1, &mut new_host);
    old.serving(1, &mut old_host);
    run(&mut new, &[1], &mut new_host);
    let token = old_host.answer(b"answer");
    run(&mut old, &[token], &mut old_host);
    assert!(PACKETS.take().is_empty());
    run(&mut new, &[1], &mut new_host);
    assert_eq!(PACKETS.take().len(), 1);
}
