//! Configurations and what is wrong with them. No error quotes a password.

use watm_core::{Destination, ErrorCode};
use watm_socks5::SocksStreams;
use watm_stream::StreamTransport;

const SECRET: &str = "hunter2";

fn refused(config: &str) -> String {
    match SocksStreams::configure(config.as_bytes()) {
        Ok(_) => panic!("accepted: {config}"),
        Err(error) => error.to_string(),
    }
}

fn outer(config: &str) -> Option<Destination> {
    let transport = SocksStreams::configure(config.as_bytes())
        .unwrap_or_else(|error| panic!("{config}: {error}"));
    transport.outer(None)
}

#[test]
fn what_is_wrong_is_said_without_the_secrets() {
    for (config, why) in [
        (
            "socks5://alice:hunter2@example.com:1080",
            "not a JSON object; expected an object such as",
        ),
        ("[\"hunter2\"]", "not a JSON object"),
        (
            "{\"server\": \"hunter2",
            "not JSON: EOF while parsing a string at line 1 column 19",
        ),
        (
            "{\"servers\": 1}",
            "unknown field `servers`, expected one of `users`, `server`",
        ),
        (
            "{\"user\": \"a\", \"user\": \"b\"}",
            "duplicate field `user`",
        ),
        ("{\"server\": 5}", "server: expected a URL such as"),
        (
            "{\"server\": \"example.com\"}",
            "server: expected a host and a port at its end",
        ),
        (
            "{\"server\": \"socks5://alice:hunter2@example.com\"}",
            "server: expected a host and a port at its end",
        ),
        (
            "{\"server\": \"https://alice:hunter2@example.com:443\"}",
            "server: TLS to a proxy is not supported",
        ),
        (
            "{\"server\": \"socks4://example.com:1080\"}",
            "server: SOCKS4 is not supported",
        ),
        (
            "{\"server\": \"ftp://hunter2:1080\"}",
            "server: unknown scheme",
        ),
        (
            "{\"server\": \"socks5://:hunter2@example.com:1080\"}",
            "server: expected NAME:PASSWORD before the @",
        ),
        (
            "{\"server\": \"socks5://a:%ffhunter2@example.com:1080\"}",
            "server: expected NAME:PASSWORD before the @",
        ),
        (
            "{\"server\": \"socks5://alice:hunter2@example.com:1080\", \"user\": \"bob\"}",
            "user: server has one too; remove one of them",
        ),
        (
            "{\"user\": \"alice\", \"password\": \"hunter2\"}",
            "server: missing; user needs one",
        ),
        (
            "{\"server\": \"a:1\", \"password\": \"hunter2\"}",
            "user: missing; password needs one",
        ),
        (
            "{\"server\": \"a:1\", \"user\": \"\"}",
            "user: expected a string of 1 to 255 bytes",
        ),
        (
            "{\"server\": \"a:1\", \"user\": \"a\", \"password\": 5}",
            "password: expected a string of at most 255 bytes",
        ),
        (
            "{\"server\": \"http://a:1\", \"user\": \"a:b\"}",
            "user: has a colon, which HTTP cannot express",
        ),
        (
            "{\"server\": \"http://a%3ab:c@a:1\"}",
            "user: has a colon, which HTTP cannot express",
        ),
        (
            "{\"target\": \"example.com\"}",
            "target: expected a host and a port",
        ),
        (
            "{\"udp_address\": \"example.com\"}",
            "udp_address: expected an address, such as",
        ),
        (
            "{\"udp_idle_timeout\": 9}",
            "udp_idle_timeout: expected a number of seconds from 10 to 86400",
        ),
        ("{\"users\": {}}", "users: expected a list"),
        (
            "{\"users\": []}",
            "users: an empty list; leave the field out to serve everybody",
        ),
        (
            "{\"users\": [\"hunter2\"]}",
            "users[0]: expected an object such as",
        ),
        (
            "{\"users\": [{\"name\": \"a\"}]}",
            "users[0].password: missing",
        ),
        (
            "{\"users\": [{\"name\": \"a\", \"password\": \"\"}]}",
            "users[0].password: expected a string of 1 to 255",
        ),
        (
            "{\"users\": [{\"name\": \"a\\n\", \"password\": \"b\"}]}",
            "users[0].name: has a control character",
        ),
        (
            "{\"users\": [{\"passwort\": \"hunter2\"}]}",
            "users[0]: unknown field `passwort`, expected `name` or `password`",
        ),
        (
            "{\"users\": [{\"name\": \"a\", \"password\": \"b\"}, {\"name\": \"a\", \"password\": \"hunter2\"}]}",
            "users[1].name: the name of an earlier user",
        ),
    ] {
        let error = refused(config);
        assert!(error.starts_with(why), "{config}: {error}");
        assert!(!error.contains(SECRET), "{error}");
    }
    let long = "a".repeat(256);
    let error = refused(&format!("{{\"server\": \"a:1\", \"user\": \"{long}\"}}"));
    assert!(error.starts_with("user: expected"), "{error}");
}

#[test]
fn a_proxy_is_a_url_or_a_host_and_a_port() {
    for (server, expected) in [
        ("example.com:1080", "example.com:1080"),
        ("socks5://example.com:1080", "example.com:1080"),
        ("SOCKS5H://example.com:1080/", "example.com:1080"),
        ("http://[2001:db8::1]:8080", "[2001:db8::1]:8080"),
        ("socks5://a:p%40ss@192.0.2.1:1080", "192.0.2.1:1080"),
        ("socks5://alice@192.0.2.1:1080", "192.0.2.1:1080"),
        // Not percent-encoded, but clear all the same.
        ("socks5://alice:p@ss@192.0.2.1:1080", "192.0.2.1:1080"),
    ] {
        let config = format!("{{\"server\": \"{server}\"}}");
        assert_eq!(outer(&config), Some(expected.parse().unwrap()), "{server}");
    }
    assert_eq!(outer(""), None);
    assert_eq!(outer("\u{feff}{\"udp_idle_timeout\": 10}\n"), None);
}

#[test]
fn a_dial_says_what_the_configuration_lacks() {
    let dial = |config: &str, to: Option<&str>| {
        let transport = SocksStreams::configure(config.as_bytes()).unwrap();
        let to: Option<Destination> = to.map(|to| to.parse().unwrap());
        match transport.dial(to.as_ref()) {
            Ok(_) => Ok(()),
            Err(ErrorCode::Other(why)) => Err(why),
            Err(other) => panic!("{other}"),
        }
    };
    let missing = "server: missing; there is no proxy to connect to";
    assert_eq!(dial("", Some("a:1")), Err(missing.to_owned()));
    let proxy = "{\"server\": \"a:1\"}";
    let missing = "target: missing, and no destination was given";
    assert_eq!(dial(proxy, None), Err(missing.to_owned()));
    assert_eq!(dial(proxy, Some("b:2")), Ok(()));
    assert_eq!(
        dial("{\"server\": \"a:1\", \"target\": \"b:2\"}", None),
        Ok(())
    );
}
