//! The size of packets by the path MTU to the peer, and the handling of a changed local network.

mod support;

use std::time::Duration;

use support::inner::StreamEnd;
use support::{Outer, Pair, SERVER, base64, peer_config, private_key, public_text, server_config};
use watm_core::Level;

const CLIENT_KEY: u8 = 1;
const SECOND: Duration = Duration::from_secs(1);
/// The bytes that WireGuard adds to a packet.
const OVERHEAD: usize = 32;

/// A client with these lines of configuration, and its server.
fn pair(interface: &str) -> Pair {
    let client = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.1/32\n{interface}\
         [Watm]\nTarget = 10.9.8.7:80\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {SERVER}\n",
        base64(private_key(CLIENT_KEY).as_bytes()),
        public_text(support::SERVER_KEY),
    );
    let server = server_config(&peer_config(CLIENT_KEY, "AllowedIPs = 10.0.0.1/32"));
    Pair::new(&client, &server, Outer::Datagrams)
}

fn connected(pair: &mut Pair) -> (StreamEnd, StreamEnd) {
    let near = pair.dial(None).expect("dialled");
    near.write(b"hello");
    pair.run_for(SECOND);
    let far = pair.server.host.app.streams().last().expect("one").clone();
    assert_eq!(far.read(), b"hello");
    (near, far)
}

/// Sends 200 KB this way, during which at most `most` datagrams are too long.
fn transfer(pair: &mut Pair, from: &StreamEnd, to: &StreamEnd, most: u64) {
    let before = to.read().len();
    assert_eq!(before, 0);
    pair.client.host.take_too_long();
    from.write(&[7; 200_000]);
    let mut got = 0;
    for _ in 0..100 {
        pair.run_for(SECOND / 50);
        got += to.read().len();
    }
    assert_eq!(got, 200_000);
    let lost = pair.client.host.take_too_long();
    assert!(lost <= most, "{lost}");
}

#[test]
fn packets_are_as_large_as_the_way_takes() {
    for longest in [1200, 1332, 1412, 1452, 9000] {
        let mut pair = pair("");
        pair.delay = SECOND / 100;
        pair.client.host.set_longest(Some(longest), Some(longest));
        let (near, far) = connected(&mut pair);
        pair.keep_seen = true;
        transfer(&mut pair, &near, &far, 0);
        transfer(&mut pair, &far, &near, 0);
        let seen = pair.seen.iter().map(Vec::len).max();
        let most = 1420 + OVERHEAD;
        // The padding of peers needs room, since they assume 1420 themselves.
        let expected = if longest < most {
            longest / 16 * 16
        } else {
            most
        };
        assert_eq!(seen, Some(expected));
    }
}

#[test]
fn a_router_that_knows_better_is_asked_with_the_first_handshake() {
    let mut pair = pair("");
    pair.delay = SECOND / 100;
    // A router reports the first datagram that is too long.
    pair.client.host.set_longest(Some(1272), Some(1472));
    pair.run_for(SECOND);
    // No needed datagram is lost by it.
    let (near, far) = connected(&mut pair);
    pair.keep_seen = true;
    transfer(&mut pair, &near, &far, 0);
    transfer(&mut pair, &far, &near, 0);
    assert_eq!(pair.seen.iter().map(Vec::len).max(), Some(1264));
}

#[test]
fn a_way_that_gets_narrower_stops_nobody() {
    let mut pair = pair("");
    pair.delay = SECOND / 100;
    let (near, far) = connected(&mut pair);
    transfer(&mut pair, &near, &far, 0);
    for longest in [1400, 1300, 1200] {
        pair.client.host.set_longest(Some(longest), Some(1472));
        // Only datagrams sent before that was known are lost.
        transfer(&mut pair, &near, &far, 64);
    }
    assert!(pair.client.counter("wireguard.narrower") >= 3);
    let handshakes = pair.client.counter("wireguard.handshakes");
    // The MTU is asked for again with each handshake.
    pair.client.host.set_longest(None, None);
    pair.run_for(130 * SECOND);
    near.write(b"again");
    pair.run_for(5 * SECOND);
    assert_eq!(far.read(), b"again");
    assert!(pair.client.counter("wireguard.handshakes") > handshakes);
    pair.keep_seen = true;
    transfer(&mut pair, &near, &far, 0);
    assert_eq!(pair.seen.iter().map(Vec::len).max(), Some(1420 + OVERHEAD));
}

#[test]
fn who_says_how_large_packets_are_is_told_that_they_do_not_fit() {
    let mut pair = pair("MTU = 1420\n");
    pair.delay = SECOND / 100;
    pair.client.host.set_longest(Some(1372), Some(1372));
    let (near, far) = connected(&mut pair);
    // They go in fragments.
    transfer(&mut pair, &near, &far, u64::MAX);
    let warnings = || {
        let logs = pair.client.host.logs.iter();
        let warnings = logs.filter(|(level, _)| *level == Level::Warn);
        warnings.map(|(_, text)| text.clone()).collect::<Vec<_>>()
    };
    let key = public_text(support::SERVER_KEY);
    let expected = format!(
        "[Interface] MTU is 1420, but the path MTU to peer {key} at {SERVER} is 1340 bytes: \
         larger packets are fragmented; remove MTU from the file to discover it"
    );
    assert_eq!(warnings(), [expected]);
}

#[test]
fn a_new_network_is_followed_by_a_handshake() {
    let mut pair = pair("");
    let (near, far) = connected(&mut pair);
    let initiations = pair.client.counter("wireguard.initiations_sent");
    pair.client_at = "203.0.113.9:7".parse().unwrap();
    pair.network_changed();
    pair.run_for(SECOND);
    assert_eq!(
        pair.client.counter("wireguard.initiations_sent"),
        initiations + 1
    );
    // The server learns the new address before the client has sent any data.
    far.write(b"found");
    pair.run_for(SECOND);
    assert_eq!(near.read(), b"found");
    // Unused peers are left alone.
    near.close();
    far.close();
    pair.run_for(600 * SECOND);
    let initiations = pair.client.counter("wireguard.initiations_sent");
    pair.network_changed();
    pair.run_for(SECOND);
    assert_eq!(
        pair.client.counter("wireguard.initiations_sent"),
        initiations
    );
}

#[test]
fn after_a_new_network_no_address_of_the_old_one_is_sent_from() {
    let mut pair = pair("");
    let local = "198.51.100.7".parse().unwrap();
    pair.client.host.set_local(local);
    connected(&mut pair);
    for expected in [Some(local), None] {
        pair.dial(None).unwrap();
        let sent = pair.client.host.take_sent_with_local();
        let locals: Vec<_> = sent.iter().map(|(_, local, _)| *local).collect();
        assert_eq!(locals, [expected]);
        pair.network_changed();
    }
}
