//! The client in front of proxies: SOCKS5 and HTTP.

mod support;

use std::time::Duration;

use support::World;
use watm_core::{Destination, ErrorCode};

const SOCKS: &str = r#"{"server": "192.0.2.80:1080"}"#;
const SOCKS_USER: &str = r#"{"server": "socks5://alice:p%40ss@192.0.2.80:1080"}"#;
const HTTP: &str = r#"{"server": "http://proxy.example:8080"}"#;
const HTTP_USER: &str =
    r#"{"server": "http://proxy.example:8080", "user": "alice", "password": "p@ss"}"#;

/// The data that the client sends, and the answer of the proxy.
struct Exchange(&'static [u8], &'static [u8]);

const GRANTED: &[u8] = &[5, 0, 0, 1, 192, 0, 2, 80, 0, 9];
const CONNECT: &[u8] = b"\x05\x01\x00\x03\x0bexample.com\x01\xbb";
const GREETING: Exchange = Exchange(&[5, 1, 0], &[5, 0]);
const GREETING_OF_USER: Exchange = Exchange(&[5, 2, 0, 2], &[5, 2]);
const ALICE: Exchange = Exchange(b"\x01\x05alice\x04p@ss", &[1, 0]);

/// Dials example.com:443 with these exchanges, of which the proxy's parts come whole or byte by byte. Checks that the
/// application is told, and that bytes pass then.
fn granted(config: &str, exchanges: &[Exchange], rest: &[u8]) {
    for whole in [true, false] {
        let mut world = World::of_streams(config);
        let (application, network) = world.dial("example.com:443").unwrap();
        application.write(b"early");
        for (index, Exchange(said, answer)) in exchanges.iter().enumerate() {
            assert_eq!(network.read(), *said);
            assert!(application.is_connecting(), "the application waits");
            let last = index + 1 == exchanges.len();
            let answer = match last {
                true => [answer, rest].concat(),
                false => answer.to_vec(),
            };
            for part in answer.chunks(if whole { answer.len() } else { 1 }) {
                world.say(&network, part);
            }
        }
        assert!(application.is_connected());
        assert_eq!(
            (network.read(), application.read()),
            (b"early".to_vec(), rest.to_vec())
        );
        world.say(&network, b"answer");
        assert_eq!(application.read(), b"answer");
        application.close();
        network.close();
        world.run();
        assert!(network.ended() && application.ended());
        assert_eq!(world.counter("streams.completed"), 1);
    }
}

/// Dials with these exchanges, after which the dial fails. Returns the reason.
fn refused(config: &str, exchanges: &[Exchange]) -> String {
    let reasons = [true, false].map(|whole| {
        let mut world = World::of_streams(config);
        let (application, network) = world.dial("example.com:443").unwrap();
        for Exchange(said, answer) in exchanges {
            assert_eq!(network.read(), *said);
            for part in answer.chunks(if whole { answer.len() } else { 1 }) {
                world.say(&network, part);
            }
        }
        assert!(
            network.gone() && application.is_connecting(),
            "{:?}",
            exchanges.last().unwrap().1
        );
        world.log_without(&["p@ss", "YWxpY2U6cEBzcw"]);
        let reason = application
            .reset()
            .expect("the dial has failed")
            .to_string();
        assert!(!reason.contains("p@ss"), "{reason}");
        reason
    });
    assert_eq!(reasons[0], reasons[1]);
    let [reason, _] = reasons;
    reason
}

#[test]
fn a_socks_proxy_connects() {
    let connect = || Exchange(CONNECT, GRANTED);
    granted(SOCKS, &[GREETING, connect()], b"");
    granted(
        SOCKS,
        &[GREETING, connect()],
        b"220 the server speaks first",
    );
    granted(SOCKS_USER, &[GREETING_OF_USER, ALICE, connect()], b"");
    // A proxy that needs no user.
    granted(
        SOCKS_USER,
        &[Exchange(&[5, 2, 0, 2], &[5, 0]), connect()],
        b"",
    );
    // The address of the answer has any form.
    granted(
        SOCKS,
        &[
            GREETING,
            Exchange(CONNECT, b"\x05\x00\x00\x03\x01a\x00\x50"),
        ],
        b"x",
    );
}

#[test]
fn a_destination_is_sent_as_it_was_given() {
    for (to, address) in [
        ("192.0.2.9:80", &b"\x01\xc0\x00\x02\x09\x00\x50"[..]),
        (
            "[2001:db8::1]:80",
            b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50",
        ),
        ("a.example:80", b"\x03\x09a.example\x00\x50"),
    ] {
        let mut world = World::of_streams(SOCKS);
        let (_, network) = world.dial(to).unwrap();
        network.read();
        world.say(&network, &[5, 0]);
        assert_eq!(network.read(), [b"\x05\x01\x00", address].concat());
    }
    let mut world = World::of_streams(HTTP);
    let (_, network) = world.dial("[2001:db8::1]:80").unwrap();
    let request = b"CONNECT [2001:db8::1]:80 HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n";
    assert_eq!(network.read(), request);
    assert_eq!(
        world.host.connected,
        ["proxy.example:8080".parse::<Destination>().unwrap()]
    );
}

#[test]
fn a_socks_proxys_refusal_is_said_in_words() {
    for (code, words) in [
        (1, "general failure (reply 1)"),
        (2, "not allowed by its rules (reply 2)"),
        (3, "network unreachable (reply 3)"),
        (4, "host unreachable (reply 4)"),
        (5, "connection refused (reply 5)"),
        (6, "TTL expired (reply 6)"),
        (7, "command not supported (reply 7)"),
        (8, "address type not supported (reply 8)"),
        (77, "unknown reply (reply 77)"),
    ] {
        let mut world = World::of_streams(SOCKS);
        let (application, network) = world.dial("example.com:443").unwrap();
        world.say(&network, &[5, 0]);
        world.say(&network, &[5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
        let reason = application.reset().unwrap().to_string();
        assert_eq!(reason, format!("the SOCKS5 proxy answered: {words}"));
    }
}

#[test]
fn a_handshake_fails_with_its_reason() {
    for (config, exchanges, reason) in [
        (
            SOCKS,
            &[Exchange(&[5, 1, 0], &[5, 0xff])][..],
            "the SOCKS5 proxy wants a user and a password",
        ),
        (
            SOCKS,
            &[Exchange(&[5, 1, 0], &[5, 2])],
            "the SOCKS5 proxy wants a user and a password",
        ),
        (
            SOCKS,
            &[Exchange(&[5, 1, 0], &[5, 1])],
            "the SOCKS5 proxy chose method 1, which was not offered",
        ),
        (
            SOCKS,
            &[Exchange(&[5, 1, 0], b"HT")],
            "the proxy does not speak SOCKS5",
        ),
        (
            SOCKS,
            &[GREETING, Exchange(CONNECT, b"\x04\x5a")],
            "the SOCKS5 proxy sent SOCKS4, not SOCKS5",
        ),
        (
            SOCKS,
            &[GREETING, Exchange(CONNECT, b"\x05\x00\x00\x07")],
            "the SOCKS5 proxy sent an unknown kind of address",
        ),
        (
            SOCKS_USER,
            &[Exchange(&[5, 2, 0, 2], &[5, 0xff])],
            "the SOCKS5 proxy accepts no user and password",
        ),
        (
            SOCKS_USER,
            &[
                GREETING_OF_USER,
                Exchange(b"\x01\x05alice\x04p@ss", &[1, 1]),
            ],
            "the SOCKS5 proxy refused the user or the password",
        ),
    ] {
        assert_eq!(refused(config, exchanges), reason);
    }
}

const REQUEST: &[u8] = b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n";
const REQUEST_OF_USER: &[u8] = b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\
    Proxy-Authorization: Basic YWxpY2U6cEBzcw==\r\n\r\n";

#[test]
fn an_http_proxy_connects() {
    for answer in [
        &b"HTTP/1.1 200 Connection established\r\n\r\n"[..],
        b"HTTP/1.0 200 OK\r\nServer: some\r\nContent-Length: 7\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
    ] {
        granted(HTTP, &[Exchange(REQUEST, answer)], b"");
        granted(
            HTTP,
            &[Exchange(REQUEST, answer)],
            b"220 the server speaks first",
        );
        granted(HTTP_USER, &[Exchange(REQUEST_OF_USER, answer)], b"x");
    }
}

#[test]
fn an_http_proxys_refusal_has_its_status() {
    for (answer, reason) in [
        (
            &b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n"[..],
            "the HTTP proxy answered: 407 Proxy Authentication Required (it wants another user or password)",
        ),
        (
            b"HTTP/1.1 503 No\tway\r\n\r\n",
            "the HTTP proxy answered: 503 Noway",
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n",
            "the HTTP proxy answered: 302 Found",
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "the HTTP proxy answered: 101 Switching Protocols",
        ),
        (b"\x05\xff", "the proxy does not speak HTTP"),
        (b"SSH-2.0-x\r\n", "the proxy does not speak HTTP"),
    ] {
        let mut world = World::of_streams(HTTP_USER);
        let (application, network) = world.dial("example.com:443").unwrap();
        world.say(&network, answer);
        assert_eq!(application.reset().unwrap().to_string(), reason);
        assert!(network.gone());
    }
}

#[test]
fn the_head_of_an_http_answer_has_a_bound() {
    let head = [b"HTTP/1.1 200 OK\r\nA: ", &[b'a'; 17_000][..], b"\r\n\r\n"].concat();
    for size in [1000, head.len()] {
        let mut world = World::of_streams(HTTP);
        let (application, network) = world.dial("example.com:443").unwrap();
        for part in head.chunks(size) {
            if !network.gone() {
                world.say(&network, part);
            }
        }
        let reason = application.reset().unwrap().to_string();
        assert_eq!(
            reason,
            "the answer of the HTTP proxy is longer than 16384 bytes"
        );
    }
}

#[test]
fn a_silent_proxy_is_given_up() {
    for config in [SOCKS, HTTP] {
        let mut world = World::of_streams(config);
        let (application, network) = world.dial("example.com:443").unwrap();
        world.advance(Duration::from_secs(59));
        assert!(!network.gone() && application.reset().is_none());
        world.advance(Duration::from_secs(2));
        assert_eq!(application.reset(), Some(ErrorCode::Timeout));
        assert!(network.gone());
        assert_eq!(world.counter("streams.handshake_timeouts"), 1);
    }
}

#[test]
fn a_proxy_that_hangs_up_fails_the_dial() {
    for config in [SOCKS, HTTP] {
        let mut world = World::of_streams(config);
        let (application, network) = world.dial("example.com:443").unwrap();
        network.close();
        world.run();
        let reason = application.reset().unwrap().to_string();
        assert_eq!(reason, "the network's stream ended in the handshake");
    }
}
