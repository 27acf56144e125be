//! The estimates in the status: the round trip to a peer, and losses.

mod support;

use std::time::Duration;

use support::inner::StreamEnd;
use support::{Outer, Pair, SERVER, Side, base64, peer_config, private_key, public_text};
use watm_core::{PeerStatus, Transport};

const CLIENT_KEY: u8 = 1;
const SECOND: Duration = Duration::from_secs(1);

fn pair() -> Pair {
    let client = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.1/32\n[Watm]\nTarget = 10.9.8.7:80\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {SERVER}\n",
        base64(private_key(CLIENT_KEY).as_bytes()),
        public_text(support::SERVER_KEY),
    );
    let peer = peer_config(CLIENT_KEY, "AllowedIPs = 10.0.0.1/32");
    Pair::new(&client, &support::server_config(&peer), Outer::Datagrams)
}

fn peer(side: &Side) -> PeerStatus {
    let mut status = side.transport.status(watm_core::Host::now(&side.host));
    assert_eq!(status.peers.len(), 1);
    status.peers.remove(0)
}

fn connected(pair: &mut Pair) -> (StreamEnd, StreamEnd) {
    let near = pair.dial(None).expect("dialled");
    near.write(b"hello");
    pair.run_for(2 * SECOND);
    let far = pair.server.host.app.streams()[0].clone();
    assert_eq!(far.read(), b"hello");
    (near, far)
}

/// Sends data each way every second, as much as fills some twenty packets.
fn talk(pair: &mut Pair, near: &StreamEnd, far: &StreamEnd, seconds: u32) {
    for _ in 0..seconds {
        near.write(&[1; 12_000]);
        far.write(&[2; 12_000]);
        pair.run_for(SECOND);
        near.read();
        far.read();
    }
}

#[test]
fn both_ends_know_how_long_a_round_trip_takes_and_follow_when_it_changes() {
    let mut pair = pair();
    pair.delay = Duration::from_millis(40);
    assert_eq!(peer(&pair.client).round_trip, None);
    let (near, far) = connected(&mut pair);
    let close = |side: &Side, expected: u64| {
        let said = peer(side).round_trip.expect("measured");
        let expected = Duration::from_millis(expected);
        assert!(said.abs_diff(expected) < expected / 20, "{said:?}");
    };
    close(&pair.client, 80);
    close(&pair.server, 80);
    pair.delay = Duration::from_millis(100);
    // Five handshakes, after which a thirtieth of the difference is left.
    talk(&mut pair, &near, &far, 605);
    close(&pair.client, 200);
    close(&pair.server, 200);
}

#[test]
fn a_repeated_handshake_tells_no_round_trip() {
    let mut pair = pair();
    pair.delay = Duration::from_millis(40);
    pair.cut = true;
    let near = pair.dial(None).expect("dialled");
    near.write(b"hello");
    pair.run_for(12 * SECOND);
    pair.cut = false;
    pair.run_for(8 * SECOND);
    assert!(peer(&pair.client).last_handshake.is_some());
    assert_eq!(peer(&pair.client).round_trip, None);
    // The server has answered once, whatever came before.
    let said = peer(&pair.server).round_trip.expect("measured");
    assert!(said.abs_diff(Duration::from_millis(80)) < Duration::from_millis(4));
}

#[test]
fn packets_wait_for_others_as_far_as_nobody_notices() {
    for (delay, expected) in [(10_000, 625), (40_000, 2500), (1000, 0)] {
        let mut pair = pair();
        pair.delay = Duration::from_micros(delay);
        assert_eq!(pair.client.host.interval, Duration::ZERO);
        let (near, far) = connected(&mut pair);
        let expected = Duration::from_micros(expected);
        for side in [&pair.client, &pair.server] {
            let said = side.host.interval;
            assert!(said.abs_diff(expected) <= expected / 20, "{said:?}");
        }
        // The shortest round trip so far counts, and after a move none.
        pair.delay *= 2;
        talk(&mut pair, &near, &far, 125);
        assert!(pair.client.host.interval.abs_diff(expected) <= expected / 20);
        pair.cut = true;
        pair.run_for(600 * SECOND);
        assert_eq!(pair.client.host.interval, Duration::ZERO);
    }
}

#[test]
fn losses_are_those_of_the_last_minute_and_of_one_direction() {
    let mut pair = pair();
    pair.delay = Duration::from_millis(10);
    let (near, far) = connected(&mut pair);
    assert_eq!(peer(&pair.client).loss_permille, None, "too few packets");
    talk(&mut pair, &near, &far, 30);
    assert_eq!(peer(&pair.client).loss_permille, Some(0));
    assert_eq!(peer(&pair.server).loss_permille, Some(0));

    pair.loses = Some(20);
    talk(&mut pair, &near, &far, 65);
    let lost = peer(&pair.client).loss_permille.expect("enough packets");
    assert!((40..=60).contains(&lost), "{lost}");
    assert_eq!(peer(&pair.server).loss_permille, Some(0));

    // The window has forgotten half of it, then all.
    pair.loses = None;
    talk(&mut pair, &near, &far, 30);
    let half = peer(&pair.client).loss_permille.expect("enough packets");
    assert!((15..=35).contains(&half), "{half}");
    talk(&mut pair, &near, &far, 35);
    assert_eq!(peer(&pair.client).loss_permille, Some(0));

    pair.run_for(70 * SECOND);
    assert_eq!(peer(&pair.client).loss_permille, None, "nothing comes");
}

#[test]
fn what_comes_in_another_order_or_twice_is_not_lost() {
    let mut pair = pair();
    let (near, far) = connected(&mut pair);
    pair.delay = Duration::from_millis(10);
    pair.shuffles = true;
    talk(&mut pair, &near, &far, 20);
    assert_eq!(peer(&pair.client).loss_permille, Some(0));
    assert_eq!(peer(&pair.server).loss_permille, Some(0));
    assert!(pair.server.counter("wireguard.dropped.replay") > 0);
}

#[test]
fn nothing_is_known_of_the_way_to_where_a_peer_has_moved() {
    let mut pair = pair();
    pair.delay = Duration::from_millis(40);
    let (near, far) = connected(&mut pair);
    talk(&mut pair, &near, &far, 10);
    assert!(peer(&pair.server).round_trip.is_some());
    assert!(peer(&pair.server).loss_permille.is_some());
    pair.client_at = "203.0.113.5:1000".parse().unwrap();
    near.write(b"from elsewhere");
    pair.run_for(SECOND);
    let moved = peer(&pair.server);
    assert_eq!(moved.endpoint, Some(pair.client_at));
    assert_eq!((moved.round_trip, moved.loss_permille), (None, None));
}
