//! The life of a dialled tunnel, with a server module at the other end.

mod support;

use std::time::Duration;

use support::inner::StreamEnd;
use support::{Outer, Pair, Random, SERVER, Side, base64, peer_config, private_key, public_text};
use watm_core::{ErrorCode, Level};

const CLIENT_KEY: u8 = 1;
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The configuration of a client with this key, for the server with that one.
fn client_config(key: u8, server: u8) -> String {
    format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.1/32\n[Watm]\nTarget = 10.9.8.7:80\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {SERVER}\n",
        base64(private_key(key).as_bytes()),
        public_text(server),
    )
}

fn pair_with(peer: &str, server: &str) -> Pair {
    let client = client_config(CLIENT_KEY, support::SERVER_KEY) + peer + "\n";
    let peer = peer_config(CLIENT_KEY, "AllowedIPs = 10.0.0.1/32");
    let server = support::server_config(&(peer + server));
    Pair::new(&client, &server, Outer::Datagrams)
}

fn pair() -> Pair {
    pair_with("", "")
}

/// An open connection, and its other end.
fn connected(pair: &mut Pair) -> (StreamEnd, StreamEnd) {
    let near = pair.dial(None).expect("dialled");
    near.write(b"hello");
    let before = pair.server.host.app.streams().len();
    pair.run_for(SECOND);
    let far = pair.server.host.app.streams()[before].clone();
    assert_eq!(far.read(), b"hello");
    (near, far)
}

/// The time until a new connection has carried data, at most this many seconds.
fn time_to_connect(pair: &mut Pair, seconds: u32) -> Option<Duration> {
    let near = pair.dial(None).ok()?;
    near.write(b"hello");
    let before = pair.server.host.app.streams().len();
    let began = pair.now();
    while pair.now() - began < seconds * SECOND {
        pair.run_for(SECOND / 100);
        if pair.server.host.app.streams().len() > before {
            return Some(pair.now() - began);
        }
    }
    None
}

#[test]
fn who_has_an_endpoint_is_called_at_the_start() {
    let mut pair = pair();
    pair.run_for(SECOND);
    for side in [&pair.client, &pair.server] {
        assert_eq!(side.counter("wireguard.handshakes"), 1);
    }
    // One handshake only: nothing needs another one.
    pair.run_for(HOUR);
    assert_eq!(pair.server.counter("wireguard.handshakes"), 1);
    assert_eq!(pair.client.counter("wireguard.initiations_sent"), 1);
    connected(&mut pair);
}

#[test]
fn it_is_said_why_the_first_call_has_no_answer() {
    for (peer, said) in [
        ("", "does not answer"),
        (
            "PresharedKey = AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=",
            "its handshake is not valid",
        ),
    ] {
        let config = client_config(CLIENT_KEY, support::SERVER_KEY) + peer + "\n";
        let known = if peer.is_empty() {
            CLIENT_KEY + 1
        } else {
            CLIENT_KEY
        };
        let server = support::server_config(&peer_config(known, "AllowedIPs = 10.0.0.1/32"));
        let mut pair = Pair::new(&config, &server, Outer::Datagrams);
        pair.run_for(5 * SECOND);
        assert_eq!(warnings(&pair), Vec::<String>::new());
        pair.run_for(15 * SECOND);
        let warnings = warnings(&pair);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(said), "{warnings:?}");
    }
}

#[test]
fn a_tunnel_that_was_called_says_so_and_one_that_calls_says_with_whom() {
    let pair = {
        let mut pair = pair_with("", "");
        pair.dial(None).unwrap();
        pair.run_for(SECOND);
        pair
    };
    let informed = |side: &Side| {
        let logs = side.host.logs.iter();
        let informed = logs.filter(|(level, _)| *level == Level::Info);
        informed.map(|(_, text)| text.clone()).collect::<Vec<_>>()
    };
    let server = support::public_text(support::SERVER_KEY);
    assert_eq!(
        informed(&pair.client),
        [format!(
            "handshake with peer {server} at {SERVER} completed"
        )]
    );
    let client = support::public_text(CLIENT_KEY);
    let called = informed(&pair.server);
    assert_eq!(called.len(), 1);
    assert!(
        called[0].starts_with(&format!("peer {client} connected from ")),
        "{called:?}"
    );
}

#[test]
fn keepalives_are_sent_at_their_interval_and_begin_at_the_start() {
    let mut pair = pair_with("PersistentKeepalive = 25", "");
    pair.run_for(SECOND);
    assert_eq!(pair.server.counter("wireguard.handshakes"), 1);
    let before = pair.server.counter("wireguard.keepalives_received");
    pair.run_for(250 * SECOND);
    let received = pair.server.counter("wireguard.keepalives_received") - before;
    // A new session begins with a keepalive of its own.
    assert!((9..=14).contains(&received), "{received}");
    // The session does not lapse in between.
    let expired = pair.client.counter("wireguard.sessions_expired");
    assert_eq!(expired, 0);
    pair.run_for(HOUR);
    let more = pair.server.counter("wireguard.keepalives_received") - before - received;
    assert!((140..=200).contains(&more), "{more} in an hour");
}

#[test]
fn keys_are_renewed_every_two_minutes_without_a_stall() {
    let mut pair = pair();
    pair.delay = SECOND / 100;
    let (near, far) = connected(&mut pair);
    let handshakes = pair.server.counter("wireguard.handshakes");
    for _ in 0..5000 {
        near.write(&[1; 10_000]);
        far.write(&[2; 10_000]);
        pair.run_for(SECOND / 10);
        assert_eq!((far.read().len(), near.read().len()), (10_000, 10_000));
    }
    let renewed = pair.server.counter("wireguard.handshakes") - handshakes;
    assert!((3..=5).contains(&renewed), "{renewed} in 500 seconds");
}

#[test]
fn a_server_under_load_is_shown_the_cookie_that_it_asks_for() {
    let mut pair = pair_with("", "[Watm]\nHandshakesPerSecond = 1\n");
    // A stranger's initiation, repeatedly.
    pair.server_at = "192.0.2.99:1".parse().unwrap();
    pair.dial(None).unwrap();
    pair.run_for(SECOND / 10);
    let (_, initiation) = pair.stray.pop().expect("sent");
    pair.server_at = SERVER.parse().unwrap();
    for tenth in 0..100 {
        let from = std::net::SocketAddr::new([203, 0, 113, 1].into(), 1000 + tenth);
        for _ in 0..3 {
            pair.server.host.arrive(from, &initiation);
        }
        pair.run_for(SECOND / 10);
    }
    assert!(pair.server.counter("wireguard.cookies_sent") > 50);
    assert_eq!(pair.server.counter("wireguard.handshakes"), 1);
    let far = pair.server.host.app.streams();
    assert_eq!(far.len(), 1, "the connection is made");
}

#[test]
fn a_server_that_is_away_for_an_hour_is_back_without_a_restart() {
    for (peer, patience) in [("", 1), ("PersistentKeepalive = 25", 1)] {
        let mut pair = pair_with(peer, "");
        let (near, _) = connected(&mut pair);
        pair.cut = true;
        near.write(b"into the void");
        let before = pair.client.counter("wireguard.initiations_sent");
        pair.run_for(HOUR);
        let tries = pair.client.counter("wireguard.initiations_sent") - before;
        // At most one in five seconds, and no more than keepalives and the stream need.
        assert!((3..=HOUR.as_secs() / 5).contains(&tries), "{tries}");
        assert_eq!(near.reset(), Some(ErrorCode::Timeout));
        pair.cut = false;
        if !peer.is_empty() {
            pair.run_for(30 * SECOND);
        }
        let time = time_to_connect(&mut pair, patience);
        assert!(time.is_some(), "{peer:?}");
    }
}

#[test]
fn a_connection_that_is_waited_for_goes_on_when_the_server_is_back() {
    let mut pair = pair();
    let (near, far) = connected(&mut pair);
    pair.cut = true;
    near.write(b"waits");
    pair.run_for(45 * SECOND);
    pair.cut = false;
    pair.run_for(60 * SECOND);
    assert_eq!(far.read(), b"waits");
    assert_eq!(near.reset(), None);
}

#[test]
fn after_a_sleep_of_any_length_the_first_connection_is_made_at_once() {
    for seconds in [10, 119, 121, 179, 181, 600, 86_400, 30 * 86_400] {
        for peer in ["", "PersistentKeepalive = 25"] {
            let mut pair = pair_with(peer, "");
            pair.delay = SECOND / 100;
            connected(&mut pair);
            pair.sleep_for(seconds * SECOND);
            let time = time_to_connect(&mut pair, 10);
            // A packet may be lost in a session that the server has just forgotten.
            let at_once = time.is_some_and(|time| time <= SECOND * 3 / 2);
            assert!(at_once, "{seconds} s, {peer:?}: {time:?}");
        }
    }
}

#[test]
fn the_server_is_followed_to_another_address_and_so_is_the_client() {
    let mut pair = pair();
    let (near, far) = connected(&mut pair);
    pair.server_at = "203.0.113.77:1234".parse().unwrap();
    far.write(b"from elsewhere");
    pair.run_for(SECOND);
    assert_eq!(near.read(), b"from elsewhere");
    near.write(b"to there");
    pair.run_for(SECOND);
    assert_eq!(far.read(), b"to there");
    pair.client_at = "[2001:db8::c]:5".parse().unwrap();
    near.write(b"hello again");
    pair.run_for(SECOND);
    assert_eq!(far.read(), b"hello again");
    far.write(b"I see");
    pair.run_for(SECOND);
    assert_eq!(near.read(), b"I see");
    assert_eq!(pair.client.counter("wireguard.handshakes"), 1);
}

#[test]
fn hundreds_of_connections_at_once_each_get_their_own_bytes() {
    let mut pair = pair();
    pair.delay = SECOND / 50;
    let near: Vec<_> = (0..500u32)
        .map(|number| {
            let stream = pair.dial(None).expect("dialled");
            stream.write(&number.to_be_bytes());
            stream.write(&Random(number.into()).bytes(20_000));
            stream.close();
            stream
        })
        .collect();
    pair.run_for(10 * SECOND);
    let far = pair.server.host.app.streams().to_vec();
    assert_eq!(far.len(), near.len());
    for stream in &far {
        let bytes = stream.read();
        let (number, rest) = bytes.split_first_chunk().expect("a number");
        let number = u32::from_be_bytes(*number);
        assert!(rest == Random(number.into()).bytes(20_000), "{number}");
        stream.write(&bytes);
        stream.close();
    }
    pair.run_for(10 * SECOND);
    for stream in &near {
        assert_eq!(stream.read().len(), 20_004);
        assert!(stream.finished());
    }
}

#[test]
fn a_path_of_a_hundred_milliseconds_is_filled() {
    let mut pair = pair();
    pair.delay = SECOND / 20;
    let (near, far) = connected(&mut pair);
    let bytes = 32 << 20;
    for (from, to) in [(&near, &far), (&far, &near)] {
        let began = pair.now();
        from.write(&vec![7; bytes]);
        let mut received = 0;
        while received < bytes {
            pair.run_for(SECOND / 100);
            received += to.read().len();
            assert!(pair.now() - began < 60 * SECOND, "{received} bytes");
        }
        let rate = bytes as f64 / (pair.now() - began).as_secs_f64();
        // 80 Mbit/s.
        assert!(rate > 10e6, "{rate:.0} bytes a second");
    }
}

/// The error of a connection dialled now, the time until it, and the log.
fn failure(pair: &mut Pair) -> (ErrorCode, Duration, Vec<String>) {
    let stream = pair.dial(None).expect("dialled");
    let began = pair.now();
    while stream.reset().is_none() && pair.now() - began < 120 * SECOND {
        pair.run_for(SECOND / 10);
    }
    let reason = stream.reset().expect("it fails");
    (reason, pair.now() - began, warnings(pair))
}

/// The client's warnings to its user.
fn warnings(pair: &Pair) -> Vec<String> {
    let logs = pair.client.host.logs.iter();
    let warnings = logs.filter(|(level, _)| *level == Level::Warn);
    warnings.map(|(_, text)| text.clone()).collect()
}

#[test]
fn a_wrong_preshared_key_is_told_from_silence() {
    let psk = base64(&[5; 32]);
    let mut pair = pair_with(&format!("PresharedKey = {psk}"), "");
    let key = public_text(support::SERVER_KEY);
    let expected = format!(
        "peer {key} at {SERVER} answers, but its handshake is not valid: check its PublicKey and \
         the PresharedKey, which must match the peer's configuration"
    );
    for _ in 0..3 {
        let (reason, time, warnings) = failure(&mut pair);
        assert_eq!(reason, ErrorCode::Other(expected.clone()));
        assert!(time < 20 * SECOND, "{time:?}");
        assert_eq!(warnings, std::slice::from_ref(&expected));
    }
    assert!(!expected.contains(&psk));
}

#[test]
fn whoever_does_not_answer_is_said_not_to() {
    let server = support::server_config(&peer_config(CLIENT_KEY, "AllowedIPs = 10.0.0.1/32"));
    for (cut, own, theirs) in [
        (true, CLIENT_KEY, support::SERVER_KEY),
        // Either side does not know the other's key.
        (false, 7, support::SERVER_KEY),
        (false, CLIENT_KEY, 77),
    ] {
        let mut pair = Pair::new(&client_config(own, theirs), &server, Outer::Datagrams);
        pair.cut = cut;
        let (reason, time, warnings) = failure(&mut pair);
        assert_eq!(reason, ErrorCode::Timeout);
        assert!(time < 20 * SECOND, "{time:?}");
        let (own, theirs) = (public_text(own), public_text(theirs));
        let expected = format!(
            "peer {theirs} at {SERVER} does not answer: check that it is running, that its \
             PublicKey is right, and that it knows our public key {own}"
        );
        assert_eq!(warnings, [expected]);
    }
}

#[test]
fn who_waits_for_a_peer_whose_machine_says_that_nobody_listens_waits_no_longer() {
    let mut pair = pair();
    pair.cut = true;
    let stream = pair.dial(None).expect("dialled");
    pair.run_for(SECOND / 10);
    // A report from another machine.
    pair.client
        .host
        .report_unreachable("203.0.113.5".parse().unwrap());
    pair.run_for(2 * SECOND);
    assert_eq!(stream.reset(), None);
    pair.client
        .host
        .report_unreachable("192.0.2.1".parse().unwrap());
    pair.run_for(3 * SECOND / 2);
    let key = public_text(support::SERVER_KEY);
    let expected =
        format!("peer {key} is unreachable: nothing listens at {SERVER} (ICMP port unreachable)");
    assert_eq!(stream.reset(), Some(ErrorCode::Other(expected.clone())));
    assert_eq!(warnings(&pair), std::slice::from_ref(&expected));
    // Calls continue, and later connections succeed.
    pair.cut = false;
    pair.run_for(10 * SECOND);
    connected(&mut pair);
}

#[test]
fn what_works_is_not_ended_by_who_says_that_nobody_listens() {
    let mut pair = pair();
    let (near, far) = connected(&mut pair);
    for _ in 0..200 {
        pair.client
            .host
            .report_unreachable("192.0.2.1".parse().unwrap());
        near.write(b"on");
        pair.run_for(SECOND);
        assert_eq!(far.read(), b"on");
    }
    assert_eq!(near.reset(), None);
    let another = pair.dial(None).expect("dialled");
    pair.client
        .host
        .report_unreachable("192.0.2.1".parse().unwrap());
    pair.run_for(2 * SECOND);
    assert_eq!(another.reset(), None);
    assert_eq!(warnings(&pair), Vec::<String>::new());
}

#[test]
fn a_peer_that_was_away_is_missed_anew_the_next_time() {
    let mut pair = pair();
    for count in 1..=3 {
        pair.cut = true;
        pair.run_for(600 * SECOND);
        let (reason, _, warnings) = failure(&mut pair);
        assert_eq!(reason, ErrorCode::Timeout);
        assert_eq!(warnings.len(), count);
        pair.cut = false;
        pair.run_for(10 * SECOND);
        connected(&mut pair);
    }
}

#[test]
fn the_path_is_measured() {
    let mut pair = pair();
    pair.delay = SECOND / 25;
    let (near, far) = connected(&mut pair);
    let of_client = |pair: &Pair, name: &str| pair.client.counter(&format!("wireguard.{name}"));
    assert_eq!(of_client(&pair, "round_trips"), 1);
    assert_eq!(of_client(&pair, "round_trip_microseconds"), 80_000);
    assert_eq!(
        of_client(&pair, "packets_expected"),
        of_client(&pair, "packets_received")
    );
    pair.loses = Some(20);
    // This holds beyond a change of keys, too.
    for _ in 0..300 {
        far.write(&[1; 20_000]);
        pair.run_for(SECOND);
        near.read();
    }
    let expected = of_client(&pair, "packets_expected");
    let missing = expected - of_client(&pair, "packets_received");
    assert!(expected > 3000, "{expected}");
    let share = missing as f64 / expected as f64;
    assert!((0.045..0.055).contains(&share), "{missing} of {expected}");
    assert_eq!(of_client(&pair, "round_trips"), 3);
    // A handshake that was sent twice allows no measurement.
    pair.cut = true;
    pair.run_for(600 * SECOND);
    pair.dial(None).unwrap();
    pair.run_for(6 * SECOND);
    pair.cut = false;
    pair.run_for(10 * SECOND);
    assert_eq!(of_client(&pair, "handshakes"), 4);
    assert_eq!(of_client(&pair, "round_trips"), 3);
}
