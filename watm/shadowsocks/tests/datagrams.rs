//! Datagrams between a client and a server of this crate.

mod support;

use std::time::Duration;

use support::host::{Flow, LOCAL, World};
use support::{NOW, config, data, password};
use watm_core::ErrorCode;
use watm_shadowsocks::{Method, set_wall_clock};

const CLIENT: &str = "198.51.100.7:5000";
const TARGET: &str = "[2001:db8::1]:53";

/// A client of the server at [`LOCAL`], and that server.
fn both(method: Method) -> (World, World) {
    let client = config(method, r#", "server": "192.0.2.1", "server_port": 8388"#);
    (World::new(&client), World::new(&config(method, "")))
}

/// Delivers the client's datagrams to the server.
fn forward(client: &mut World, server: &mut World) -> Vec<Vec<u8>> {
    let sent: Vec<_> = client
        .sent()
        .into_iter()
        .map(|(_, datagram)| datagram)
        .collect();
    for datagram in &sent {
        server.arrive(CLIENT, datagram);
    }
    sent
}

/// Delivers the server's datagrams to the client.
fn back(server: &mut World, client: &mut World) -> Vec<Vec<u8>> {
    let sent = server.sent();
    for (to, datagram) in &sent {
        assert_eq!(to.to_string(), CLIENT);
        client.arrive(LOCAL, datagram);
    }
    sent.into_iter().map(|(_, datagram)| datagram).collect()
}

#[test]
fn datagrams_go_there_and_back_by_every_method() {
    for method in Method::ALL {
        let (mut client, mut server) = both(method);
        let flow = client.dial(TARGET).unwrap();
        for length in [0, 1, 512, 1400, 60_000] {
            client.say(&flow, &data(length));
            forward(&mut client, &mut server);
            let there = server.host.flows[0].clone();
            assert_eq!(there.received(), [data(length)], "{method}");
            server.say(&there, &data(length));
            back(&mut server, &mut client);
            assert_eq!(flow.received(), [data(length)], "{method}");
        }
        assert_eq!(server.host.flows.len(), 1);
        let info = server.host.flows[0].info.clone().unwrap();
        assert_eq!(info.source.to_string(), CLIENT);
        assert_eq!(info.destination.to_string(), TARGET);
        assert_eq!(info.peer, None);
    }
}

#[test]
fn nothing_is_taken_twice_or_damaged() {
    for method in [
        Method::Chacha20IetfPoly1305,
        Method::Blake3Aes128Gcm,
        Method::Blake3Chacha20Poly1305,
    ] {
        let (mut client, mut server) = both(method);
        let flow = client.dial(TARGET).unwrap();
        client.say(&flow, b"hello");
        let sent = forward(&mut client, &mut server);
        let there = server.host.flows[0].clone();
        assert_eq!(there.received(), [b"hello".to_vec()]);
        server.arrive(CLIENT, &sent[0]);
        assert_eq!(server.counter("datagrams.replays"), 1);
        for bit in 0..8 * sent[0].len() {
            let mut wrong = sent[0].clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            server.arrive(CLIENT, &wrong);
        }
        for length in 0..sent[0].len() {
            server.arrive(CLIENT, &sent[0][..length]);
        }
        assert!(
            there.received().is_empty() && server.sent().is_empty(),
            "{method}"
        );
        server.say(&there, b"world");
        let answers = back(&mut server, &mut client);
        assert_eq!(flow.received(), [b"world".to_vec()]);
        client.arrive(LOCAL, &answers[0]);
        assert_eq!(client.counter("datagrams.replays"), 1);
        for bit in 0..8 * answers[0].len() {
            let mut wrong = answers[0].clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            client.arrive(LOCAL, &wrong);
        }
        // The server's own datagrams are refused too.
        server.arrive(CLIENT, &answers[0]);
        assert!(flow.received().is_empty() && there.received().is_empty());
        assert_eq!(server.host.flows.len(), 1);
    }
}

#[test]
fn the_next_generation_takes_nothing_twice_and_goes_on() {
    for method in Method::ALL {
        let (mut client, mut first) = both(method);
        let flow = client.dial(TARGET).unwrap();
        let mut sent = Vec::new();
        for text in [b"one", b"two"] {
            client.say(&flow, text);
            sent.extend(forward(&mut client, &mut first));
        }
        let there = first.host.flows[0].clone();
        let mut next = World::replacing(&config(method, ""), &mut first);
        // A third one follows before the client sends anything: the inherited memory is handed on.
        let mut last = World::replacing(&config(method, ""), &mut next);
        for datagram in &sent {
            last.arrive(CLIENT, datagram);
        }
        assert_eq!(last.counter("datagrams.replays"), 2, "{method}");
        assert!(last.host.flows.is_empty(), "{method}");
        // New datagrams are accepted and answered.
        client.say(&flow, b"three");
        forward(&mut client, &mut last);
        let here = last.host.flows[0].clone();
        assert_eq!(here.received(), [b"three".to_vec()], "{method}");
        last.say(&here, b"new");
        back(&mut last, &mut client);
        // Earlier questions are answered too.
        first.say(&there, b"old");
        back(&mut first, &mut client);
        assert_eq!(flow.received(), [b"new".to_vec(), b"old".to_vec()]);
    }
}

#[test]
fn what_was_dialled_ends_where_its_answers_would_come_to_another() {
    for method in [Method::Aes256Gcm, Method::Blake3Aes256Gcm] {
        let (mut client, mut server) = both(method);
        let flow = client.dial(TARGET).unwrap();
        client.say(&flow, b"one");
        forward(&mut client, &mut server);
        let configuration = config(method, r#", "server": "192.0.2.1", "server_port": 8388"#);
        let mut next = World::replacing(&configuration, &mut client);
        assert!(flow.is_ended(), "{method}");
        let flow = next.dial(TARGET).unwrap();
        next.say(&flow, b"two");
        forward(&mut next, &mut server);
        let there = server.host.flows.last().unwrap().clone();
        server.say(&there, b"answer");
        back(&mut server, &mut next);
        assert_eq!(flow.received(), [b"answer".to_vec()], "{method}");
    }
}

#[test]
fn a_window_is_handed_over_for_as_long_as_its_datagrams_are_taken() {
    let method = Method::Blake3Aes128Gcm;
    let (mut client, mut first) = both(method);
    let flow = client.dial(TARGET).unwrap();
    client.say(&flow, b"one");
    let sent = forward(&mut client, &mut first);
    let mut next = World::replacing(&config(method, ""), &mut first);
    // Only its time keeps it out then, and the time stands still here.
    next.advance(Duration::from_secs(61));
    set_wall_clock(Some(NOW + 31));
    next.arrive(CLIENT, &sent[0]);
    assert_eq!(next.counter("datagrams.replays"), 0);
    assert_eq!(next.counter("datagrams.refused"), 1);
    assert!(next.host.flows.is_empty());
}

#[test]
fn a_session_of_2022_follows_its_client_and_no_other() {
    let (mut client, mut server) = both(Method::Blake3Aes256Gcm);
    let flow = client.dial(TARGET).unwrap();
    client.say(&flow, b"one");
    let first = forward(&mut client, &mut server);
    client.say(&flow, b"two");
    let second = client.sent().remove(0).1;
    // A repetition of datagrams does not move the session.
    server.arrive("203.0.113.9:9", &first[0]);
    let there = server.host.flows[0].clone();
    server.say(&there, b"x");
    assert_eq!(server.sent()[0].0.to_string(), CLIENT);
    server.arrive("198.51.100.7:5001", &second);
    server.say(&there, b"y");
    assert_eq!(server.sent()[0].0.to_string(), "198.51.100.7:5001");
    assert_eq!(server.host.flows.len(), 1, "it is the same session");
}

#[test]
fn packets_of_2022_may_overtake_each_other() {
    let (mut client, mut server) = both(Method::Blake3Aes128Gcm);
    let flow = client.dial(TARGET).unwrap();
    for number in 0..100 {
        client.say(&flow, &[number]);
    }
    let sent = client.sent();
    for (_, datagram) in sent.iter().rev().chain(&sent) {
        server.arrive(CLIENT, datagram);
    }
    let mut received = server.host.flows[0].received();
    received.sort();
    assert_eq!(
        received,
        (0..100).map(|number| vec![number]).collect::<Vec<_>>()
    );
    assert_eq!(server.counter("datagrams.replays"), 100);
}

#[test]
fn a_datagram_of_2022_is_taken_for_half_a_minute() {
    for (off, count) in [(-31, 0), (-30, 1), (30, 1), (31, 0)] {
        let (mut client, mut server) = both(Method::Blake3Chacha20Poly1305);
        let flow = client.dial(TARGET).unwrap();
        set_wall_clock(Some(NOW.saturating_add_signed(off)));
        client.say(&flow, b"hello");
        set_wall_clock(Some(NOW));
        forward(&mut client, &mut server);
        assert_eq!(server.host.flows.len(), count, "{off} seconds");
    }
}

#[test]
fn answers_of_2022_go_to_the_flow_that_asked() {
    let (mut client, mut server) = both(Method::Blake3Aes128Gcm);
    let flows: Vec<Flow> = ["a.example:53", "b.example:53", "192.0.2.9:53"]
        .iter()
        .map(|target| client.dial(target).unwrap())
        .collect();
    for (number, flow) in flows.iter().enumerate() {
        client.say(flow, &[number as u8]);
    }
    forward(&mut client, &mut server);
    for there in server.host.flows.clone() {
        let asked = there.received().remove(0);
        server.say(&there, &asked);
    }
    back(&mut server, &mut client);
    for (number, flow) in flows.iter().enumerate() {
        assert_eq!(flow.received(), [vec![number as u8]]);
    }
}

#[test]
fn users_of_datagrams_are_told_apart() {
    for method in [Method::Blake3Aes128Gcm, Method::Blake3Aes256Gcm] {
        let users = format!(
            r#", "users": [{{"name": "alice", "password": "{}"}}, {{"name": "bob", "password": "{}"}}]"#,
            password(method, 2),
            password(method, 3)
        );
        let mut server = World::new(&config(method, &users));
        for (seed, name) in [(2, "alice"), (3, "bob")] {
            let both = format!("{}:{}", password(method, 1), password(method, seed));
            let mut client = World::new(&format!(
                r#"{{"method": "{method}", "password": "{both}", "server": "192.0.2.1", "server_port": 8388}}"#
            ));
            let flow = client.dial(TARGET).unwrap();
            client.say(&flow, b"hello");
            forward(&mut client, &mut server);
            let there = server.host.flows.last().unwrap().clone();
            assert_eq!(there.info.as_ref().unwrap().peer.as_deref(), Some(name));
            server.say(&there, b"world");
            back(&mut server, &mut client);
            assert_eq!(flow.received(), [b"world".to_vec()]);
        }
        let stranger = config(method, r#", "server": "192.0.2.1", "server_port": 8388"#);
        let mut stranger = World::new(&stranger);
        let flow = stranger.dial(TARGET).unwrap();
        stranger.say(&flow, b"hello");
        forward(&mut stranger, &mut server);
        assert_eq!(server.host.flows.len(), 2);
    }
}

#[test]
fn what_is_idle_ends_and_is_forgotten() {
    let (mut client, mut server) = both(Method::Blake3Aes128Gcm);
    let flow = client.dial(TARGET).unwrap();
    client.say(&flow, b"hello");
    forward(&mut client, &mut server);
    let there = server.host.flows[0].clone();
    for _ in 0..3 {
        for world in [&mut client, &mut server] {
            world.advance(Duration::from_secs(200));
        }
        assert!(!there.is_ended() && !flow.is_ended(), "it is not idle");
        set_wall_clock(Some(NOW));
        server.say(&there, b"x");
        back(&mut server, &mut client);
    }
    for world in [&mut client, &mut server] {
        world.advance(Duration::from_secs(301));
        world.advance(Duration::from_secs(301));
    }
    assert!(there.is_ended() && flow.is_ended());
    assert_eq!(server.counter("datagrams.sessions"), 0);
}

#[test]
fn what_the_application_closes_ends() {
    let (mut client, mut server) = both(Method::Aes256Gcm);
    let flow = client.dial(TARGET).unwrap();
    client.say(&flow, b"hello");
    forward(&mut client, &mut server);
    let there = server.host.flows[0].clone();
    there.close();
    server.run(&[there.token]);
    assert!(there.is_ended());
    client.say(&flow, b"again");
    forward(&mut client, &mut server);
    assert_eq!(server.host.flows.len(), 2, "another flow");
}

#[test]
fn a_full_network_keeps_what_fits_and_loses_the_rest() {
    let (mut client, mut server) = both(Method::Chacha20IetfPoly1305);
    let flow = client.dial(TARGET).unwrap();
    client.say(&flow, b"hello");
    forward(&mut client, &mut server);
    let there = server.host.flows[0].clone();
    server.set_room(1);
    for number in 0..200 {
        server.say(&there, &[number; 1000]);
    }
    assert_eq!(server.sent().len(), 1);
    server.set_room(usize::MAX);
    server.run(&[there.token]);
    assert_eq!(server.sent().len(), 199, "what waited");
}

#[test]
fn an_application_that_takes_no_flow_costs_nothing() {
    let (mut client, mut server) = both(Method::Aes128Gcm);
    server.host.accepts = false;
    let flow = client.dial(TARGET).unwrap();
    client.say(&flow, b"hello");
    forward(&mut client, &mut server);
    assert_eq!(server.counter("datagrams.dropped"), 1);
    server.advance(Duration::from_secs(301));
    assert_eq!(server.counter("datagrams.sessions"), 0);
}

#[test]
fn a_servers_name_is_looked_up_and_nothing_is_lost_meanwhile() {
    let method = Method::Blake3Aes128Gcm;
    let named = config(method, r#", "server": "example.com", "server_port": 8388"#);
    let mut client = World::new(&named);
    let mut server = World::new(&config(method, ""));
    let flow = client.dial(TARGET).unwrap();
    client.say(&flow, b"hello");
    assert!(client.sent().is_empty(), "nobody knows where to");
    client.answer_lookup(Ok(LOCAL));
    forward(&mut client, &mut server);
    let there = server.host.flows[0].clone();
    assert_eq!(there.received(), [b"hello".to_vec()]);
    server.say(&there, b"world");
    back(&mut server, &mut client);
    assert_eq!(flow.received(), [b"world".to_vec()]);
    client.dial(TARGET).unwrap();
    assert_eq!(
        client.host.lookups,
        ["example.com:8388"],
        "the address is used again"
    );
    client.advance(Duration::from_secs(300));
    client.dial(TARGET).unwrap();
    assert_eq!(client.host.lookups.len(), 2);
    client.answer_lookup(Err(ErrorCode::Timeout));
    assert!(
        client.dial(TARGET).is_ok_and(|flow| !flow.is_ended()),
        "it was there before"
    );
}

#[test]
fn flows_end_where_nobody_knows_the_server() {
    let named = config(
        Method::Aes128Gcm,
        r#", "server": "example.com", "server_port": 8388"#,
    );
    let mut client = World::new(&named);
    let flow = client.dial(TARGET).unwrap();
    client.answer_lookup(Err(ErrorCode::NameUnresolvable));
    assert!(flow.is_ended());
    let again = client.dial(TARGET).unwrap();
    client.answer_lookup(Ok(LOCAL));
    client.say(&again, b"hello");
    assert_eq!(client.sent().len(), 1);
}

#[test]
fn datagrams_need_a_server_and_their_mode() {
    let none = World::new(&config(Method::Aes128Gcm, ""))
        .dial(TARGET)
        .err();
    assert!(matches!(none, Some(ErrorCode::Other(why)) if why.contains("server: missing")));
    let streams = r#", "server": "192.0.2.1", "server_port": 8388, "mode": "tcp_only""#;
    let error = World::new(&config(Method::Aes128Gcm, streams))
        .dial(TARGET)
        .err();
    assert_eq!(error, Some(ErrorCode::NotSupported));
}
