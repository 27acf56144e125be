//! Random bytes, bounded and the same in each run.

mod support;

use std::time::Duration;

use support::inner::packets;
use support::{Client, Random, Sim, refusal, server_config};

/// Checks that the peer is still served afterwards.
fn still_serves(sim: &mut Sim) {
    sim.run_for(Duration::from_secs(2));
    let now = sim.now();
    sim.clients[0].handshake(now);
    sim.settle();
    let source = "10.77.0.1:5".parse().unwrap();
    let before = sim.host.app.flows().len();
    sim.send(
        0,
        &packets::udp(source, "192.168.0.1:9".parse().unwrap(), b"x"),
    );
    sim.settle();
    assert_eq!(sim.host.app.flows().len(), before + 1);
}

#[test]
fn random_datagrams_do_no_harm() {
    let mut sim = Sim::with_one_client();
    sim.send(
        0,
        &packets::udp(
            "10.0.0.1:1".parse().unwrap(),
            "10.0.0.9:9".parse().unwrap(),
            b"x",
        ),
    );
    sim.settle();
    let genuine = sim.clients[0].sent.clone();
    let mut random = Random(1);
    for round in 0..20_000 {
        let mut datagram = match random.below(3) {
            // Random bytes, usually with the type and the length of a message.
            0 => {
                let length = [4, 32, 64, 92, 148, 200, 1500][random.below(7)];
                let mut bytes = random.bytes(length);
                bytes[..4].copy_from_slice(&[1 + random.below(5) as u8, 0, 0, 0]);
                bytes
            }
            // A genuine message with a few bytes changed.
            _ => {
                let mut bytes = genuine[random.below(genuine.len())].clone();
                for _ in 0..random.below(4) {
                    let at = random.below(bytes.len());
                    bytes[at] = random.next() as u8;
                }
                bytes
            }
        };
        if random.below(10) == 0 {
            datagram.truncate(random.below(datagram.len() + 1));
        }
        let from = std::net::SocketAddr::new([203, 0, 113, 1].into(), random.next() as u16 | 1);
        sim.inject(from, &datagram);
        if round % 16 == 0 {
            sim.settle();
        }
        if round % 1000 == 0 {
            sim.run_for(Duration::from_millis(700));
        }
    }
    still_serves(&mut sim);
}

#[test]
fn random_inner_packets_do_no_harm() {
    let mut sim = Sim::with_one_client();
    let template = packets::syn(
        "10.0.0.1:1".parse().unwrap(),
        "10.0.0.9:9".parse().unwrap(),
        1,
    );
    let mut random = Random(2);
    for round in 0..20_000 {
        let mut packet = if random.below(2) == 0 {
            template.clone()
        } else {
            let length = random.below(200);
            random.bytes(length)
        };
        for _ in 0..random.below(6) {
            if !packet.is_empty() {
                let at = random.below(packet.len());
                packet[at] = random.next() as u8;
            }
        }
        // boringtun, on the client's side, takes the empty packet for a keepalive.
        sim.send(0, &packet);
        if round % 16 == 0 {
            sim.settle();
        }
        if round % 1000 == 0 {
            sim.run_for(Duration::from_secs(20));
        }
    }
    still_serves(&mut sim);
}

#[test]
fn random_configurations_are_taken_or_refused_with_a_reason() {
    let words = [
        "[Interface]",
        "[Peer]",
        "[Watm]",
        "[",
        "]",
        "=",
        "#",
        ";",
        "\n",
        "\n",
        "\n",
        " ",
        "PrivateKey",
        "PublicKey",
        "AllowedIPs",
        "DisallowedIPs",
        "#@ws:",
        "PostUp",
        "%",
        "MTU",
        "Endpoint",
        "10.0.0.1",
        "/",
        "32",
        ",",
        "::",
        "off",
        "1420",
        "{",
        "}",
        "\"",
        ":",
        "server_key",
        "mtu",
        "ü",
        "\u{0}",
    ];
    let mut random = Random(3);
    for _ in 0..5_000 {
        let mut text: String = (0..random.below(30))
            .map(|_| words[random.below(words.len())])
            .collect();
        if random.below(2) == 0 {
            text = server_config(&text);
        }
        support::seed(1);
        let mut host =
            support::SimHost::new(support::SERVER.parse().unwrap(), watm_core::Instant(1));
        if support::start(&text, &mut host).is_err() {
            assert!(!refusal(&text).is_empty());
        }
    }
}

#[test]
fn spurious_calls_do_no_harm() {
    use watm_core::Transport;
    let mut sim = Sim::new(&server_config(&support::peer_config(
        1,
        "AllowedIPs = 0.0.0.0/0",
    )));
    sim.add_client(Client::new(1));
    let mut random = Random(4);
    for _ in 0..1000 {
        let tokens: Vec<_> = (0..random.below(4))
            .map(|_| random.next() << random.below(64))
            .collect();
        sim.server.process(&tokens, &mut sim.host);
    }
    still_serves(&mut sim);
}
