//! UDP ASSOCIATE: of clients, and at a proxy.

mod support;

use std::time::Duration;

use support::{LOCAL, StreamEnd, World};
use watm_core::{ErrorCode, Level};

const CLIENT: &str = "198.51.100.7:700";
const ASSOCIATE: &[u8] = &[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0];

/// A datagram to or from 192.0.2.9:53, and to or from example.com:53.
fn to_address(payload: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 1, 192, 0, 2, 9, 0, 53], payload].concat()
}

fn to_name(payload: &[u8]) -> Vec<u8> {
    [&b"\0\0\0\x03\x0bexample.com\0\x35"[..], payload].concat()
}

/// An association of a client at 198.51.100.7.
fn associated(world: &mut World) -> StreamEnd {
    let control = world.accept();
    world.say(&control, ASSOCIATE);
    assert_eq!(control.read(), [5, 0, 5, 0, 0, 1, 192, 0, 2, 1, 4, 56]);
    control
}

#[test]
fn datagrams_become_flows_and_answers_return() {
    let mut world = World::new("");
    let control = associated(&mut world);
    world.arrive(CLIENT, &to_address(b"one"));
    world.arrive(CLIENT, &to_address(b"two"));
    world.arrive(CLIENT, &to_name(b"three"));
    let flows = world.host.application.flows().to_vec();
    let [address, name] = flows.as_slice() else {
        panic!("{} flows", flows.len());
    };
    assert_eq!(address.read(), [b"one", b"two"]);
    assert_eq!(name.read(), [b"three"]);
    let info = address.info();
    assert_eq!(info.destination.to_string(), "192.0.2.9:53");
    assert_eq!(name.info().destination.to_string(), "example.com:53");
    assert_eq!(
        (info.source.to_string().as_str(), info.peer),
        (CLIENT, None)
    );
    assert_eq!(
        info.underlay,
        Some((CLIENT.parse().unwrap(), LOCAL.parse().unwrap()))
    );

    address.write(b"answer");
    name.write(b"");
    world.run();
    let expected =
        [to_address(b"answer"), to_name(b"")].map(|datagram| (CLIENT.to_owned(), datagram));
    assert_eq!(world.sent(), expected);
    assert!(!control.gone());
    assert_eq!(world.counter("datagrams.associations"), 1);
}

#[test]
fn the_association_lives_as_long_as_its_connection() {
    let mut world = World::new("");
    let control = associated(&mut world);
    world.arrive(CLIENT, &to_address(b"one"));
    // Longer than any handshake, with bytes that mean nothing.
    world.advance(Duration::from_secs(30));
    world.say(&control, b"what?");
    world.arrive(CLIENT, &to_address(b"two"));
    let flow = world.host.application.flows()[0].clone();
    assert_eq!(flow.read(), [b"one", b"two"]);
    control.close();
    world.run();
    assert!(flow.gone() && control.gone());
    world.arrive(CLIENT, &to_address(b"three"));
    assert_eq!(world.host.application.flows().len(), 1);
    assert_eq!(world.counter("datagrams.refused"), 1);
    assert_eq!(world.counter("datagrams.associations"), 0);
    assert_eq!(world.counter("streams.completed"), 1);
}

#[test]
fn others_and_broken_datagrams_are_dropped() {
    let mut world = World::new("");
    world.arrive(CLIENT, &to_address(b"before"));
    let _control = associated(&mut world);
    world.arrive("198.51.100.8:700", &to_address(b"another host"));
    world.arrive(CLIENT, &to_address(b"first"));
    world.arrive("198.51.100.7:701", &to_address(b"another port"));
    let header = to_address(b"");
    for length in 0..header.len() {
        world.arrive(CLIENT, &header[..length]);
    }
    world.arrive(CLIENT, &[0, 0, 0, 1, 192, 0, 2, 9, 0, 0, 1]);
    world.arrive(CLIENT, b"\0\0\0\x03\x03a/b\0\x35x");
    assert_eq!(
        world.counter("datagrams.refused"),
        3 + header.len() as u64 + 2
    );
    let mut fragment = to_address(b"part");
    for number in [1, 0x81] {
        fragment[2] = number;
        world.arrive(CLIENT, &fragment);
    }
    assert_eq!(world.counter("datagrams.fragments"), 2);
    assert_eq!(world.host.application.flows().len(), 1);
    assert_eq!(world.host.application.flows()[0].read(), [b"first"]);
    assert!(world.sent().is_empty());
    assert!(
        world
            .host
            .logs
            .iter()
            .all(|(level, _)| *level <= Level::Debug)
    );
}

#[test]
fn a_user_is_the_peer_of_datagrams() {
    let mut world = World::new(r#"{"users": [{"name": "alice", "password": "secret"}]}"#);
    let control = world.accept();
    world.say(&control, b"\x05\x01\x02\x01\x05alice\x06secret");
    // The port that the client announces.
    world.say(&control, &[5, 3, 0, 1, 0, 0, 0, 0, 2, 188]);
    world.arrive("198.51.100.7:699", &to_address(b"no"));
    world.arrive(CLIENT, &to_address(b"yes"));
    let [flow] = world.host.application.flows() else {
        panic!("not one flow");
    };
    assert_eq!(flow.info().peer.as_deref(), Some("alice"));
    assert_eq!(flow.read(), [b"yes"]);
}

#[test]
fn the_answer_has_the_address_that_clients_can_reach() {
    for (config, client, expected) in [
        ("", "198.51.100.7:5", &[1, 192, 0, 2, 1, 4, 56][..]),
        (
            r#"{"udp_address": "203.0.113.5"}"#,
            "198.51.100.7:5",
            &[1, 203, 0, 113, 5, 4, 56],
        ),
        (
            r#"{"udp_address": "::"}"#,
            "198.51.100.7:5",
            &[1, 0, 0, 0, 0, 4, 56],
        ),
        (
            r#"{"udp_address": "0.0.0.0"}"#,
            "[2001:db8::7]:5",
            &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 56],
        ),
    ] {
        let mut world = World::new(config);
        let control = world.accept_from(client);
        world.say(&control, ASSOCIATE);
        assert_eq!(
            control.read(),
            [&[5, 0, 5, 0, 0], expected].concat(),
            "{config}"
        );
    }
}

#[test]
fn a_refused_flow_costs_its_datagram_alone() {
    let mut world = World::new("");
    let control = associated(&mut world);
    world.host.application.refuse = Some(ErrorCode::AccessDenied);
    world.arrive(CLIENT, &to_address(b"no"));
    world.host.application.refuse = None;
    world.arrive(CLIENT, &to_address(b"yes"));
    assert_eq!(world.host.application.flows()[0].read(), [b"yes"]);
    assert_eq!(world.counter("datagrams.dropped"), 1);
    assert!(!control.gone());
}

#[test]
fn an_idle_flow_ends_and_the_association_stays() {
    let mut world = World::new(r#"{"udp_idle_timeout": 20}"#);
    let control = associated(&mut world);
    world.arrive(CLIENT, &to_address(b"one"));
    world.advance(Duration::from_secs(15));
    let flow = world.host.application.flows()[0].clone();
    flow.write(b"answer");
    world.run();
    world.advance(Duration::from_secs(15));
    assert!(!flow.gone());
    world.advance(Duration::from_secs(6));
    assert!(flow.gone() && !control.gone());
    world.arrive(CLIENT, &to_address(b"two"));
    assert_eq!(world.host.application.flows()[1].read(), [b"two"]);
}

#[test]
fn one_association_has_a_bound_of_flows() {
    let mut world = World::new("");
    let _control = associated(&mut world);
    for number in 0..1025_u16 {
        let [high, low] = (number + 1).to_be_bytes();
        world.arrive(CLIENT, &[0, 0, 0, 1, 192, 0, 2, 9, high, low]);
    }
    assert_eq!(world.host.application.flows().len(), 1024);
    assert_eq!(world.counter("datagrams.dropped"), 1);
}

#[test]
fn a_swap_ends_associations_and_streams_go_on() {
    let mut world = World::new("");
    let control = associated(&mut world);
    world.arrive(CLIENT, &to_address(b"one"));
    let stream = world.accept();
    world.say(
        &stream,
        b"\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x09\x00\x50",
    );
    let mut next = world.replaced("");
    world.run();
    assert!(control.gone() && world.host.application.flows()[0].gone());
    world.say(&stream, b"still");
    assert_eq!(world.host.application.streams()[0].read(), b"still");
    stream.close();
    world.host.application.streams()[0].close();
    assert_eq!(world.run(), watm_core::Wakeup::Finished);
    associated(&mut next);
    next.arrive(CLIENT, &to_address(b"two"));
    assert_eq!(next.host.application.flows()[0].read(), [b"two"]);
}

const PROXY: &str = r#"{"server": "192.0.2.80:1080"}"#;
const RELAY: &str = "192.0.2.80:9000";

/// The proxy grants an association with this address in the answer.
fn grant(world: &mut World, control: &StreamEnd, address: &[u8]) {
    assert_eq!(control.read(), [5, 1, 0]);
    world.say(control, &[5, 0]);
    assert_eq!(control.read(), [5, 3, 0, 1, 0, 0, 0, 0, 0, 0]);
    world.say(control, &[&[5, 0, 0], address].concat());
}

#[test]
fn a_flow_goes_through_the_proxys_relay() {
    for address in [
        &[1, 192, 0, 2, 80, 0x23, 0x28][..],
        &[1, 0, 0, 0, 0, 0x23, 0x28],
    ] {
        let mut world = World::new(PROXY);
        let (flow, control) = world.dial_datagrams("192.0.2.9:53").unwrap();
        flow.write(b"early");
        world.run();
        assert!(world.sent().is_empty(), "the relay is not known");
        grant(&mut world, &control, address);
        assert_eq!(world.sent(), [(RELAY.to_owned(), to_address(b"early"))]);
        world.arrive(RELAY, &to_address(b"answer"));
        assert_eq!(flow.read(), [b"answer"]);
        // Others are strangers, and so are answers of others through the relay.
        world.arrive("192.0.2.80:9001", &to_address(b"no"));
        world.arrive(RELAY, &[0, 0, 0, 1, 192, 0, 2, 10, 0, 53, 1]);
        assert!(flow.read().is_empty());
        assert_eq!(world.counter("datagrams.refused"), 2);
        flow.close(true);
        world.run();
        assert!(
            flow.gone() && control.gone(),
            "the association ends with the flow"
        );
        world.arrive(RELAY, &to_address(b"late"));
        assert_eq!(world.counter("datagrams.refused"), 3);
    }
}

#[test]
fn flows_to_names_are_told_apart() {
    let mut world = World::new(PROXY);
    let (one, control) = world.dial_datagrams("example.com:53").unwrap();
    grant(&mut world, &control, &[1, 0, 0, 0, 0, 0x23, 0x28]);
    // A proxy answers from the address that it has found.
    world.arrive(RELAY, &to_address(b"first"));
    assert_eq!(one.read(), [b"first"]);
    // Another association, with a relay of its own, or the same.
    let (two, control) = world.dial_datagrams("example.org:53").unwrap();
    grant(&mut world, &control, &[1, 0, 0, 0, 0, 0x23, 0x29]);
    world.arrive("192.0.2.80:9001", &to_address(b"second"));
    assert_eq!(
        (one.read().len(), two.read()),
        (0, vec![b"second".to_vec()])
    );
    let (three, control) = world.dial_datagrams("example.net:53").unwrap();
    grant(&mut world, &control, &[1, 0, 0, 0, 0, 0x23, 0x28]);
    world.arrive(RELAY, &to_address(b"whose?"));
    assert_eq!(world.counter("datagrams.refused"), 1);
    world.arrive(RELAY, &to_name(b"named"));
    assert_eq!(
        (one.read(), three.read().len()),
        (vec![b"named".to_vec()], 0)
    );
}

#[test]
fn the_name_of_a_proxy_is_looked_up() {
    let config = r#"{"server": "socks5://proxy.example:1080"}"#;
    for (address, found, relay) in [
        (
            &[1, 0, 0, 0, 0, 0x23, 0x28][..],
            Ok("192.0.2.80:9000"),
            Some(RELAY),
        ),
        (
            &[1, 192, 0, 2, 81, 0x23, 0x28],
            Ok("192.0.2.80:9000"),
            Some("192.0.2.81:9000"),
        ),
        (
            &[1, 192, 0, 2, 81, 0x23, 0x28],
            Err(ErrorCode::Timeout),
            Some("192.0.2.81:9000"),
        ),
        (
            &[1, 0, 0, 0, 0, 0x23, 0x28],
            Err(ErrorCode::NameUnresolvable),
            None,
        ),
    ] {
        let mut world = World::new(config);
        let (flow, control) = world.dial_datagrams("192.0.2.9:53").unwrap();
        flow.write(b"x");
        grant(&mut world, &control, address);
        assert_eq!(world.host.lookups, ["proxy.example:9000"]);
        assert!(world.sent().is_empty());
        world.answer_lookup(found);
        let sent = relay.map(|relay| (relay.to_owned(), to_address(b"x")));
        assert_eq!(world.sent(), Vec::from_iter(sent));
        assert_eq!(flow.gone(), relay.is_none());
    }
}

#[test]
fn a_refusal_ends_the_flow_and_is_logged_once() {
    let mut world = World::new(PROXY);
    for _ in 0..3 {
        let (flow, control) = world.dial_datagrams("192.0.2.9:53").unwrap();
        world.say(&control, &[5, 0]);
        world.say(&control, &[5, 7, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert!(flow.gone() && control.gone());
    }
    let warnings: Vec<_> = world
        .host
        .logs
        .iter()
        .filter(|(level, _)| *level == Level::Warn)
        .collect();
    let [(_, warning)] = warnings.as_slice() else {
        panic!("{warnings:?}");
    };
    assert_eq!(
        warning,
        "no UDP: the SOCKS5 proxy answered: command not supported (reply 7)"
    );
}

#[test]
fn the_end_of_the_association_ends_the_flow() {
    let mut world = World::new(PROXY);
    let (flow, control) = world.dial_datagrams("192.0.2.9:53").unwrap();
    grant(&mut world, &control, &[1, 0, 0, 0, 0, 0x23, 0x28]);
    control.close();
    world.run();
    assert!(flow.gone());
    let (flow, control) = world.dial_datagrams("192.0.2.9:53").unwrap();
    // A proxy that never answers.
    world.advance(Duration::from_secs(61));
    assert!(flow.gone() && control.gone());
}

#[test]
fn a_swap_ends_flows_of_the_application() {
    let mut world = World::new(PROXY);
    let (flow, control) = world.dial_datagrams("192.0.2.9:53").unwrap();
    let mut next = world.replaced(PROXY);
    assert_eq!(world.run(), watm_core::Wakeup::Finished);
    assert!(flow.gone() && control.gone());
    assert!(next.dial_datagrams("192.0.2.9:53").is_ok());
}

#[test]
fn datagrams_need_a_socket_and_a_proxy_that_carries_them() {
    let mut world = World::of_streams(PROXY);
    assert_eq!(
        world.dial_datagrams("192.0.2.9:53").err(),
        Some(ErrorCode::NotSupported)
    );
    let mut world = World::new(r#"{"server": "http://192.0.2.80:8080"}"#);
    assert_eq!(
        world.dial_datagrams("192.0.2.9:53").err(),
        Some(ErrorCode::NotSupported)
    );
    let mut world = World::new("");
    let missing = "server: missing; there is no proxy to connect to".to_owned();
    assert_eq!(
        world.dial_datagrams("192.0.2.9:53").err(),
        Some(ErrorCode::Other(missing))
    );
}
