//! Changes of the configuration while traffic flows.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::inner::packets;
use support::{Client, Sim, base64, peer_config, private_key, server_config};
use watm_core::Transport;

fn packet(client: u8) -> Vec<u8> {
    packets::udp(
        SocketAddr::new([10, 0, 0, client].into(), 5),
        "192.168.0.1:9".parse().unwrap(),
        b"hello",
    )
}

fn peer(number: u8) -> String {
    peer_config(number, &format!("AllowedIPs = 10.0.0.{number}/32"))
}

#[test]
fn peers_that_stay_keep_their_sessions_and_flows() {
    let mut sim = Sim::new(&server_config(&(peer(1) + &peer(2))));
    sim.add_client(Client::new(1));
    sim.add_client(Client::new(2));
    sim.send(0, &packet(1));
    sim.send(1, &packet(2));
    sim.settle();
    let flows = sim.host.app.flows().to_vec();
    assert_eq!(flows.len(), 2);

    // The second goes, a third comes; the first is last now, with a keepalive.
    let first = peer(1) + "PersistentKeepalive = 10\n";
    sim.reconfigure(&server_config(&(peer(3) + &first)))
        .unwrap();
    sim.add_client(Client::new(3));
    assert!(!flows[0].gone());
    assert!(flows[1].gone(), "the flow of a peer that is gone ends");
    let handshakes = sim.counter("wireguard.handshakes");
    flows[0].write(b"answer");
    sim.settle();
    assert_eq!(sim.clients[0].received.len(), 1);
    sim.send(0, &packet(1));
    sim.settle();
    assert_eq!(flows[0].read().len(), 2);
    assert_eq!(sim.counter("wireguard.handshakes"), handshakes);

    let no_session = sim.counter("wireguard.dropped.no_session");
    sim.send(1, &packet(2));
    sim.settle();
    assert_eq!(sim.counter("wireguard.dropped.no_session"), no_session + 1);
    sim.send(2, &packet(3));
    sim.settle();
    assert_eq!(sim.host.app.flows().len(), 3);

    // The new keepalive is in force.
    let keepalives = sim.counter("wireguard.keepalives_sent");
    sim.run_for(Duration::from_secs(25));
    assert!(sim.counter("wireguard.keepalives_sent") >= keepalives + 2);

    // The removed peer may come back.
    sim.reconfigure(&server_config(&(peer(1) + &peer(2))))
        .unwrap();
    let now = sim.now();
    sim.clients[1].handshake(now);
    sim.settle();
    sim.send(1, &packet(2));
    sim.settle();
    assert_eq!(sim.host.app.flows().len(), 4);
}

#[test]
fn another_preshared_key_ends_the_session() {
    let psk = [3; 32];
    let line = format!("PresharedKey = {}\n", base64(&psk));
    let mut sim = Sim::new(&server_config(&peer(1)));
    sim.add_client(Client::new(1));
    sim.send(0, &packet(1));
    sim.settle();
    sim.reconfigure(&server_config(&(peer(1) + &line))).unwrap();
    sim.send(0, &packet(1));
    sim.settle();
    assert_eq!(sim.counter("wireguard.dropped.no_session"), 1);
    sim.add_client(Client::with_psk(1, Some(psk)));
    sim.clients[1].address.set_port(1);
    sim.send(1, &packet(1));
    sim.settle();
    assert_eq!(sim.host.app.flows().len(), 2);
}

#[test]
fn another_private_key_ends_all_sessions() {
    let mut sim = Sim::new(&server_config(&peer(1)));
    sim.add_client(Client::new(1));
    sim.send(0, &packet(1));
    sim.settle();
    let other = base64(private_key(201).as_bytes());
    let config = format!("[Interface]\nPrivateKey = {other}\n{}", peer(1));
    sim.reconfigure(&config).unwrap();
    assert!(sim.host.app.flows()[0].gone());
    let now = sim.now();
    sim.clients[0].handshake(now);
    sim.settle();
    assert_eq!(sim.counter("wireguard.dropped.invalid_mac"), 1);
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let mut sim = Sim::new(&server_config(&peer(1)));
    sim.add_client(Client::new(1));
    sim.send(0, &packet(1));
    sim.settle();
    let before = sim.server.status(sim.now());
    let error = sim.reconfigure(&server_config("MTU = 1")).unwrap_err();
    assert!(error.to_string().starts_with("line 3: [Interface] MTU"));
    assert_eq!(sim.server.status(sim.now()), before);
    sim.host.app.flows()[0].write(b"answer");
    sim.settle();
    assert_eq!(sim.clients[0].received.len(), 1);
}
