//! Servers that replace each other while traffic flows.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::line::{INITIATION, MINUTE, any_address, network, one_peer, udp};
use support::{Client, Line, Talk, base64, peer_config, private_key, public_text, server_config};
use watm_core::{ConfigError, Destination, Transport};

#[test]
fn an_open_flow_goes_on_through_a_swap_and_a_new_one_is_the_new_generations() {
    let mut line = Line::with_client(network(0, 0));
    let mut old = Talk::open(&mut line, 0, "10.9.8.7:80");
    old.exchange(&mut line, 50_000);
    assert_eq!(line.swap(&one_peer()), Ok(1));
    // The session is still the old one's before any handshake is complete.
    let mut new = Talk::open(&mut line, 0, "10.9.8.7:81");
    assert_eq!((old.generation, new.generation), (0, 1));
    old.exchange(&mut line, 50_000);
    new.exchange(&mut line, 50_000);
    assert_eq!(line.counter(1, "wireguard.handshakes"), 1);

    // The old one lives with its flow, long after its session, and no longer.
    line.run_for(5 * MINUTE);
    old.exchange(&mut line, 50_000);
    new.exchange(&mut line, 50_000);
    assert!(line.lives(0));
    old.close(&mut line);
    line.run_for(Duration::from_secs(12));
    assert!(!line.lives(0));
    new.exchange(&mut line, 1000);
}

#[test]
fn ten_swaps_in_a_row_disturb_no_flow_over_a_bad_network() {
    let one_peer =
        || server_config(&("[Watm]\nUdpIdleTimeout = 600\n".to_owned() + &any_address(1)));
    let mut line = Line::new(&one_peer());
    line.add_client(Client::new(1).with_stack(1420).behind(network(10, 5)));
    let patience = Duration::from_secs(30);
    let mut talks = vec![Talk::open_within(&mut line, 0, "10.9.8.7:80", patience)];
    line.send(0, &udp(2, 7, b"0"));
    line.run_for(Duration::from_secs(1));
    let datagrams = line.generation(0).host.app.flows()[0].clone();
    for swap in 1..=10 {
        assert_eq!(line.swap(&one_peer()), Ok(swap));
        // Some swaps follow at once, some in the middle of a session's life, some later.
        line.run_for(Duration::from_millis(
            [0, 30, 1_000, 20_000, 130_000][swap as usize % 5],
        ));
        if swap % 3 == 0 {
            let to = format!("10.9.8.7:{}", 80 + swap);
            talks.push(Talk::open_within(&mut line, 0, &to, patience));
        }
        for talk in &mut talks {
            talk.exchange(&mut line, 20_000);
        }
        for _ in 0..10 {
            line.send(0, &udp(2, 7, b"again"));
            datagrams.write(b"answer");
        }
        line.run_for(Duration::from_millis(200));
        assert!(datagrams.read().len() >= 6 && !datagrams.gone());
    }
    let generations: Vec<u32> = talks.iter().map(|talk| talk.generation).collect();
    assert_eq!(generations, [0, 3, 6, 9]);
    // Those without flows are gone, and the others end with theirs.
    line.run_for(Duration::from_secs(20));
    let living: Vec<u32> = line.generations.iter().map(|g| g.number).collect();
    assert_eq!(living, [0, 3, 6, 9, 10]);
    for talk in talks {
        talk.close(&mut line);
    }
    datagrams.close(true);
    line.run_for(2 * MINUTE);
    assert_eq!(line.generations.len(), 1);
}

#[test]
fn a_peer_that_the_new_configuration_has_not_is_gone_everywhere() {
    let peer = |number: u8| peer_config(number, &format!("AllowedIPs = 10.0.0.{number}/32"));
    let psk = format!("PresharedKey = {}\n", base64(&[3; 32]));
    let mut line = Line::new(&server_config(&(peer(1) + &peer(2) + &peer(3))));
    for number in 1..=4 {
        line.add_client(Client::new(number));
    }
    for number in 1..=3 {
        line.send(number as usize - 1, &udp(number, 1, b"hello"));
    }
    line.settle();
    let flows = line.generation(0).host.app.flows().to_vec();
    assert_eq!(flows.len(), 3);
    // The first stays, the second goes, the third gets another key, and a fourth comes.
    let config = server_config(&(peer(1) + &peer(3) + &psk + &peer(4)));
    line.swap(&config).unwrap();
    line.settle();
    assert_eq!(
        flows.iter().map(|flow| flow.gone()).collect::<Vec<_>>(),
        [false, true, true]
    );
    for number in 1..=4 {
        line.send(number as usize - 1, &udp(number, 1, b"again"));
    }
    line.settle();
    assert_eq!(flows[0].read().len(), 2);
    let new = line.newest().host.app.flows().to_vec();
    assert_eq!(new.len(), 1);
    assert_eq!(new[0].info().peer, Some(public_text(4)));

    // A change in the serving generation reaches the older ones.
    let newest = line.newest();
    newest
        .server
        .reconfigure(server_config(&peer(4)).as_bytes(), &mut newest.host)
        .unwrap();
    line.run_for(Duration::from_secs(1));
    assert!(flows[0].gone());
    assert!(!line.lives(0));
}

#[test]
fn another_private_key_ends_all_flows_of_older_generations() {
    let mut line = Line::with_client(network(0, 0));
    let talk = Talk::open(&mut line, 0, "10.9.8.7:80");
    let key = base64(private_key(201).as_bytes());
    let config = format!("[Interface]\nPrivateKey = {key}\n{}", any_address(1));
    line.swap(&config).unwrap();
    line.run_for(Duration::from_secs(1));
    assert!(talk.stream.gone() && !line.lives(0));
}

#[test]
fn a_snapshot_of_something_else_is_refused_and_the_old_one_goes_on() {
    let mut line = Line::with_client(network(0, 0));
    let mut talk = Talk::open(&mut line, 0, "10.9.8.7:80");
    let whole = line.snapshot();
    let mut newer = whole.clone();
    newer[15] = 9;
    for (snapshot, what) in [
        (
            b"shadowsocks 1".to_vec(),
            "is not that of a WireGuard server",
        ),
        (newer, "is of version 9, but this module reads version 1"),
        (
            whole[..whole.len() - 1].to_vec(),
            "invalid or truncated at byte",
        ),
        ([whole.as_slice(), b"x"].concat(), "should end at byte"),
    ] {
        match line.swap_from(&one_peer(), snapshot) {
            Err(ConfigError::Other(why)) => assert!(why.contains(what), "{why}"),
            other => panic!("{other:?}"),
        }
        talk.exchange(&mut line, 1000);
    }
    // An empty snapshot is no error.
    line.swap_from(&one_peer(), Vec::new()).unwrap();
}

#[test]
fn full_mailboxes_cost_packets_and_nothing_else() {
    let mut line = Line::with_client(network(0, 0));
    let mut old = Talk::open(&mut line, 0, "10.9.8.7:80");
    line.office.set_room(8);
    line.swap(&one_peer()).unwrap();
    let mut new = Talk::open(&mut line, 0, "10.9.8.7:81");
    old.exchange(&mut line, 200_000);
    new.exchange(&mut line, 200_000);
    let lost = |line: &mut Line, number| line.counter(number, "wireguard.dropped.mail");
    assert!(
        lost(&mut line, 0) + lost(&mut line, 1) > 0,
        "boxes were full"
    );
    old.close(&mut line);
    line.run_for(MINUTE);
    assert!(!line.lives(0));
}

#[test]
fn connections_from_here_go_on_and_new_ones_need_no_handshake() {
    let peer = "AllowedIPs = 0.0.0.0/0\nEndpoint = 198.51.100.1:4001";
    let config = server_config(&("Address = 10.0.0.1/24\n".to_owned() + &peer_config(1, peer)));
    let mut line = Line::new(&config);
    line.add_client(Client::new(1).with_stack(1420).behind(network(0, 0)));
    let dial = |line: &mut Line, port: u16| {
        let to: SocketAddr = format!("10.0.0.2:{port}").parse().unwrap();
        let client = &mut line.clients[0];
        let handle = client.stack.as_mut().unwrap().listen(to);
        let newest = line.newest();
        let (end, stream) = newest.host.app.new_stream();
        let to = Destination::Address(to);
        let token = newest
            .server
            .dial(Some(&to), stream, &mut newest.host)
            .unwrap();
        end.set_token(token);
        Talk::dialled(line, 0, handle, end)
    };
    let mut old = dial(&mut line, 80);
    old.exchange(&mut line, 10_000);
    line.lost_kinds = vec![INITIATION];
    line.swap(&config).unwrap();
    let mut new = dial(&mut line, 81);
    new.exchange(&mut line, 10_000);
    old.exchange(&mut line, 10_000);
    line.lost_kinds.clear();
    line.run_for(MINUTE);
    new.exchange(&mut line, 10_000);
    old.exchange(&mut line, 10_000);
    let generation = line.generation(0);
    let (_, stream) = generation.host.app.new_stream();
    let refused = generation.server.dial(None, stream, &mut generation.host);
    assert!(refused.is_err(), "who drains does not dial");
}

#[test]
fn a_generation_that_begins_anew_from_an_old_snapshot_learns_the_rest() {
    let mut line = Line::with_client(network(0, 0));
    let mut old = Talk::open(&mut line, 0, "10.9.8.7:80");
    old.exchange(&mut line, 1000);
    let snapshot = line.snapshot();
    // This flow opens between the snapshot and the end of service.
    let mut late = Talk::open(&mut line, 0, "10.9.8.7:81");
    line.swap_from(&one_peer(), snapshot.clone()).unwrap();
    late.exchange(&mut line, 1000);
    let now = line.now();
    let accepted = line.clients[0].handshake(now);
    line.run_for(5 * MINUTE);
    // It fails, and is started again as the host does.
    line.fail();
    line.swap_from(&one_peer(), snapshot).unwrap();
    late.exchange(&mut line, 1000);
    old.exchange(&mut line, 1000);
    line.inject("203.0.113.1:1".parse().unwrap(), &accepted);
    line.settle();
    assert_eq!(line.counter(2, "wireguard.dropped.replay"), 1);
}

#[test]
fn over_streams_who_is_connected_stays_and_who_connects_again_moves() {
    let mut line = Line::over_streams(&one_peer());
    line.add_client(Client::new(1).with_stack(1420));
    let mut old = Talk::open(&mut line, 0, "10.9.8.7:80");
    old.exchange(&mut line, 10_000);
    line.swap(&one_peer()).unwrap();
    old.exchange(&mut line, 10_000);
    line.run_for(10 * MINUTE);
    old.exchange(&mut line, 10_000);
    // Its new flows belong to the new generation, at once and after many sessions.
    let mut between = Talk::open(&mut line, 0, "10.9.8.7:79");
    assert_eq!(between.generation, 1);
    between.exchange(&mut line, 50_000);
    line.run_for(10 * MINUTE);
    between.exchange(&mut line, 50_000);
    assert_eq!(line.counter(1, "wireguard.handshakes"), 0);
    // Another connection belongs to the new generation.
    let home = line.clients[0].address;
    let streams = line.generation(0).host.streams.clone().unwrap();
    streams.connection(home).close();
    streams.forget(home);
    line.clients[0].address.set_port(4999);
    let now = line.now();
    line.clients[0].handshake(now);
    line.run_for(Duration::from_secs(1));
    let mut new = Talk::open(&mut line, 0, "10.9.8.7:81");
    assert_eq!(new.generation, 1);
    for talk in [&mut new, &mut between, &mut old] {
        talk.exchange(&mut line, 10_000);
    }
    old.close(&mut line);
    line.run_for(MINUTE);
    assert!(!line.lives(0));
    between.exchange(&mut line, 10_000);
}

#[test]
fn over_streams_one_connection_has_flows_of_every_generation() {
    let mut line = Line::over_streams(&one_peer());
    line.add_client(Client::new(1).with_stack(1420));
    let mut talks = vec![Talk::open(&mut line, 0, "10.9.8.7:80")];
    for generation in 1..=3 {
        line.swap(&one_peer()).unwrap();
        let talk = Talk::open(&mut line, 0, &format!("10.9.8.7:{}", 80 + generation));
        assert_eq!(talk.generation, generation);
        talks.push(talk);
        // Each answer goes through the generation that has the connection.
        for talk in &mut talks {
            talk.exchange(&mut line, 20_000);
        }
        line.send(0, &udp(2, 1000 + generation as u16, b"hello"));
        line.settle();
        assert_eq!(line.newest().host.app.flows().len(), 1);
    }
    // It stays with the first one to the end, even without a flow there.
    talks.remove(0).close(&mut line);
    line.run_for(MINUTE);
    assert!(line.lives(0));
    for talk in &mut talks {
        talk.exchange(&mut line, 20_000);
    }
}

#[test]
fn a_handshake_of_tcp_that_is_half_done_is_finished_where_it_began() {
    let mut line = Line::with_client(network(0, 0));
    line.send(0, &udp(2, 1, b"a session"));
    line.run_for(Duration::from_secs(1));
    let stack = line.clients[0].stack.as_mut().unwrap();
    stack.connect("10.9.8.7:80".parse().unwrap());
    // The SYN has arrived, and its answer is on its way.
    line.run_for(Duration::from_millis(30));
    assert!(line.generation(0).host.app.streams().is_empty());
    line.swap(&one_peer()).unwrap();
    line.run_for(Duration::from_secs(1));
    assert_eq!(line.generation(0).host.app.streams().len(), 1);
    assert!(line.generation(1).host.app.streams().is_empty());
    assert_eq!(line.counter(1, "netstack.tcp_strays_reset"), 0);
}

#[test]
fn what_is_no_message_is_counted_and_does_no_harm() {
    let mut line = Line::with_client(network(0, 0));
    let mut talk = Talk::open(&mut line, 0, "10.9.8.7:80");
    line.swap(&one_peer()).unwrap();
    for message in [
        &b""[..],
        b"?",
        &[1, 4],
        &[7; 32],
        &[7; 33],
        &[5; 40],
        &[1; 200],
    ] {
        for (from, to) in [(0, 1), (1, 0), (77, 1), (77, 0)] {
            line.office.put(from, to, message);
        }
    }
    line.settle();
    for number in [0, 1] {
        let strange = line.counter(number, "wireguard.dropped.strange_mail");
        assert_eq!(strange, 14, "generation {number}");
    }
    talk.exchange(&mut line, 10_000);
}

#[test]
fn a_generation_that_is_gone_is_forgotten_with_its_flows() {
    let mut line = Line::with_client(network(0, 0));
    let talk = Talk::open(&mut line, 0, "10.9.8.7:80");
    let snapshot = line.snapshot();
    line.swap_from(&one_peer(), snapshot).unwrap();
    line.run_for(Duration::from_secs(30));
    let second = line.snapshot();
    // The host ends it, and then starts a new one that knows it.
    line.drop_generation(0);
    line.swap_from(&one_peer(), second).unwrap();
    line.run_for(Duration::from_secs(3));
    talk.send(&mut line, b"is anybody there?");
    line.run_for(Duration::from_secs(1));
    assert_eq!(line.counter(2, "netstack.tcp_strays_reset"), 1);
}
