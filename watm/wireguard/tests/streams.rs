//! Peers whose datagrams come in a stream, each behind its length.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::inner::packets;
use support::{Client, Sim, peer_config, server_config};

fn sim(clients: u8) -> Sim {
    let peers = (1..=clients)
        .map(|number| peer_config(number, &format!("AllowedIPs = 10.0.0.{number}/32")));
    let mut sim = Sim::over_streams(&server_config(&peers.collect::<String>()));
    for number in 1..=clients {
        sim.add_client(Client::new(number));
    }
    sim
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Sends a question through a client's tunnel, and gets an answer.
fn ask(sim: &mut Sim, client: usize, port: u16) {
    let source = SocketAddr::new([10, 0, 0, client as u8 + 1].into(), port);
    let destination = address("10.9.8.7:53");
    sim.send(client, &packets::udp(source, destination, b"question"));
    sim.settle();
    let flow = sim.host.app.flows().last().expect("a flow").clone();
    assert_eq!(flow.info().source, source);
    let remote = sim.clients[client].address;
    assert_eq!(
        flow.info().underlay,
        Some((remote, address(support::SERVER)))
    );
    assert_eq!(flow.read(), [b"question"]);
    flow.write(b"answer");
    sim.settle();
    let packet = sim.clients[client].received.pop().expect("an answer");
    assert_eq!(packets::read_udp(&packet).2, b"answer");
}

#[test]
fn each_peer_has_its_own_stream() {
    let mut sim = sim(3);
    for (port, client) in (5000..).zip([0, 1, 2, 0, 2, 1]) {
        ask(&mut sim, client, port);
    }
}

#[test]
fn a_peer_that_connects_anew_goes_on_with_its_session() {
    let mut sim = sim(2);
    ask(&mut sim, 0, 5000);
    let remote = sim.clients[0].address;
    let streams = sim.host.streams.clone().expect("streams");
    let before = streams.connection(remote);
    before.close();
    sim.settle();
    assert!(before.gone());
    streams.forget(remote);
    sim.clients[0].address = address("203.0.113.9:6000");
    ask(&mut sim, 0, 5001);
    ask(&mut sim, 1, 5002);
}

#[test]
fn a_stream_of_something_else_costs_itself_alone() {
    let mut sim = sim(1);
    sim.inject(address("203.0.113.1:1"), b"GET / HTTP/1.1");
    sim.inject(address("203.0.113.2:2"), &[0; 1000]);
    sim.settle();
    ask(&mut sim, 0, 5000);
    let streams = sim.host.streams.clone().expect("streams");
    streams.connection(address("203.0.113.1:1")).abort();
    sim.settle();
    assert!(streams.connection(address("203.0.113.1:1")).gone());
    ask(&mut sim, 0, 5001);
}

#[test]
fn a_stream_that_takes_nothing_loses_datagrams_and_no_more() {
    let mut sim = sim(2);
    ask(&mut sim, 0, 5000);
    ask(&mut sim, 1, 5001);
    let stalled = sim.host.app.flows()[0].clone();
    let streams = sim.host.streams.clone().expect("streams");
    let remote = sim.clients[0].address;
    streams.connection(remote).set_room(0);
    streams.stall(Some(remote));
    for _ in 0..1000 {
        stalled.write(&[7; 1000]);
        sim.run_for(Duration::from_millis(1));
    }
    ask(&mut sim, 1, 5002);
    streams.connection(remote).set_room(usize::MAX);
    streams.stall(None);
    // Reading makes room, which the server is told.
    streams.take_sent();
    sim.settle();
    let came = sim.clients[0].received.len();
    assert!((100..300).contains(&came), "{came}");
    sim.clients[0].received.clear();
    ask(&mut sim, 0, 5003);
}
