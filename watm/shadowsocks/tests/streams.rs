//! Connections between a client and a server of this crate: accepted and refused data.

mod support;

use std::time::Duration;

use support::{End, NOW, TARGET, both, config, configured, counter, data, password};
use watm_core::Destination;
use watm_shadowsocks::{Method, set_wall_clock};
use watm_stream::{Codec, StreamTransport};

#[test]
fn both_ends_of_every_method_understand_each_other() {
    for method in Method::ALL {
        let (clients, transport) = both(&config(method, ""));
        let (mut client, mut server) = (End::client(&clients), End::server(&transport));
        let first = [client.begin(), client.send(b"hello")].concat();
        assert!(!server.codec.established());
        server.receive(&first).unwrap();
        assert!(server.codec.established(), "{method}");
        assert_eq!(
            server.info().destination,
            TARGET.parse::<Destination>().unwrap()
        );
        assert_eq!(server.received(), b"hello");
        let long = data(300_000);
        for part in long.chunks(60_000) {
            client.receive(&server.send(part)).unwrap();
            let sent = client.send(part);
            for piece in sent.chunks(65_536) {
                server.receive(piece).unwrap();
            }
        }
        assert_eq!(client.received(), long);
        assert_eq!(server.received(), [b"hello", &long[..]].concat());
        client.ends().unwrap();
        server.ends().unwrap();
    }
}

#[test]
fn a_byte_at_a_time_is_the_same() {
    for method in Method::ALL {
        let more = match method.is_2022() {
            true => r#", "segmented_header": true"#,
            false => "",
        };
        let (clients, transport) = both(&config(method, more));
        let (mut client, mut server) = (End::client(&clients), End::server(&transport));
        let sent = [
            client.begin(),
            client.send(&data(1000)),
            client.send(&data(20_000)),
        ]
        .concat();
        server.receive_pieces(&sent, 1).unwrap();
        assert_eq!(server.received(), [data(1000), data(20_000)].concat());
        let answer = [server.send(&data(3000)), server.send(b"!")].concat();
        client.receive_pieces(&answer, 1).unwrap();
        assert_eq!(client.received(), [data(3000), b"!".to_vec()].concat());
    }
}

#[test]
fn the_longest_chunks_of_2022_are_taken_whole_and_in_pieces() {
    let (clients, transport) = both(&config(Method::Blake3Chacha20Poly1305, ""));
    for size in [1000, 65_536] {
        let (mut client, mut server) = (End::client(&clients), End::server(&transport));
        server.receive(&client.begin()).unwrap();
        let sent = client.send(&data(0xffff));
        assert_eq!(sent.len(), 18 + 0xffff + 16, "one chunk");
        server.receive_pieces(&sent, size).unwrap();
        assert!(
            server.from.len() < 65_000,
            "it is not kept in the connection's buffer"
        );
        assert_eq!(server.received(), data(0xffff));
        server.receive(&client.send(b"more")).unwrap();
        assert_eq!(server.received().last_chunk(), Some(b"more"));
    }
}

#[test]
fn the_beginning_of_a_2022_request_comes_at_once_or_not_at_all() {
    for method in [Method::Blake3Aes128Gcm, Method::Blake3Chacha20Poly1305] {
        let first = End::client(&configured(&config(method, ""))).begin();
        let least = method.key_length() + 11 + 16;
        for (size, established) in [(1, false), (least - 1, false), (least, true)] {
            let transport = configured(&config(method, ""));
            let mut server = End::server(&transport);
            // An empty read is no piece.
            server.receive(b"").unwrap();
            server.receive_pieces(&first, size).unwrap();
            assert_eq!(server.codec.established(), established, "{method} {size}");
        }
    }
}

/// Checks that nothing is answered or kept, however long it goes on.
fn assert_silent(server: &mut End, what: &str) {
    assert!(!server.codec.established(), "{what}");
    server.receive(&data(100_000)).unwrap();
    assert!(
        server.from.len() <= 65_536 && server.received().is_empty(),
        "{what}"
    );
}

#[test]
fn no_bit_of_a_first_flight_can_be_changed() {
    for method in [
        Method::Aes128Gcm,
        Method::Chacha20IetfPoly1305,
        Method::Blake3Aes256Gcm,
        Method::Blake3Chacha20Poly1305,
    ] {
        let (clients, transport) = both(&config(method, ""));
        let first = End::client(&clients).begin();
        for bit in 0..8 * first.len() {
            let mut wrong = first.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let mut server = End::server(&transport);
            server.receive(&wrong).unwrap();
            assert_silent(&mut server, &format!("{method}, bit {bit}"));
        }
        // SIP022 remembers a salt once the first message behind it is authentic.
        let mut server = End::server(&transport);
        server.receive(&first).unwrap();
        assert_eq!(server.codec.established(), !method.is_2022(), "{method}");
    }
}

#[test]
fn no_first_flight_is_taken_that_is_cut_short() {
    for method in Method::ALL {
        let (clients, transport) = both(&config(method, ""));
        let first = End::client(&clients).begin();
        for length in 0..first.len() {
            let mut server = End::server(&transport);
            server.receive(&first[..length]).unwrap();
            assert!(
                !server.codec.established(),
                "{method}: {length} of {}",
                first.len()
            );
            assert!(server.received().is_empty());
        }
    }
}

#[test]
fn strangers_bytes_are_read_and_never_answered() {
    for method in Method::ALL {
        let transport = configured(&config(method, ""));
        for length in [1, 16, 31, 32, 49, 50, 51, 66, 67, 200, 5000] {
            let mut server = End::server(&transport);
            server.receive(&data(length)).unwrap();
            assert_silent(&mut server, &format!("{method}, {length} bytes"));
        }
    }
}

#[test]
fn a_replay_is_as_silent_as_a_stranger() {
    for method in Method::ALL {
        let (clients, mut transport) = both(&config(method, ""));
        let mut client = End::client(&clients);
        let first = [client.begin(), client.send(b"hello")].concat();
        End::server(&transport).receive(&first).unwrap();
        assert_eq!(counter(&transport, "shadowsocks.replays"), 0);
        let mut server = End::server(&transport);
        server.receive(&first).unwrap();
        assert_silent(&mut server, method.name());
        assert_eq!(counter(&transport, "shadowsocks.replays"), 1);
        // Another configuration forgets nothing.
        transport
            .reconfigure(config(method, "").as_bytes())
            .unwrap();
        let mut server = End::server(&transport);
        server.receive(&first).unwrap();
        assert_silent(&mut server, method.name());
    }
}

#[test]
fn the_next_generation_knows_the_salts_of_the_one_before() {
    for method in Method::ALL {
        let (clients, transport) = both(&config(method, ""));
        let mut client = End::client(&clients);
        let first = [client.begin(), client.send(b"hello")].concat();
        End::server(&transport).receive(&first).unwrap();
        let snapshot = transport.snapshot();

        let (_, mut next) = both(&config(method, ""));
        next.succeed(&snapshot);
        let mut server = End::server(&next);
        server.receive(&first).unwrap();
        assert_silent(&mut server, method.name());
        assert_eq!(counter(&next, "shadowsocks.replays"), 1);

        // A snapshot that is truncated, too long or another module's is ignored.
        let longer = [&snapshot[..], b"!"].concat();
        let foreign = [b"!", &snapshot[..]].concat();
        let damaged = [&snapshot[..snapshot.len() - 1], &[], &longer, &foreign];
        for snapshot in damaged {
            let (_, mut next) = both(&config(method, ""));
            next.succeed(snapshot);
            assert_eq!(counter(&next, "shadowsocks.salts"), 0);
        }
    }
}

#[test]
fn what_the_server_sent_is_no_request() {
    for method in [Method::Aes256Gcm, Method::Blake3Aes256Gcm] {
        let (clients, transport) = both(&config(method, ""));
        let (mut client, mut server) = (End::client(&clients), End::server(&transport));
        server.receive(&client.begin()).unwrap();
        let answer = server.send(&[1, 127, 0, 0, 1, 0, 80, 1, 2, 3]);
        let mut server = End::server(&transport);
        server.receive(&answer).unwrap();
        assert_silent(&mut server, method.name());
    }
}

#[test]
fn a_request_of_2022_is_taken_for_half_a_minute() {
    for (off, taken) in [
        (-31, false),
        (-30, true),
        (0, true),
        (30, true),
        (31, false),
    ] {
        let (clients, transport) = both(&config(Method::Blake3Aes128Gcm, ""));
        set_wall_clock(Some(NOW.saturating_add_signed(off)));
        let first = End::client(&clients).begin();
        set_wall_clock(Some(NOW));
        let mut server = End::server(&transport);
        server.receive(&first).unwrap();
        assert_eq!(server.codec.established(), taken, "{off} seconds");
    }
}

#[test]
fn strangers_are_kept_for_a_time_that_differs() {
    let transport = configured(&config(Method::Aes256Gcm, ""));
    let times: Vec<_> = (0..1000).map(|_| transport.handshake_timeout()).collect();
    let seconds = |from, to| (Duration::from_secs(from), Duration::from_secs(to));
    let (shortest, longest) = seconds(30, 60);
    assert!(times.iter().all(|time| (shortest..longest).contains(time)));
    // No interval of the range has many of the times.
    for part in 0..10 {
        let (from, to) = seconds(30 + 3 * part, 33 + 3 * part);
        let many = times
            .iter()
            .filter(|time| (from..to).contains(*time))
            .count();
        assert!(
            (40..160).contains(&many),
            "{many} of 1000 from {from:?} to {to:?}"
        );
    }
}

#[test]
fn an_answer_is_to_its_own_request_and_of_its_time() {
    let (clients, transport) = both(&config(Method::Blake3Aes128Gcm, ""));
    let (mut client, mut server) = (End::client(&clients), End::server(&transport));
    server.receive(&client.begin()).unwrap();
    let answer = server.send(b"hello");
    let mut other = End::client(&clients);
    other.begin();
    let error = other.receive(&answer).unwrap_err();
    assert!(error.to_string().contains("another request"), "{error}");
    set_wall_clock(Some(NOW + 31));
    let error = client.receive(&answer).unwrap_err();
    assert!(error.to_string().contains("too far off"), "{error}");
}

#[test]
fn no_bit_of_an_answer_can_be_changed() {
    for method in [Method::Chacha20IetfPoly1305, Method::Blake3Chacha20Poly1305] {
        let (clients, transport) = both(&config(method, ""));
        let (mut client, mut server) = (End::client(&clients), End::server(&transport));
        let request = client.begin();
        server.receive(&request).unwrap();
        let answer = server.send(b"hello");
        for bit in 0..8 * answer.len() {
            let mut wrong = answer.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let mut damaged = End::client(&clients);
            damaged.begin();
            assert!(damaged.receive(&wrong).is_err(), "{method}, bit {bit}");
        }
    }
}

#[test]
fn a_stream_that_is_cut_is_not_at_its_end() {
    for method in Method::ALL {
        let (clients, transport) = both(&config(method, ""));
        let (mut client, mut server) = (End::client(&clients), End::server(&transport));
        server.receive(&client.begin()).unwrap();
        let sent = client.send(b"hello");
        for length in 1..sent.len() {
            let (mut client, mut server) = (End::client(&clients), End::server(&transport));
            let sent = [client.begin(), client.send(b"hello")].concat();
            server.receive(&sent[..sent.len() - length]).unwrap();
            assert!(server.received().is_empty());
            assert!(
                server.ends().is_err(),
                "{method}: {length} bytes are missing"
            );
        }
        server.receive(&sent).unwrap();
        server.ends().unwrap();
    }
}

#[test]
fn users_are_told_apart_by_their_keys() {
    for method in [Method::Blake3Aes128Gcm, Method::Blake3Aes256Gcm] {
        let key = |seed| password(method, seed);
        let users = format!(
            r#", "users": [{{"name": "alice", "password": "{}"}}, {{"name": "bob", "password": "{}"}}]"#,
            key(2),
            key(3)
        );
        let transport = configured(&config(method, &users));
        for (seed, name) in [(2, Some("alice")), (3, Some("bob")), (4, None)] {
            let config = format!(
                r#"{{"method": "{method}", "password": "{}:{}"}}"#,
                key(1),
                key(seed)
            );
            let clients = configured(&config);
            let (mut client, mut server) = (End::client(&clients), End::server(&transport));
            server.receive(&client.begin()).unwrap();
            assert_eq!(server.codec.established(), name.is_some(), "{seed}");
            assert_eq!(server.info().peer.as_deref(), name);
            if name.is_some() {
                client.receive(&server.send(b"hello")).unwrap();
                assert_eq!(client.received(), b"hello");
            }
        }
        // Without a name there is no peer.
        let clients = configured(&config(method, ""));
        let mut server = End::server(&transport);
        server.receive(&End::client(&clients).begin()).unwrap();
        assert_silent(&mut server, "no name");
    }
}

#[test]
fn a_salt_begins_with_the_prefix() {
    let clients = configured(&config(
        Method::Chacha20IetfPoly1305,
        r#", "prefix": "HTTP/1.1""#,
    ));
    let mut client = End::client(&clients);
    let first = client.begin();
    assert!(first.starts_with(b"HTTP/1.1"));
    let server = configured(&config(Method::Chacha20IetfPoly1305, ""));
    let mut server = End::server(&server);
    server.receive(&first).unwrap();
    assert!(server.codec.established());
}

/// Returns true if a censor that blocks fully encrypted traffic passes this packet, by the rules
/// that Wu et al. found (How the Great Firewall of China Detects and Blocks Fully Encrypted
/// Traffic, USENIX Security 2023, section 4), without those about the first bytes of TLS and HTTP.
fn passes(packet: &[u8]) -> bool {
    let ones: u32 = packet.iter().map(|byte| byte.count_ones()).sum();
    let average = f64::from(ones) / packet.len() as f64;
    let printable = |byte: &u8| (0x20..=0x7e).contains(byte);
    let (mut run, mut longest) = (0, 0);
    for byte in packet {
        run = if printable(byte) { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    average <= 3.4
        || average >= 4.6
        || packet.iter().take(6).all(printable)
        || packet.iter().filter(|byte| printable(byte)).count() * 2 > packet.len()
        || longest > 20
}

#[test]
fn a_printable_prefix_passes_where_nothing_else_does() {
    let method = Method::Chacha20IetfPoly1305;
    let count = |more| {
        let clients = configured(&config(method, more));
        let passing = |_: &i32| {
            let mut client = End::client(&clients);
            passes(&[client.begin(), client.send(&data(500))].concat())
        };
        (0..200).filter(passing).count()
    };
    assert!(count("") < 5, "what is only encrypted is blocked");
    assert_eq!(count(r#", "prefix": "GET /a""#), 200);
}

#[test]
fn the_insecure_mode_has_few_or_many_ones() {
    for method in [
        Method::Chacha20IetfPoly1305,
        Method::Aes128Gcm,
        Method::Aes256Gcm,
    ] {
        let insecure = config(method, r#", "gfw_report_compat": "insecure""#);
        let (clients, transport) = both(&insecure);
        let (mut flights, mut passed) = (0, 0);
        for length in [1, 100, 1400, 12_000, 40_000].repeat(20) {
            let (mut client, mut server) = (End::client(&clients), End::server(&transport));
            let first = client.begin();
            server.receive(&first).unwrap();
            assert!(server.codec.established());
            let answer = server.send(&data(length));
            for flight in [&first, &answer[..answer.len().min(10_000)]] {
                flights += 1;
                passed += usize::from(passes(flight));
            }
            client.receive(&answer).unwrap();
            assert_eq!(client.received(), data(length));
            server.receive(&client.send(&data(length))).unwrap();
            assert_eq!(server.received(), data(length));
        }
        // The patch assumes that half of a salt's bits are ones, which is true on average.
        println!("{method}: {passed} of {flights}");
        assert!(
            passed * 100 > flights * 90,
            "{method}: {passed} of {flights}"
        );
    }
}

#[test]
fn the_insecure_mode_survives_any_flipped_bit() {
    let insecure = config(
        Method::Chacha20IetfPoly1305,
        r#", "gfw_report_compat": "insecure""#,
    );
    let (clients, transport) = both(&insecure);
    let first = End::client(&clients).begin();
    for bit in 0..8 * first.len() {
        let mut wrong = first.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let mut server = End::server(&transport);
        server.receive(&wrong).unwrap();
        // The added bits are not authenticated, and need not be.
        if !server.codec.established() {
            assert_silent(&mut server, "a flipped bit");
        }
    }
}
