//! The bad network that a configuration asks for.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::inner::packets;
use support::{Client, Sim, peer_config, server_config};

const SECOND: Duration = Duration::from_secs(1);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn with_network(network: &str) -> String {
    let peer = peer_config(1, "AllowedIPs = 0.0.0.0/0, ::/0");
    server_config(&format!("{peer}\n[Watm]\nNetwork = {network}\n"))
}

/// A server with this network, and a client with a session.
fn with_session(network: &str) -> Sim {
    let mut sim = Sim::new(&with_network("off"));
    sim.add_client(Client::new(1));
    question(&mut sim);
    sim.run_for(SECOND);
    assert_eq!(came(&sim), 1);
    sim.reconfigure(&with_network(network)).unwrap();
    sim
}

fn question(sim: &mut Sim) {
    let (from, to) = (address("10.0.0.2:5000"), address("10.9.8.7:53"));
    sim.send(0, &packets::udp(from, to, b"question"));
}

/// The number of questions that the application has.
fn came(sim: &Sim) -> usize {
    let flows = sim.host.app.flows();
    flows.first().map_or(0, |flow| flow.read().len())
}

#[test]
fn packets_take_their_delay_in_both_directions() {
    let mut sim = with_session("delay=100ms direction=from-peer, delay=50ms");
    question(&mut sim);
    sim.run_for(Duration::from_millis(95));
    assert_eq!(came(&sim), 0);
    sim.run_for(Duration::from_millis(10));
    assert_eq!(came(&sim), 1);

    sim.host.app.flows()[0].write(b"answer");
    sim.run_for(Duration::from_millis(45));
    assert!(sim.clients[0].received.is_empty());
    sim.run_for(Duration::from_millis(10));
    let answer = sim.clients[0].received.pop().expect("an answer");
    assert_eq!(packets::read_udp(&answer).2, b"answer");
}

#[test]
fn a_new_configuration_replaces_the_network_and_loses_no_packet_that_waits() {
    let mut sim = with_session("delay=30s");
    question(&mut sim);
    sim.run_for(SECOND);
    assert_eq!(came(&sim), 0);
    sim.reconfigure(&with_network("loss=100%")).unwrap();
    sim.run_for(Duration::from_millis(1));
    assert_eq!(came(&sim), 1);
    question(&mut sim);
    sim.run_for(SECOND);
    assert_eq!(came(&sim), 0);
    assert_eq!(sim.counter("network.lost"), 1);
    sim.reconfigure(&with_network("off")).unwrap();
    question(&mut sim);
    sim.settle();
    assert_eq!(came(&sim), 1);
}

#[test]
fn rules_name_peers_by_their_keys() {
    let other = support::public_text(2);
    let mut sim = with_session(&format!("peer={other} loss=100%"));
    question(&mut sim);
    sim.settle();
    assert_eq!(came(&sim), 1);
    let own = support::public_text(1);
    sim.reconfigure(&with_network(&format!("peer={own} loss=100%")))
        .unwrap();
    question(&mut sim);
    sim.run_for(SECOND);
    assert_eq!(came(&sim), 0);
}

#[test]
fn a_removed_peer_leaves_no_packets() {
    let mut sim = with_session("delay=100ms");
    question(&mut sim);
    sim.reconfigure(&server_config(&peer_config(2, "AllowedIPs = 10.0.0.9/32")))
        .unwrap();
    sim.run_for(SECOND);
    assert_eq!(came(&sim), 0);
}

#[test]
fn tcp_meets_the_rate_of_the_link() {
    let mut sim = Sim::new(&with_network("delay=20ms rate=8mbit queue=50"));
    sim.add_client(Client::new(1).with_stack(1420));
    let handle = sim.clients[0]
        .stack
        .as_mut()
        .unwrap()
        .connect(address("10.9.8.7:80"));
    assert!(sim.run_until(Duration::from_secs(10), |sim| {
        !sim.host.app.streams().is_empty()
    }));
    let stream = sim.host.app.streams()[0].clone();
    let data = vec![7; 2_000_000];
    stream.write(&data);
    let begun = sim.now();
    let mut came = 0;
    let done = sim.run_until(Duration::from_secs(60), |sim| {
        let socket = sim.clients[0].stack.as_mut().unwrap().socket(handle);
        if socket.can_recv() {
            came += socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap();
        }
        came == data.len()
    });
    assert!(done, "{came} bytes came");
    let seconds = Duration::from_nanos(sim.now().0 - begun.0).as_secs_f64();
    // Two megabytes take two seconds at 8 Mbit/s, and headers 4 % more.
    assert!((2.0..4.0).contains(&seconds), "{seconds} s");
}
