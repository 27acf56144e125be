//! Handshakes, keys, and their timers.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use boringtun::noise::TunnResult;
use support::inner::packets;
use support::{Client, Sim, peer_config, public_text, server_config};
use watm_core::{Level, Transport};

/// The first byte of WireGuard's messages.
const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const COOKIE: u8 = 3;
const DATA: u8 = 4;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A packet from `10.0.0.1`, distinct by its port.
fn packet(port: u16) -> Vec<u8> {
    let source = SocketAddr::new([10, 0, 0, 1].into(), port);
    packets::udp(source, address("192.168.0.1:9"), &port.to_be_bytes())
}

fn sim_with(psk: &str, interface: &str) -> Sim {
    let peer = peer_config(1, &format!("AllowedIPs = 0.0.0.0/0, ::/0\n{psk}"));
    Sim::new(&server_config(&(interface.to_owned() + "\n" + &peer)))
}

/// Returns true if packets of this client get through now.
fn gets_through(sim: &mut Sim, client: usize, port: u16) -> bool {
    let before = sim.host.app.flows().len();
    sim.send(client, &packet(port));
    sim.settle();
    sim.host.app.flows().len() > before
}

#[test]
fn a_handshake_is_two_messages_and_is_logged_once_as_information() {
    let mut sim = Sim::with_one_client();
    assert!(gets_through(&mut sim, 0, 1));
    let kinds: Vec<_> = sim.clients[0].sent.iter().map(|sent| sent[0]).collect();
    // The second is a keepalive, which boringtun sends at once.
    assert_eq!(kinds, [INITIATION, DATA, DATA]);
    assert_eq!(sim.clients[0].came_of_type(RESPONSE), 1);
    assert_eq!(sim.counter("wireguard.handshakes"), 1);
    assert_eq!(sim.counter("wireguard.keepalives_received"), 1);
    let connected = format!(
        "peer {} connected from {}",
        public_text(1),
        sim.clients[0].address
    );
    assert_eq!(sim.logged(Level::Info), [connected]);

    let now = sim.now();
    sim.run_for(Duration::from_secs(1));
    sim.clients[0].handshake(now);
    sim.settle();
    assert_eq!(sim.counter("wireguard.handshakes"), 2);
    assert_eq!(sim.logged(Level::Info).len(), 1);
}

#[test]
fn the_preshared_key_must_match() {
    let psk = [9; 32];
    let line = format!("PresharedKey = {}", support::base64(&psk));
    for (client_psk, right) in [(Some(psk), true), (Some([8; 32]), false), (None, false)] {
        let mut sim = sim_with(&line, "");
        sim.add_client(Client::with_psk(1, client_psk));
        assert_eq!(gets_through(&mut sim, 0, 1), right);
        assert_eq!(sim.counter("wireguard.handshakes"), u64::from(right));
    }
}

#[test]
fn a_stranger_gets_no_answer_and_no_record_above_debug() {
    let mut sim = Sim::with_one_client();
    sim.add_client(Client::new(3));
    assert!(!gets_through(&mut sim, 1, 1));
    assert!(sim.clients[1].came.is_empty());
    assert_eq!(sim.counter("wireguard.dropped.unknown_peer"), 1);

    let stranger = address("203.0.113.9:1");
    for (datagram, counter) in [
        (vec![], "wireguard.dropped.not_wireguard"),
        (
            b"GET / HTTP/1.1\r\n".to_vec(),
            "wireguard.dropped.not_wireguard",
        ),
        (vec![1, 0, 0, 0], "wireguard.dropped.not_wireguard"),
        (
            [vec![1, 0, 0, 0], vec![0; 144]].concat(),
            "wireguard.dropped.invalid_mac",
        ),
        (
            [vec![2, 0, 0, 0], vec![0; 88]].concat(),
            "wireguard.dropped.no_session",
        ),
        (
            [vec![3, 0, 0, 0], vec![0; 60]].concat(),
            "wireguard.dropped.no_session",
        ),
        (
            [vec![4, 0, 0, 0], vec![0; 60]].concat(),
            "wireguard.dropped.no_session",
        ),
    ] {
        let before = sim.counter(counter);
        sim.inject(stranger, &datagram);
        sim.settle();
        assert_eq!(sim.counter(counter), before + 1, "{datagram:?}");
    }
    assert!(sim.stray.is_empty());
    assert!(
        sim.host
            .logs
            .iter()
            .all(|(level, _)| *level <= Level::Debug)
    );
    let words = "Received invalid WireGuard packet from 203.0.113.9:1";
    assert!(
        sim.logged(Level::Debug)
            .iter()
            .any(|message| message == words)
    );
}

#[test]
fn replayed_handshakes_and_packets_are_dropped() {
    let mut sim = Sim::with_one_client();
    assert!(gets_through(&mut sim, 0, 1));
    let (at, elsewhere) = (sim.clients[0].address, address("203.0.113.9:1"));
    let sent = sim.clients[0].sent.clone();
    for (count, datagram) in sent.iter().enumerate() {
        sim.inject(elsewhere, datagram);
        sim.settle();
        assert_eq!(sim.counter("wireguard.dropped.replay"), count as u64 + 1);
    }
    assert!(sim.stray.is_empty(), "no answer to a replay");
    let status = sim.server.status(sim.now());
    assert_eq!(status.peers[0].endpoint, Some(at), "and no roaming");
    assert!(gets_through(&mut sim, 0, 2));
}

#[test]
fn tampered_datagrams_are_dropped_whichever_bit_it_is() {
    let mut sim = Sim::with_one_client();
    assert!(gets_through(&mut sim, 0, 1));
    let now = sim.now();
    sim.clients[0].send(&packet(2), now);
    let datagram = sim.clients[0].sent.last().unwrap().clone();
    let now = sim.now();
    sim.clients[0].up.due(now); // it is not delivered
    let flows = sim.host.app.flows().len();
    for bit in 0..datagram.len() * 8 {
        let mut tampered = datagram.clone();
        tampered[bit / 8] ^= 1 << (bit % 8);
        sim.inject(address("203.0.113.9:1"), &tampered);
        sim.settle();
    }
    assert_eq!(sim.host.app.flows().len(), flows);
    assert!(sim.stray.is_empty());
    // The original is still accepted: none of the above was taken for it.
    let at = sim.clients[0].address;
    sim.inject(at, &datagram);
    sim.settle();
    assert_eq!(sim.host.app.flows().len(), flows + 1);
}

#[test]
fn the_endpoint_moves_with_an_authentic_packet_and_only_with_one() {
    let mut sim = Sim::with_one_client();
    assert!(gets_through(&mut sim, 0, 1));
    let home = sim.clients[0].address;
    let flow = sim.host.app.flows()[0].clone();

    // A stranger sends a forged packet of this session.
    let mut forged = sim.clients[0].sent.last().unwrap().clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    forged[8] += 1;
    sim.inject(address("203.0.113.9:1"), &forged);
    sim.settle();
    flow.write(b"still at home");
    sim.settle();
    assert_eq!(sim.clients[0].received.len(), 1);
    assert!(sim.stray.is_empty());
    assert_eq!(sim.counter("wireguard.roamed"), 0);

    // The client moves.
    sim.clients[0].address = address("[2001:db8:1::5]:777");
    assert!(gets_through(&mut sim, 0, 2));
    flow.write(b"found");
    sim.settle();
    assert_eq!(sim.clients[0].received.len(), 2);
    assert_eq!(sim.counter("wireguard.roamed"), 1);
    assert_ne!(sim.server.status(sim.now()).peers[0].endpoint, Some(home));
    // A flow opened from there reports the new address.
    let info = sim.host.app.flows().last().unwrap().info();
    assert_eq!(info.underlay.unwrap().0, address("[2001:db8:1::5]:777"));
}

/// The limit's share of one port of an address, and of a whole address.
const PORT_SHARE: u64 = 12;
const ADDRESS_SHARE: u64 = 15;
const LIMIT: u64 = 20;

/// A server with this limit, and `count` clients that have the peer's key and their own addresses.
fn limited(count: usize) -> Sim {
    let mut sim = sim_with("", "");
    let config = peer_config(1, "AllowedIPs = 0.0.0.0/0, ::/0")
        + &format!("[Watm]\nHandshakesPerSecond = {LIMIT}\n");
    sim.reconfigure(&server_config(&config)).unwrap();
    for number in 0..count {
        let mut client = Client::new(1);
        client.address = SocketAddr::new([198, 51, 100, number as u8].into(), 777);
        sim.add_client(client);
    }
    sim.settle();
    sim
}

/// Sixty handshakes of this client, which knows the server's public key. All but the first have the
/// same timestamp, so that they are refused as replays, after the work is done.
fn flood(sim: &mut Sim, client: usize) {
    let now = sim.now();
    for _ in 0..60 {
        sim.clients[client].handshake(now);
    }
    sim.settle();
}

#[test]
fn under_load_a_sender_proves_its_address_and_gets_in() {
    let mut sim = limited(1);
    flood(&mut sim, 0);
    assert_eq!(sim.counter("wireguard.cookies_sent"), 60 - PORT_SHARE);
    assert_eq!(sim.clients[0].came_of_type(COOKIE) as u64, 60 - PORT_SHARE);
    assert_eq!(sim.counter("wireguard.dropped.replay"), PORT_SHARE - 1);

    // The client is answered with the cookie, still within that second.
    sim.run_for(Duration::from_millis(100));
    let responses = sim.clients[0].came_of_type(RESPONSE);
    let now = sim.now();
    sim.clients[0].handshake(now);
    sim.settle();
    assert_eq!(sim.clients[0].came_of_type(RESPONSE), responses + 1);
    assert_eq!(sim.counter("wireguard.cookies_sent"), 60 - PORT_SHARE);

    // No cookie is needed in the next second.
    let port = sim.clients[0].address.port() + 1;
    let mut another = Client::new(1);
    another.address = SocketAddr::new(sim.clients[0].address.ip(), port);
    let another = sim.add_client(another);
    sim.run_for(Duration::from_secs(2));
    let now = sim.now();
    sim.clients[another].handshake(now);
    sim.settle();
    assert_eq!(sim.clients[another].came_of_type(COOKIE), 0);
    assert_eq!(sim.clients[another].came_of_type(RESPONSE), 1);
}

#[test]
fn a_flood_from_one_port_asks_no_other_client_for_a_cookie() {
    let mut sim = limited(2);
    // One client behind the same address, and one elsewhere.
    sim.clients[1].address = address("198.51.100.0:778");
    let mut elsewhere = Client::new(1);
    elsewhere.address = address("203.0.113.5:777");
    sim.add_client(elsewhere);
    flood(&mut sim, 0);
    assert!(sim.counter("wireguard.cookies_sent") > 0);
    for client in [1, 2] {
        sim.run_for(Duration::from_millis(20));
        let now = sim.now();
        sim.clients[client].handshake(now);
        sim.settle();
        assert_eq!(sim.clients[client].came_of_type(COOKIE), 0);
        assert_eq!(
            sim.clients[client].came_of_type(RESPONSE),
            1,
            "client {client}"
        );
    }
}

#[test]
fn a_flood_from_one_address_or_network_asks_no_other_for_a_cookie() {
    let of_network = |number: usize| format!("[2001:db8:1:2:{number:x}::9]:777");
    let of_address = |number: usize| format!("198.51.100.7:{}", 1000 + number);
    for place in [&of_network as &dyn Fn(usize) -> String, &of_address] {
        let mut sim = limited(11);
        for (number, client) in sim.clients.iter_mut().enumerate() {
            client.address = address(&place(number));
        }
        sim.clients[10].address = address("[2001:db8:1:3::9]:777");
        for client in 0..10 {
            flood(&mut sim, client);
        }
        assert_eq!(sim.counter("wireguard.cookies_sent"), 600 - ADDRESS_SHARE);
        sim.run_for(Duration::from_millis(20));
        let now = sim.now();
        sim.clients[10].handshake(now);
        sim.settle();
        assert_eq!(sim.clients[10].came_of_type(COOKIE), 0);
        assert_eq!(sim.clients[10].came_of_type(RESPONSE), 1);
    }
}

#[test]
fn a_flood_from_everywhere_is_asked_for_cookies() {
    let mut sim = limited(100);
    let now = sim.now();
    for client in 0..100 {
        sim.clients[client].handshake(now);
    }
    sim.settle();
    assert_eq!(sim.counter("wireguard.cookies_sent"), 100 - LIMIT);
}

#[test]
fn initiations_for_another_key_do_not_count() {
    let mut sim = limited(2);
    flood(&mut sim, 0);
    let mut wrong = sim.clients[0].sent[0].clone();
    wrong[120] ^= 1;
    sim.run_for(Duration::from_secs(2));
    let before = sim.counter("wireguard.cookies_sent");
    for _ in 0..1000 {
        sim.inject(address("198.51.100.1:777"), &wrong);
    }
    sim.settle();
    assert_eq!(sim.counter("wireguard.dropped.invalid_mac"), 1000);
    let now = sim.now();
    sim.clients[1].handshake(now);
    sim.settle();
    assert_eq!(sim.clients[1].came_of_type(RESPONSE), 1);
    assert_eq!(sim.counter("wireguard.cookies_sent"), before);
}

#[test]
fn far_too_many_handshakes_are_not_answered_even_with_a_cookie() {
    let mut sim = sim_with("", "[Watm]\nHandshakesPerSecond = 1\n");
    for number in 0..15 {
        let mut client = Client::new(1);
        client.address = SocketAddr::new([198, 51, 100, number].into(), 777);
        sim.add_client(client);
    }
    // Each but the very first gets a cookie, and proves its address with it.
    for client in 0..15 {
        for _ in 0..3 {
            let now = sim.now();
            sim.clients[client].handshake(now);
            sim.run_for(Duration::from_millis(1));
        }
    }
    assert_eq!(sim.counter("wireguard.cookies_sent"), 15);
    // Ten in all, and one of each address that has proved itself.
    let answered = 10;
    assert_eq!(
        sim.counter("wireguard.dropped.handshake_limit"),
        3 * 15 - 15 - answered
    );
}

#[test]
fn many_clients_in_turn_are_never_slowed_down() {
    let mut sim = Sim::with_one_client();
    for tunnel in 0..50u16 {
        sim.clients[0] = Client::new(1);
        // A new tunnel's timestamp must be later than the last one's, and its clock starts with the
        // wall clock.
        sim.run_for(Duration::from_millis(200));
        sim.clients[0].tunn = Client::new(1).tunn;
        let before = sim.now();
        assert!(sim.run_until(Duration::from_secs(30), |sim| {
            if gets_through(sim, 0, 100 + tunnel) {
                return true;
            }
            let now = sim.now();
            sim.clients[0].handshake(now);
            false
        }));
        assert!(
            sim.now() - before < Duration::from_secs(1),
            "tunnel {tunnel}"
        );
    }
    assert_eq!(sim.counter("wireguard.cookies_sent"), 0);
}

#[test]
fn keys_are_renewed_under_load_without_a_loss() {
    let mut sim = Sim::with_one_client();
    let mut sent = 0u16;
    assert!(gets_through(&mut sim, 0, 1));
    let flow = sim.host.app.flows()[0].clone();
    // A packet each way every tenth of a second, for nearly ten minutes.
    for _ in 0..5900 {
        flow.write(&sent.to_be_bytes());
        sim.send(0, &packet(1));
        sent += 1;
        sim.run_for(Duration::from_millis(100));
    }
    assert_eq!(sim.clients[0].received.len(), usize::from(sent));
    assert_eq!(flow.read().len(), usize::from(sent) + 1);
    // Handshakes at 0, 120, 240, 360 and 480 seconds.
    assert_eq!(sim.counter("wireguard.handshakes"), 5);
    let newest = sim.server.status(sim.now()).peers[0]
        .last_handshake
        .unwrap();
    assert!(newest < Duration::from_secs(121), "{newest:?}");
}

#[test]
fn a_packet_that_is_not_answered_is_followed_by_a_keepalive() {
    let mut sim = Sim::with_one_client();
    assert!(gets_through(&mut sim, 0, 1));
    sim.run_for(Duration::from_secs(1));
    assert!(gets_through(&mut sim, 0, 2));
    sim.run_for(Duration::from_secs(8));
    assert_eq!(sim.counter("wireguard.keepalives_sent"), 0);
    sim.run_for(Duration::from_secs(4));
    assert_eq!(sim.counter("wireguard.keepalives_sent"), 1);
    sim.run_for(Duration::from_secs(30));
    assert_eq!(sim.counter("wireguard.keepalives_sent"), 1);
}

#[test]
fn persistent_keepalives_come_at_their_interval() {
    let mut sim = sim_with("PersistentKeepalive = 25", "");
    sim.add_client(Client::new(1));
    assert!(gets_through(&mut sim, 0, 1));
    sim.run_for(Duration::from_secs(10));
    let (before, start) = (sim.clients[0].came_of_type(DATA), sim.now());
    let mut times = Vec::new();
    sim.run_until(Duration::from_secs(100), |sim| {
        if sim.clients[0].came_of_type(DATA) - before > times.len() {
            times.push((sim.now() - start).as_secs());
        }
        false
    });
    assert_eq!(times.len(), 4, "{times:?}");
    assert!(
        times
            .windows(2)
            .all(|pair| (25..=26).contains(&(pair[1] - pair[0]))),
        "{times:?}"
    );
}

#[test]
fn a_peer_with_an_endpoint_and_a_keepalive_is_called_and_called_again() {
    let client = Client::new(1);
    let mut sim = sim_with(
        &format!("PersistentKeepalive = 25\nEndpoint = {}", client.address),
        "",
    );
    sim.add_client(client);
    sim.clients[0].alive = false;
    sim.run_for(Duration::from_secs(600));
    let calls = sim.counter("wireguard.initiations_sent");
    // One every five seconds, less a pause when an attempt is given up after ninety.
    assert!((80..=121).contains(&calls), "{calls} calls");
    sim.clients[0].alive = true;
    sim.run_for(Duration::from_secs(40));
    assert_eq!(sim.counter("wireguard.handshakes"), 1);
    assert!(gets_through(&mut sim, 0, 1));
}

#[test]
fn a_session_is_forgotten_and_the_client_comes_back_after_an_hour() {
    let mut sim = Sim::with_one_client();
    assert!(gets_through(&mut sim, 0, 1));
    sim.run_for(Duration::from_secs(3600));
    assert_eq!(sim.counter("wireguard.sessions_expired"), 1);
    // At rest there are no datagrams and no timers.
    let received = sim.counter("wireguard.datagrams_received");
    sim.run_for(Duration::from_secs(600));
    assert_eq!(sim.counter("wireguard.datagrams_received"), received);
    for round in 0..3 {
        assert!(gets_through(&mut sim, 0, 2 + round));
        sim.run_for(Duration::from_secs(3600));
    }
    assert_eq!(sim.counter("wireguard.handshakes"), 4);
}

#[test]
fn an_answer_after_the_session_has_expired_calls_the_client() {
    let mut sim = Sim::with_one_client();
    assert!(gets_through(&mut sim, 0, 1));
    let stream = sim.host.app.flows()[0].clone();
    // The session ends after 180 s, the flow stays.
    for _ in 0..4 {
        sim.run_for(Duration::from_secs(50));
        stream.write(b"keeps the flow");
        // The client does not receive it.
        sim.clients[0].alive = false;
    }
    sim.clients[0].alive = true;
    sim.clients[0].received.clear();
    stream.write(b"are you there?");
    assert!(sim.run_until(Duration::from_secs(10), |sim| {
        sim.clients[0]
            .received
            .iter()
            .any(|packet| packets::read_udp(packet).2 == b"are you there?")
    }));
    assert!(sim.counter("wireguard.initiations_sent") > 0);
}

#[test]
fn a_client_that_is_silent_for_a_while_finds_its_session_as_it_was() {
    let mut sim = Sim::with_one_client();
    assert!(gets_through(&mut sim, 0, 1));
    // The session is old enough that boringtun's clock of attempts would have expired.
    for port in 2..110 {
        sim.run_for(Duration::from_secs(1));
        assert!(gets_through(&mut sim, 0, port));
    }
    let flow = sim.host.app.flows().last().unwrap().clone();
    sim.clients[0].alive = false;
    for _ in 0..30 {
        flow.write(b"anybody?");
        sim.run_for(Duration::from_secs(1));
    }
    assert!(
        sim.counter("wireguard.initiations_sent") >= 2,
        "we have called"
    );
    assert_eq!(sim.counter("wireguard.sessions_expired"), 0);
    // It is back with its old session, and is accepted at once.
    sim.clients[0].alive = true;
    assert!(gets_through(&mut sim, 0, 200));
    flow.write(b"welcome");
    sim.run_for(Duration::from_secs(6));
    assert!(
        sim.clients[0]
            .received
            .iter()
            .any(|packet| packets::read_udp(packet).2 == b"welcome")
    );
    assert_eq!(sim.counter("wireguard.dropped.no_session"), 0);
}

#[test]
fn a_client_that_is_silent_for_good_is_given_up() {
    let mut sim = Sim::with_one_client();
    assert!(gets_through(&mut sim, 0, 1));
    let flow = sim.host.app.flows()[0].clone();
    sim.clients[0].alive = false;
    for _ in 0..20 {
        flow.write(b"anybody?");
        sim.run_for(Duration::from_secs(1));
    }
    sim.run_for(Duration::from_secs(200));
    let calls = sim.counter("wireguard.initiations_sent");
    assert!((10..=20).contains(&calls), "{calls} calls");
    sim.run_for(Duration::from_secs(3600));
    assert_eq!(sim.counter("wireguard.initiations_sent"), calls);
    assert_eq!(sim.counter("wireguard.sessions_expired"), 1);
    // The client must find out that its session is gone.
    sim.clients[0].alive = true;
    sim.run_for(Duration::from_secs(1));
    assert!(gets_through(&mut sim, 0, 7));
}

#[test]
fn a_client_that_leaves_during_its_handshake_causes_no_warning() {
    let mut sim = sim_with("PersistentKeepalive = 5", "");
    sim.add_client(Client::new(1));
    let now = sim.now();
    sim.clients[0].handshake(now);
    sim.clients[0].alive = false;
    sim.run_for(Duration::from_secs(60));
    assert!(sim.counter("wireguard.initiations_sent") > 3);
    assert_eq!(sim.counter("wireguard.handshakes"), 0);
    assert_eq!(sim.logged(Level::Warn), [""; 0]);
}

#[test]
fn crossing_handshakes_end_in_a_session() {
    let client = Client::new(1);
    let mut sim = sim_with(
        &format!("PersistentKeepalive = 5\nEndpoint = {}", client.address),
        "",
    );
    sim.add_client(client);
    // Both sides begin a handshake at once.
    let now = sim.now();
    sim.clients[0].handshake(now);
    sim.settle();
    sim.run_for(Duration::from_secs(6));
    assert!(gets_through(&mut sim, 0, 1));
    let flow = sim.host.app.flows()[0].clone();
    flow.write(b"answer");
    sim.settle();
    assert_eq!(sim.clients[0].received.len(), 1);
}

#[test]
fn thousands_of_peers_each_have_their_own_session() {
    use boringtun::noise::Tunn;
    use boringtun::x25519::{PublicKey, StaticSecret};

    let key = |n: u32| {
        let mut bytes = [1; 32];
        bytes[8..12].copy_from_slice(&n.to_le_bytes());
        StaticSecret::from(bytes)
    };
    let peers = 2000u32;
    let config: String = (0..peers)
        .map(|n| {
            let public = support::base64(PublicKey::from(&key(n)).as_bytes());
            let [_, _, c, d] = n.to_be_bytes();
            format!("[Peer]\nPublicKey = {public}\nAllowedIPs = 10.1.{c}.{d}/32\n")
        })
        .collect();
    let mut sim = Sim::new(&server_config(&format!(
        "{config}[Watm]\nHandshakesPerSecond = 100000\n"
    )));
    let mut buffer = vec![0; 2000];
    for n in (0..peers).step_by(97) {
        let server = support::public_key(support::SERVER_KEY);
        let mut client = Client::new(1);
        client.tunn = Tunn::new(key(n), server, None, None, n, None);
        let [_, _, c, d] = n.to_be_bytes();
        client.address = SocketAddr::new([198, 51, c, d].into(), 9);
        let index = sim.add_client(client);
        let source = SocketAddr::new([10, 1, c, d].into(), 5);
        sim.send(index, &packets::udp(source, address("192.168.0.1:9"), &[1]));
        sim.settle();
        let flow = sim.host.app.flows().last().unwrap().clone();
        let public = PublicKey::from(&key(n));
        assert_eq!(flow.info().peer, Some(support::base64(public.as_bytes())));
        flow.write(&[2]);
        sim.settle();
        assert_eq!(sim.clients[index].received.len(), 1);
        let TunnResult::WriteToNetwork(_) = sim.clients[index].tunn.encapsulate(&[], &mut buffer)
        else {
            panic!("a session");
        };
    }
    assert_eq!(sim.counter("wireguard.peers"), u64::from(peers));
}

#[test]
fn a_call_answers_a_bounded_number_of_handshakes() {
    let mut sim = sim_with("", "[Watm]\nHandshakesPerSecond = 1000000\n");
    sim.add_client(Client::new(1));
    sim.settle();
    let mut handshakes = Vec::new();
    for _ in 0..400 {
        let now = sim.now();
        handshakes.push(sim.clients[0].handshake(now));
    }
    sim.settle();
    assert_eq!(sim.counter("wireguard.dropped.handshake_limit"), 400 - 256);
}
