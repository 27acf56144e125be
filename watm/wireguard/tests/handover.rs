//! Sessions and handshakes, handed from one generation of a server to the next.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::inner::packets;
use support::line::{DATA, INITIATION, MINUTE, RESPONSE, network, one_peer, udp};
use support::{Client, Line, Talk, base64, server_config};
use watm_core::{Host, Transport};

#[test]
fn swaps_faster_than_a_handshake_leave_the_oldest_session_in_use() {
    let mut line = Line::with_client(network(0, 0));
    let mut talk = Talk::open(&mut line, 0, "10.9.8.7:80");
    talk.exchange(&mut line, 1000);
    for _ in 0..5 {
        line.swap(&one_peer()).unwrap();
        line.run_for(Duration::from_millis(10));
    }
    let mut new = Talk::open(&mut line, 0, "10.9.8.7:81");
    assert_eq!(new.generation, 5);
    talk.exchange(&mut line, 10_000);
    new.exchange(&mut line, 10_000);
    line.run_for(MINUTE);
    talk.exchange(&mut line, 10_000);
    let living: Vec<u32> = line.generations.iter().map(|g| g.number).collect();
    assert_eq!(living, [0, 5]);
}

#[test]
fn a_new_flow_needs_no_handshake_while_the_old_session_is_there() {
    let mut line = Line::with_client(network(0, 0));
    let mut old = Talk::open(&mut line, 0, "10.9.8.7:80");
    line.lost_kinds = vec![INITIATION, RESPONSE];
    line.swap(&one_peer()).unwrap();
    let mut new = Talk::open(&mut line, 0, "10.9.8.7:81");
    line.run_for(Duration::from_secs(8));
    old.exchange(&mut line, 100_000);
    new.exchange(&mut line, 100_000);
    assert_eq!(line.counter(1, "wireguard.handshakes"), 0);
    assert!(line.sent_by_others > 100, "the old one's session is used");
    // The loss ends, and the next complete handshake is enough.
    line.run_for(Duration::from_secs(10));
    line.lost_kinds.clear();
    old.exchange(&mut line, 10_000);
    new.exchange(&mut line, 10_000);
    assert!(line.counter(1, "wireguard.handshakes") > 0);
}

#[test]
fn no_generation_accepts_what_an_older_one_has_accepted() {
    let mut line = Line::with_client(network(0, 0));
    let mut initiations = Vec::new();
    for _ in 0..3 {
        let now = line.now();
        initiations.push(line.clients[0].handshake(now));
        line.run_for(Duration::from_secs(1));
    }
    for number in 1..=3 {
        line.swap(&one_peer()).unwrap();
        line.lost_kinds = vec![INITIATION];
        for initiation in &initiations {
            line.inject("203.0.113.1:1".parse().unwrap(), initiation);
            line.settle();
        }
        let replays = line.counter(number, "wireguard.dropped.replay");
        assert_eq!(replays, initiations.len() as u64, "generation {number}");
        assert_eq!(
            line.status().peers[0].endpoint,
            Some(line.clients[0].address)
        );
        line.lost_kinds.clear();
        if number < 3 {
            // A new one is accepted, and stays accepted.
            let now = line.now();
            initiations.push(line.clients[0].handshake(now));
            line.run_for(Duration::from_secs(1));
            assert!(line.counter(number, "wireguard.handshakes") > 0);
            line.run_for(Duration::from_secs(20));
        }
    }
}

#[test]
fn an_old_generation_ends_when_its_sessions_are_taken_over_or_after_15_seconds() {
    let mut line = Line::with_client(network(0, 0));
    line.send(0, &udp(2, 1, b"hello"));
    line.run_for(Duration::from_secs(1));
    line.generation(0).host.app.flows()[0].close(true);
    line.run_for(Duration::from_secs(1));
    line.swap(&one_peer()).unwrap();
    line.run_for(Duration::from_secs(4));
    assert!(line.lives(0));
    line.run_for(Duration::from_secs(3));
    assert!(!line.lives(0));

    // The second one gets no answer.
    line.clients[0].alive = false;
    line.swap(&one_peer()).unwrap();
    line.run_for(Duration::from_secs(14));
    assert!(line.lives(1));
    line.run_for(Duration::from_secs(3));
    assert!(!line.lives(1));
    // The third has nothing to wait for.
    line.run_for(10 * MINUTE);
    line.swap(&one_peer()).unwrap();
    line.settle();
    assert!(!line.lives(2));
}

#[test]
fn a_peer_that_has_not_seen_the_new_session_is_shown_it_again() {
    let mut line = Line::with_client(network(0, 0));
    line.send(0, &udp(2, 1, b"hello"));
    line.run_for(Duration::from_secs(1));
    let flow = line.generation(0).host.app.flows()[0].clone();
    line.swap(&one_peer()).unwrap();
    // The response arrives, and the keepalive that confirms it is lost.
    line.lost_kinds = vec![DATA];
    assert!(line.run_until(MINUTE, |line| {
        line.counter(1, "wireguard.handshakes") == 1
    }));
    line.lost_kinds.clear();
    let keepalives = line.counter(1, "wireguard.keepalives_sent");
    let mut sent = 0;
    flow.read();
    for _ in 0..30 {
        line.send(0, &udp(2, 1, b"one way"));
        sent += 1;
        line.run_for(Duration::from_secs(1));
    }
    assert_eq!(flow.read().len(), sent);
    assert_eq!(line.counter(1, "wireguard.handshakes"), 1);
    assert!(line.counter(1, "wireguard.keepalives_sent") > keepalives);
}

#[test]
fn after_a_roll_back_all_flows_go_on_and_replays_are_refused() {
    let mut line = Line::with_client(network(0, 0));
    let mut old = Talk::open(&mut line, 0, "10.9.8.7:80");
    old.exchange(&mut line, 10_000);
    // Swap before and after the sessions have moved.
    for wait in [0, 30, 900] {
        line.swap(&one_peer()).unwrap();
        line.run_for(Duration::from_millis(wait));
        let now = line.now();
        let accepted = line.clients[0].handshake(now);
        line.run_for(Duration::from_millis(100));
        line.roll_back();
        assert_eq!(line.serving, 0);
        line.settle();
        line.lost_kinds = vec![INITIATION];
        let replays = line.counter(0, "wireguard.dropped.replay");
        line.inject("203.0.113.1:1".parse().unwrap(), &accepted);
        line.settle();
        let after = line.counter(0, "wireguard.dropped.replay");
        assert_eq!(after, replays + 1);
        line.lost_kinds.clear();
        let mut new = Talk::open(&mut line, 0, "10.9.8.7:82");
        assert_eq!(new.generation, 0);
        old.exchange(&mut line, 10_000);
        new.exchange(&mut line, 10_000);
        new.close(&mut line);
    }
    // The next swap is like any other.
    line.swap(&one_peer()).unwrap();
    old.exchange(&mut line, 10_000);
    line.run_for(MINUTE);
    old.exchange(&mut line, 10_000);
}

#[test]
fn what_the_status_says_of_peers_does_not_begin_anew() {
    let mut line = Line::with_client(network(0, 0));
    let mut talk = Talk::open(&mut line, 0, "10.9.8.7:80");
    talk.exchange(&mut line, 10_000);
    line.run_for(Duration::from_secs(30));
    let mut before = line.status().peers;
    line.swap(&one_peer()).unwrap();
    // A generation makes no estimates from before its start.
    assert!(before[0].round_trip.take().is_some());
    before[0].loss_permille = None;
    assert_eq!(line.status().peers, before);
    line.run_for(Duration::from_secs(1));
    talk.exchange(&mut line, 10_000);
    let after = line.status().peers[0].clone();
    assert!(after.received_bytes >= before[0].received_bytes + 9_000);
    assert!(after.sent_bytes >= before[0].sent_bytes + 10_000);
    assert!(after.last_handshake < before[0].last_handshake);
}

#[test]
fn a_thousand_peers_are_called_a_few_at_a_time() {
    const PEERS: u16 = 1000;
    let key = |n: u16| {
        let mut key = [7; 32];
        key[1..3].copy_from_slice(&n.to_be_bytes());
        boringtun::x25519::StaticSecret::from(key)
    };
    let peers: String = (0..PEERS)
        .map(|n| {
            let public = boringtun::x25519::PublicKey::from(&key(n));
            let [high, low] = n.to_be_bytes();
            format!(
                "[Peer]\nPublicKey = {}\nAllowedIPs = 10.1.{high}.{low}/32\n",
                base64(public.as_bytes())
            )
        })
        .collect();
    let config = server_config(&("[Watm]\nHandshakesPerSecond = 10000\n".to_owned() + &peers));
    let mut line = Line::new(&config);
    for n in 0..PEERS {
        let mut client = Client::with_key(1, key(n), None);
        client.address = SocketAddr::new([198, 18, (n >> 8) as u8, n as u8].into(), 4000);
        let client = line.add_client(client);
        let source = SocketAddr::new([10, 1, (n >> 8) as u8, n as u8].into(), 5);
        line.send(
            client,
            &packets::udp(source, "192.168.0.1:9".parse().unwrap(), b"hello"),
        );
    }
    line.run_for(Duration::from_secs(1));
    assert_eq!(
        line.generation(0).host.app.flows().len(),
        usize::from(PEERS)
    );
    line.swap(&config).unwrap();
    let newest = line.newest();
    let mut calls = 0;
    loop {
        let before = newest.server.status(newest.host.now());
        newest.server.process(&[], &mut newest.host);
        let after = newest.server.status(newest.host.now());
        let sent = |status: &watm_core::Status| {
            let found = status.counters.iter();
            let mut named = found.filter(|(name, _)| *name == "wireguard.initiations_sent");
            named.next().unwrap().1
        };
        let begun = sent(&after) - sent(&before);
        assert!(begun <= 32, "{begun} handshakes begun in one call");
        if begun == 0 {
            break;
        }
        calls += 1;
    }
    assert_eq!(calls, usize::from(PEERS).div_ceil(32));
    line.run_for(Duration::from_secs(1));
    assert_eq!(line.counter(1, "wireguard.handshakes"), u64::from(PEERS));
}

#[test]
fn data_of_a_stranger_for_an_old_session_does_no_harm() {
    let mut line = Line::with_client(network(0, 0));
    let mut talk = Talk::open(&mut line, 0, "10.9.8.7:80");
    talk.exchange(&mut line, 1000);
    line.swap(&one_peer()).unwrap();
    let sent = line.clients[0].sent.iter().rev();
    let stolen = sent.clone().find(|sent| sent[0] == DATA).unwrap().clone();
    let mut forged = stolen.clone();
    forged[20] ^= 1;
    forged[8] = 0xff;
    for datagram in [stolen, forged] {
        line.inject("203.0.113.1:1".parse().unwrap(), &datagram);
        line.settle();
    }
    assert_eq!(line.counter(0, "wireguard.dropped.replay"), 1);
    assert_eq!(line.counter(0, "wireguard.dropped.not_authentic"), 1);
    assert_eq!(
        line.status().peers[0].endpoint,
        Some(line.clients[0].address)
    );
    talk.exchange(&mut line, 1000);
}

#[test]
fn a_peer_that_moves_before_its_session_does_is_found() {
    let mut line = Line::with_client(network(0, 0));
    let mut talk = Talk::open(&mut line, 0, "10.9.8.7:80");
    talk.exchange(&mut line, 1000);
    line.lost_kinds = vec![INITIATION];
    line.swap(&one_peer()).unwrap();
    line.clients[0].address = "203.0.113.77:7".parse().unwrap();
    talk.exchange(&mut line, 10_000);
    let moved = Some(line.clients[0].address);
    assert_eq!(line.status().peers[0].endpoint, moved);
    let underlay = |line: &mut Line| {
        let newest = line.newest();
        newest
            .host
            .app
            .streams()
            .last()
            .unwrap()
            .info()
            .underlay
            .unwrap()
            .0
    };
    let new = Talk::open(&mut line, 0, "10.9.8.7:81");
    assert_eq!(Some(underlay(&mut line)), moved);
    // The next initiation goes there.
    line.lost_kinds.clear();
    line.run_for(Duration::from_secs(6));
    assert_eq!(line.counter(1, "wireguard.handshakes"), 1);
    new.close(&mut line);
    talk.exchange(&mut line, 10_000);

    // A generation that may have to serve again learns of a later move, even if it is the last
    // message to it.
    let later = "203.0.113.78:8".parse::<SocketAddr>().unwrap();
    line.clients[0].address = later;
    line.send(0, &udp(2, 1, b"here"));
    let datagram = line.clients[0].sent.last().unwrap().clone();
    line.inject(later, &datagram);
    let newest = line.newest();
    let ready = newest.host.take_ready();
    newest.server.process(&ready, &mut newest.host);
    line.roll_back();
    assert_eq!(line.status().peers[0].endpoint, Some(later));
    line.run_for(Duration::from_secs(1));
    assert_eq!(line.counter(0, "wireguard.handshakes"), 2);
    talk.exchange(&mut line, 1000);
}
