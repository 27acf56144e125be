//! Clients of the server, in whole messages and byte by byte.

mod support;

use std::time::Duration;

use support::{REMOTE, StreamEnd, World};
use watm_core::{Destination, ErrorCode, Level};

const USERS: &str =
    r#"{"users": [{"name": "alice", "password": "secret"}, {"name": "bob", "password": "other"}]}"#;

/// The parts of the data that a client sends.
type Script<'a> = &'a [&'a [u8]];

const NO_USER: &[u8] = &[5, 1, 0];
const WITH_USER: &[u8] = &[5, 2, 0, 2];
const ALICE: &[u8] = b"\x01\x05alice\x06secret";
const CONNECT: &[u8] = b"\x05\x01\x00\x03\x0bexample.com\x01\xbb";
const GRANTED: &[u8] = &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0];

/// Runs the script in three ways: message by message, byte by byte, and all at once. Returns the outcome, which must be the
/// same.
fn told(config: &str, script: Script<'_>, set: impl Fn(&mut World)) -> (World, StreamEnd, Vec<u8>) {
    let whole = script.concat();
    let bytes: Vec<&[u8]> = whole.chunks(1).collect();
    let mut outcomes: Vec<_> = [script.to_vec(), bytes, vec![whole.as_slice()]]
        .into_iter()
        .map(|parts| {
            let mut world = World::of_streams(config);
            set(&mut world);
            let client = world.accept();
            for part in parts {
                if !client.gone() {
                    world.say(&client, part);
                }
            }
            let said = client.read();
            (world, client, said)
        })
        .collect();
    let (world, client, said) = outcomes.pop().expect("three outcomes");
    for (_, other, others) in outcomes {
        assert_eq!(said, others, "{script:?}");
        assert_eq!(client.gone(), other.gone(), "{script:?}");
    }
    (world, client, said)
}

#[test]
fn connect_becomes_a_flow_to_its_destination() {
    for (address, destination) in [
        (&b"\x03\x0bexample.com\x01\xbb"[..], "example.com:443"),
        (b"\x01\xc0\x00\x02\x09\x00\x50", "192.0.2.9:80"),
        (
            b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50",
            "[2001:db8::1]:80",
        ),
        // A name that is an address.
        (b"\x03\x09192.0.2.9\x00\x50", "192.0.2.9:80"),
    ] {
        let request = [b"\x05\x01\x00", address].concat();
        let (mut world, client, said) = told("", &[NO_USER, &request], |_| {});
        assert_eq!(said, [&[5, 0][..], GRANTED].concat());
        let flow = world.host.application.streams()[0].clone();
        let info = flow.info();
        assert_eq!(
            info.destination,
            destination.parse::<Destination>().unwrap()
        );
        assert_eq!(
            (info.source.to_string().as_str(), info.peer),
            (REMOTE, None)
        );
        flow.write(b"hello");
        world.say(&client, b"world");
        assert_eq!(
            (client.read(), flow.read()),
            (b"hello".to_vec(), b"world".to_vec())
        );
        // Each direction ends by itself.
        client.close();
        world.run();
        assert!(flow.ended() && !client.ended());
        flow.write(b"more");
        flow.close();
        world.run();
        assert_eq!(client.read(), b"more");
        assert!(client.ended());
        assert_eq!(world.counter("streams.completed"), 1);
    }
}

#[test]
fn data_behind_the_request_is_not_lost() {
    let (world, _, said) = told("", &[NO_USER, CONNECT, b"early"], |_| {});
    assert_eq!(said, [&[5, 0][..], GRANTED].concat());
    assert_eq!(world.host.application.streams()[0].read(), b"early");
}

#[test]
fn a_user_is_the_peer_of_the_flow() {
    let (world, _, said) = told(USERS, &[WITH_USER, ALICE, CONNECT], |_| {});
    assert_eq!(said, [&[5, 2, 1, 0][..], GRANTED].concat());
    let flow = world.host.application.streams()[0].info();
    assert_eq!(flow.peer.as_deref(), Some("alice"));
}

#[test]
fn a_wrong_password_is_refused_and_not_logged() {
    for message in [
        &b"\x01\x05alice\x05guess"[..],
        b"\x01\x05alice\x00",
        b"\x01\x00\x06secret",
        b"\x01\x05alice\x05other",
        b"\x01\x03eve\x06secret",
    ] {
        let (world, client, said) = told(USERS, &[WITH_USER, message], |_| {});
        assert_eq!(said, [5, 2, 1, 1], "{message:?}");
        assert!(
            client.finished() && client.reset().is_none(),
            "it ends after the answer"
        );
        assert!(world.host.application.streams().is_empty());
        let log = world.log_without(&["secret", "guess", "eve", "alice"]);
        assert!(log.contains("unknown user, or wrong password"), "{log}");
    }
}

#[test]
fn a_client_without_an_acceptable_method_is_told() {
    for (config, offer) in [
        (USERS, NO_USER),
        (USERS, &[5, 0][..]),
        ("", &[5, 1, 2]),
        ("", &[5, 2, 1, 0x80]),
    ] {
        let (_, client, said) = told(config, &[offer], |_| {});
        assert_eq!(said, [5, 0xff]);
        assert!(client.finished());
    }
}

#[test]
fn the_application_decides_and_the_client_is_told_why() {
    for (reason, code) in [
        (ErrorCode::AccessDenied, 2),
        (ErrorCode::LimitReached, 1),
        (ErrorCode::RemoteUnreachable, 4),
        (ErrorCode::NameUnresolvable, 4),
        (ErrorCode::ConnectionRefused, 5),
        (ErrorCode::Timeout, 6),
        (ErrorCode::NotSupported, 7),
        (ErrorCode::Other("whatever".to_owned()), 1),
    ] {
        let refuse = |world: &mut World| world.host.application.refuse = Some(reason.clone());
        let (world, client, said) = told("", &[NO_USER, CONNECT], refuse);
        assert_eq!(said, [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{reason}");
        assert!(client.finished() && client.reset().is_none(), "{reason}");
        assert_eq!(world.counter("streams.refused"), 1);
    }
}

#[test]
fn other_commands_and_addresses_have_their_codes() {
    for (request, code, why) in [
        (
            &b"\x05\x02\x00\x01\xc0\x00\x02\x09\x00\x50"[..],
            7,
            "BIND is not supported",
        ),
        (
            b"\x05\x09\x00\x01\xc0\x00\x02\x09\x00\x50",
            7,
            "an unknown command",
        ),
        (
            b"\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00",
            7,
            "UDP ASSOCIATE, without a UDP socket",
        ),
        (
            b"\x05\x01\x00\x02\xc0\x00\x02\x09\x00\x50",
            8,
            "an unknown kind of address",
        ),
        (
            b"\x05\x01\x00\x01\xc0\x00\x02\x09\x00\x00",
            1,
            "an invalid name or port",
        ),
        (
            b"\x05\x01\x00\x03\x00\x00\x50",
            1,
            "an invalid name or port",
        ),
        (
            b"\x05\x01\x00\x03\x03a/b\x00\x50",
            1,
            "an invalid name or port",
        ),
        (
            b"\x05\x01\x00\x03\x02\xff\xfe\x00\x50",
            1,
            "an invalid name or port",
        ),
    ] {
        let (world, client, said) = told("", &[NO_USER, request], |_| {});
        assert_eq!(said, [5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0], "{request:?}");
        assert!(client.finished() && world.host.application.streams().is_empty());
        let log = world.log_without(&[]);
        assert!(log.contains(why), "{log}");
        assert!(
            world
                .host
                .logs
                .iter()
                .all(|(level, _)| *level <= Level::Debug),
            "strangers do not fill the log"
        );
    }
}

#[test]
fn other_protocols_are_named_in_the_log_and_not_answered() {
    for (config, script, why) in [
        (
            "",
            &[&b"\x04\x01\x00\x50\xc0\x00\x02\x09\x00"[..]][..],
            "SOCKS4, not SOCKS5",
        ),
        (
            "",
            &[b"GET / HTTP/1.1\r\n\r\n"],
            "not SOCKS5, but probably HTTP",
        ),
        ("", &[b"\x16\x03\x01\x02"], "TLS, not SOCKS5"),
        ("", &[NO_USER, b"\x04\x01\x00\x01"], "SOCKS4, not SOCKS5"),
        (
            USERS,
            &[WITH_USER, b"\x05\x05alice"],
            "an unknown version of user and password",
        ),
    ] {
        let (world, client, said) = told(config, script, |_| {});
        let greeted = script.len() - 1;
        assert_eq!(said.len(), 2 * greeted, "{script:?}");
        assert!(client.gone() && world.host.application.streams().is_empty());
        let log = world.log_without(&[]);
        assert!(log.contains(why), "{log}");
    }
}

#[test]
fn an_unfinished_handshake_ends_in_time_and_early() {
    let whole = [WITH_USER, ALICE, CONNECT].concat();
    for length in 0..whole.len() {
        let mut world = World::of_streams(USERS);
        let client = world.accept();
        world.say(&client, &whole[..length]);
        assert!(!client.gone() && world.host.application.streams().is_empty());
        world.advance(Duration::from_secs(11));
        assert!(client.gone(), "after {length} bytes");
        assert_eq!(world.counter("streams.handshake_timeouts"), 1);

        let client = world.accept();
        world.say(&client, &whole[..length]);
        client.close();
        world.run();
        assert!(client.gone(), "after {length} bytes and the end");
    }
}
