//! Inner traffic through the tunnel.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use support::inner::packets;
use support::{Client, Conditions, Sim, peer_config, public_text, server_config};
use watm_core::{Destination, Ecn};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn udp_goes_both_ways_in_ipv4_and_ipv6() {
    let mut sim = Sim::with_one_client();
    for (source, destination) in [
        ("10.0.0.2:5000", "10.9.8.7:53"),
        ("[fd00::2]:5000", "[2001:db8::1]:53"),
    ] {
        let (source, destination) = (address(source), address(destination));
        sim.send(0, &packets::udp(source, destination, b"question"));
        sim.settle();
        let flow = sim.host.app.flows().last().expect("a flow").clone();
        let info = flow.info();
        assert_eq!(info.source, source);
        assert_eq!(info.destination, Destination::Address(destination));
        assert_eq!(info.peer, Some(public_text(1)));
        assert_eq!(
            info.underlay,
            Some((sim.clients[0].address, address(support::SERVER)))
        );
        assert_eq!(flow.read(), [b"question"]);

        flow.write(b"answer");
        sim.settle();
        let packet = sim.clients[0].received.pop().expect("an answer");
        let (from, to, data) = packets::read_udp(&packet);
        assert_eq!(
            (from, to, data.as_slice()),
            (destination, source, &b"answer"[..])
        );
    }
}

/// Carries one way at a time: two smoltcp ends that both retransmit take each other's
/// acknowledgements for old segments.
#[test]
fn tcp_carries_a_megabyte_each_way_over_a_bad_network() {
    let bad = Conditions {
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(5),
        loss: 10,
        duplication: 10,
    };
    for destination in ["10.9.8.7:80", "[2001:db8::1]:80"] {
        let mut sim = Sim::new(&server_config(&peer_config(
            1,
            "AllowedIPs = 0.0.0.0/0, ::/0",
        )));
        sim.add_client(Client::new(1).with_stack(1420).behind(bad));
        let stack = sim.clients[0].stack.as_mut().unwrap();
        let handle = stack.connect(address(destination));
        assert!(sim.run_until(Duration::from_secs(60), |sim| {
            !sim.host.app.streams().is_empty()
        }));
        let stream = sim.host.app.streams()[0].clone();
        let data: Vec<u8> = (0..1_000_000u32).map(|n| (n / 7) as u8).collect();

        let (mut sent, mut came) = (0, Vec::new());
        let done = sim.run_until(Duration::from_secs(600), |sim| {
            came.extend(stream.read());
            let socket = sim.clients[0].stack.as_mut().unwrap().socket(handle);
            if socket.can_send() && sent < data.len() {
                sent += socket.send_slice(&data[sent..]).unwrap();
            }
            came.len() == data.len()
        });
        assert!(done && came == data, "{} bytes came up", came.len());

        stream.write(&data);
        came.clear();
        let done = sim.run_until(Duration::from_secs(600), |sim| {
            let socket = sim.clients[0].stack.as_mut().unwrap().socket(handle);
            if socket.can_recv() {
                let _ = socket.recv(|bytes| {
                    came.extend_from_slice(bytes);
                    (bytes.len(), ())
                });
            }
            came.len() == data.len()
        });
        assert!(done && came == data, "{} bytes came down", came.len());
    }
}

#[test]
fn pings_are_answered_in_ipv4_and_ipv6() {
    let mut sim = Sim::with_one_client();
    // An echo request, identifier 1, sequence 1; the checksums are computed below.
    let mut v4 = vec![8, 0, 0, 0, 0, 1, 0, 1];
    let sum = !smoltcp::wire::checksum::data(&v4);
    v4[2..4].copy_from_slice(&sum.to_be_bytes());
    let v4 = packets::ip(
        "10.0.0.2".parse().unwrap(),
        "10.9.8.7".parse().unwrap(),
        1,
        &v4,
    );
    sim.send(0, &v4);

    let (source, destination) = ("fd00::2".parse().unwrap(), "2001:db8::1".parse().unwrap());
    let mut v6 = vec![128, 0, 0, 0, 0, 1, 0, 1];
    let mut packet = smoltcp::wire::Icmpv6Packet::new_unchecked(&mut v6);
    packet.fill_checksum(&source, &destination);
    sim.send(0, &packets::ip(source.into(), destination.into(), 58, &v6));
    sim.settle();

    let answers: Vec<_> = sim.clients[0]
        .received
        .iter()
        .map(|packet| {
            let (from, _, protocol, message) = packets::read_ip(packet);
            (from.to_string(), protocol, message[0])
        })
        .collect();
    assert_eq!(
        answers,
        [
            ("10.9.8.7".to_owned(), 1, 0),
            ("2001:db8::1".to_owned(), 58, 129)
        ]
    );
}

#[test]
fn a_source_that_is_not_the_peers_is_dropped() {
    let mut sim = Sim::new(&server_config(
        &(peer_config(1, "AllowedIPs = 10.0.0.2/32, fd00::/64")
            + &peer_config(2, "AllowedIPs = 10.0.0.0/24")),
    ));
    sim.add_client(Client::new(1));
    sim.add_client(Client::new(2));
    let to = "192.168.0.1:9";
    let to6 = "[2001:db8::1]:9";
    let cases = [
        (0, "10.0.0.2:1", to, true),
        (0, "10.0.0.3:1", to, false),
        (0, "[fd00::77]:1", to6, true),
        (0, "[fd01::77]:1", to6, false),
        // The longest prefix belongs to another peer.
        (1, "10.0.0.2:1", to, false),
        (1, "10.0.0.3:1", to, true),
    ];
    for (client, source, destination, allowed) in cases {
        let before = sim.host.app.flows().len();
        let dropped = sim.counter("wireguard.dropped.source_not_allowed");
        sim.send(
            client,
            &packets::udp(address(source), address(destination), b"x"),
        );
        sim.settle();
        assert_eq!(
            sim.host.app.flows().len() - before,
            usize::from(allowed),
            "{source}"
        );
        assert_eq!(
            sim.counter("wireguard.dropped.source_not_allowed") - dropped,
            u64::from(!allowed)
        );
    }
}

#[test]
fn an_address_that_was_taken_from_a_peer_gets_no_more_packets() {
    let config = |networks: &str| server_config(&peer_config(1, networks));
    let mut sim = Sim::new(&config("AllowedIPs = 10.0.0.2/32"));
    sim.add_client(Client::new(1));
    let (source, destination) = (address("10.0.0.2:5"), address("192.168.0.1:9"));
    sim.send(0, &packets::udp(source, destination, b"x"));
    sim.settle();
    let flow = sim.host.app.flows()[0].clone();
    sim.reconfigure(&config("AllowedIPs = 10.0.0.3/32"))
        .unwrap();
    flow.write(b"y");
    sim.settle();
    assert!(sim.clients[0].received.is_empty());
    assert_eq!(sim.counter("wireguard.dropped.destination_not_allowed"), 1);
}

#[test]
fn peers_with_the_same_inner_address_are_never_mixed() {
    let keys = format!("\"{}\", \"{}\"", public_text(1), public_text(2));
    let server = support::base64(support::private_key(support::SERVER_KEY).as_bytes());
    let mut sim = Sim::new(&format!(
        "{{\"server_key\": \"{server}\", \"peer_public_keys\": [{keys}]}}"
    ));
    sim.add_client(Client::new(1));
    sim.add_client(Client::new(2));
    let (source, destination) = (address("10.0.0.1:5"), address("192.168.0.1:9"));
    for client in 0..2 {
        sim.send(client, &packets::udp(source, destination, &[client as u8]));
    }
    sim.settle();
    let flows = sim.host.app.flows().to_vec();
    assert_eq!(flows.len(), 2);
    for (client, flow) in flows.iter().enumerate() {
        assert_eq!(flow.info().peer, Some(public_text(client as u8 + 1)));
        assert_eq!(flow.read(), [[client as u8]]);
        flow.write(&[client as u8 + 10]);
    }
    sim.settle();
    for client in 0..2 {
        let [packet] = sim.clients[client].received.as_slice() else {
            panic!("one packet for client {client}");
        };
        assert_eq!(packets::read_udp(packet).2, [client as u8 + 10]);
    }
}

#[test]
fn equal_datagrams_leave_as_a_train_and_different_ones_do_not() {
    let mut sim = Sim::with_one_client();
    let (source, destination) = (address("10.0.0.2:5"), address("192.168.0.1:9"));
    sim.send(0, &packets::udp(source, destination, b"x"));
    sim.settle();
    let flow = sim.host.app.flows()[0].clone();
    sim.host.take_batches();
    // Fifty of 100 bytes; a shorter one ends the train, a longer one begins another.
    for _ in 0..50 {
        flow.write(&[0; 100]);
    }
    for size in [40, 40, 900] {
        flow.write(&vec![1; size]);
    }
    sim.settle();
    let entries: Vec<_> = sim
        .host
        .take_batches()
        .iter()
        .flat_map(|batch| batch.datagrams.clone())
        .map(|entry| (entry.len, entry.segment_size))
        .collect();
    let size = |data: u32| data + 28 + 32;
    assert_eq!(
        entries,
        [
            (50 * size(100) + size(40), Some(160)),
            (size(40), None),
            (size(900), None)
        ]
    );
    assert_eq!(sim.clients[0].received.len(), 53);
    assert_eq!(sim.counter("wireguard.datagrams_sent"), 53 + 1);
}

#[test]
fn a_train_holds_at_most_64_datagrams_and_65000_bytes() {
    let mut sim = Sim::with_one_client();
    let (source, destination) = (address("10.0.0.2:5"), address("192.168.0.1:9"));
    sim.send(0, &packets::udp(source, destination, b"x"));
    sim.settle();
    let flow = sim.host.app.flows()[0].clone();
    for size in [1, 1300] {
        sim.clients[0].received.clear();
        for _ in 0..200 {
            flow.write(&vec![0; size]);
        }
        // The socket asserts the limits.
        sim.settle();
        assert_eq!(sim.clients[0].received.len(), 200);
    }
}

#[test]
fn what_the_network_does_not_take_is_kept_up_to_a_bound_and_sent_later() {
    let mut sim = Sim::with_one_client();
    let (source, destination) = (address("10.0.0.2:5"), address("192.168.0.1:9"));
    sim.send(0, &packets::udp(source, destination, b"x"));
    sim.settle();
    let flow = sim.host.app.flows()[0].clone();
    sim.host.set_room(0);
    for n in 0..1000u32 {
        flow.write(&[&n.to_be_bytes()[..], &[0; 1300]].concat());
    }
    sim.settle();
    assert!(sim.clients[0].received.is_empty());
    let dropped = sim.counter("wireguard.dropped.send_backlog");
    // A mebibyte is about 770 of them.
    assert!((200..260).contains(&dropped), "{dropped} dropped");
    // The network accepts two at a time, then all.
    sim.host.set_room(2);
    sim.settle();
    assert!(!sim.clients[0].received.is_empty());
    sim.host.set_room(usize::MAX);
    sim.settle();
    let numbers: Vec<_> = sim.clients[0]
        .received
        .iter()
        .map(|packet| u32::from_be_bytes(packets::read_udp(packet).2[..4].try_into().unwrap()))
        .collect();
    assert_eq!(numbers.len() as u64, 1000 - dropped);
    assert!(numbers.is_sorted(), "in order");
}

#[test]
fn the_peers_bytes_and_endpoint_are_in_the_status() {
    use watm_core::Transport;
    let mut sim = Sim::with_one_client();
    let (source, destination) = (address("10.0.0.2:5"), address("192.168.0.1:9"));
    let packet = packets::udp(source, destination, b"x");
    sim.send(0, &packet);
    sim.settle();
    sim.host.app.flows()[0].write(b"four");
    sim.run_for(Duration::from_secs(3));
    let status = sim.server.status(sim.now());
    let [peer] = status.peers.as_slice() else {
        panic!("one peer");
    };
    assert_eq!(peer.name, public_text(1));
    assert_eq!(peer.endpoint, Some(sim.clients[0].address));
    assert_eq!(peer.last_handshake, Some(Duration::from_secs(3)));
    assert_eq!(peer.received_bytes, packet.len() as u64);
    assert_eq!(peer.sent_bytes, 20 + 8 + 4);
    assert_eq!(status.flows, 1);
}

#[test]
fn a_mark_of_congestion_on_a_datagram_marks_its_packet() {
    // RFC 6040 section 4.2. The receiver echoes the mark (RFC 3168 section 6.1.3).
    const ECT0: u8 = 2;
    const ECE: u8 = 0x40;
    const SYN_ECE_CWR: u8 = 0xc2;
    for (source, destination) in [
        ("10.0.0.2:5000", "10.9.8.7:80"),
        ("[fd00::2]:5000", "[2001:db8::1]:80"),
    ] {
        let mut sim = Sim::with_one_client();
        let (source, destination) = (address(source), address(destination));
        let mut syn = packets::syn(source, destination, 1);
        packets::set_flags(&mut syn, SYN_ECE_CWR);
        sim.send(0, &syn);
        sim.settle();
        let answer = sim.clients[0].received.pop().expect("an answer");
        let acknowledges = Some(packets::read_tcp(&answer).sequence.wrapping_add(1));
        let mut sequence = 2;
        for (outer, inner, echoes) in [
            (Ecn::Ect0, ECT0, false),
            (Ecn::Ce, 0, false),
            (Ecn::Ce, ECT0, true),
        ] {
            let mut data = packets::Tcp {
                source,
                destination,
                control: TcpControl::None,
                sequence,
                acknowledges,
                window: 60_000,
                scale: None,
                payload: b"data",
                sack: None,
            }
            .packet();
            sequence += 4;
            packets::set_class(&mut data, inner);
            sim.host.set_ecn(outer);
            sim.send(0, &data);
            sim.run_for(Duration::from_secs(1));
            let answer = sim.clients[0].received.pop().expect("an answer");
            let echo = packets::flags(&answer) & ECE > 0;
            assert_eq!(echo, echoes, "{outer:?} around {inner}");
        }
    }
}

#[test]
fn a_mark_on_a_malformed_packet_harms_nobody() {
    let mut sim = Sim::with_one_client();
    let good = packets::udp(address("10.0.0.2:5000"), address("10.9.8.7:53"), b"x");
    sim.host.set_ecn(Ecn::Ce);
    for (at, value) in [(3, 0), (3, 8), (0, 0x4f), (0, 0x40), (10, 1)] {
        let mut packet = good[..20].to_vec();
        (packet[1], packet[3]) = (2, 20);
        packet[at] = value;
        sim.send(0, &packet);
        sim.settle();
    }
    assert!(sim.host.app.flows().is_empty());
    sim.send(0, &good);
    sim.settle();
    assert_eq!(sim.host.app.flows()[0].read(), [b"x"]);
}
