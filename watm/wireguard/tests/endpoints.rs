//! The search for a peer: endpoints that are names.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use support::{Directory, Outer, Pair, SERVER, base64, peer_config, private_key, public_text};
use watm_core::{ErrorCode, Level};

const CLIENT_KEY: u8 = 1;
const NAME: &str = "vpn.example.org";
const SECOND: Duration = Duration::from_secs(1);

/// A client whose server has this Endpoint, with a directory of names.
fn pair(endpoint: &str, keepalive: &str) -> (Pair, Directory) {
    pair_over(Outer::Datagrams, endpoint, keepalive)
}

fn pair_over(outer: Outer, endpoint: &str, keepalive: &str) -> (Pair, Directory) {
    let client = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.1/32\n[Watm]\nTarget = 10.9.8.7:80\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {endpoint}\n{keepalive}\n",
        base64(private_key(CLIENT_KEY).as_bytes()),
        public_text(support::SERVER_KEY),
    );
    let server = support::server_config(&peer_config(CLIENT_KEY, "AllowedIPs = 10.0.0.1/32"));
    let mut pair = Pair::new(&client, &server, outer);
    let directory = Directory::default();
    pair.client.host.directory = Some(directory.clone());
    (pair, directory)
}

fn usual() -> (Pair, Directory) {
    pair(&format!("{NAME}:51820"), "")
}

/// Returns true if a stream dialled now arrives within this many seconds.
fn arrives_within(pair: &mut Pair, seconds: u32) -> bool {
    let Ok(stream) = pair.dial(None) else {
        return false;
    };
    stream.write(b"hello");
    let before = pair.server.host.app.streams().len();
    for _ in 0..seconds * 10 {
        pair.run_for(SECOND / 10);
        if pair.server.host.app.streams().len() > before {
            return true;
        }
    }
    false
}

fn strays_to(pair: &Pair, address: &str) -> usize {
    let address: SocketAddr = address.parse().unwrap();
    pair.stray.iter().filter(|(to, _)| *to == address).count()
}

#[test]
fn a_name_is_looked_up_once_and_what_was_dialled_before_waits_for_it() {
    let (mut pair, directory) = usual();
    let stream = pair.dial(None).unwrap();
    stream.write(b"early");
    pair.run_for(SECOND / 2);
    assert_eq!(directory.take_asked(), [format!("{NAME}:51820")]);
    directory.set(NAME, Ok("192.0.2.1"));
    // It arrives at once, and not with the first retransmission.
    pair.run_for(SECOND / 100);
    assert_eq!(pair.server.host.app.streams()[0].read(), b"early");
    assert!(arrives_within(&mut pair, 1));
    assert!(directory.take_asked().is_empty());
}

#[test]
fn addresses_are_tried_in_turn_and_then_the_name_is_looked_up_again() {
    let (mut pair, directory) = usual();
    directory.set(NAME, Ok("192.0.2.7,2001:db8::7"));
    assert!(!arrives_within(&mut pair, 40));
    let first = strays_to(&pair, "192.0.2.7:51820");
    let second = strays_to(&pair, "[2001:db8::7]:51820");
    assert!(first >= 3 && second >= 3, "{first} and {second}");
    assert!(
        first + second <= 14,
        "one in five seconds, and at once elsewhere"
    );
    let asked = directory.take_asked().len();
    assert!((2..=4).contains(&asked), "{asked} times");
    directory.set(NAME, Ok("192.0.2.7,192.0.2.1"));
    assert!(arrives_within(&mut pair, 60));
    // The peer stays where it answers.
    pair.run_for(10 * SECOND);
    directory.take_asked();
    pair.run_for(600 * SECOND);
    assert!(directory.take_asked().is_empty());
}

#[test]
fn a_server_that_has_moved_is_found_by_its_name() {
    let (mut pair, directory) = pair(&format!("{NAME}:51820"), "PersistentKeepalive = 25");
    directory.set(NAME, Ok("192.0.2.1"));
    assert!(arrives_within(&mut pair, 1));
    pair.server_at = "192.0.2.99:51820".parse().unwrap();
    directory.set(NAME, Ok("192.0.2.99"));
    // 15 seconds until it is missed, 10 for three handshakes.
    let stream = pair.dial(None).unwrap();
    stream.write(b"again");
    pair.run_for(45 * SECOND);
    let far = pair.server.host.app.streams().last().unwrap().clone();
    assert_eq!(far.read(), b"again");
}

#[test]
fn what_cannot_be_looked_up_is_told_and_tried_again_with_patience() {
    for (code, text) in [
        (
            ErrorCode::AccessDenied,
            "resolving it is not allowed; allow udp://vpn.example.org:51820, or write an address \
             and a \
             port",
        ),
        (ErrorCode::NameUnresolvable, "name unresolvable; retrying"),
    ] {
        let (mut pair, directory) = usual();
        directory.set(NAME, Err(code.clone()));
        pair.run_for(600 * SECOND);
        let asked = directory.take_asked().len();
        assert!((5..=10).contains(&asked), "{asked} times in ten minutes");
        let warnings: Vec<_> = pair
            .client
            .host
            .logs
            .iter()
            .filter(|(level, _)| *level == Level::Warn)
            .map(|(_, text)| text.clone())
            .collect();
        let key = public_text(support::SERVER_KEY);
        let expected = format!("the Endpoint {NAME}:51820 of peer {key}: {text}");
        assert_eq!(warnings, [expected]);
        assert_eq!(pair.dial(None).err(), Some(code));
        // The dial has started another lookup, which the next one uses.
        directory.set(NAME, Ok("192.0.2.1"));
        pair.dial(None).err().expect("not known yet");
        pair.run_for(SECOND);
        assert!(arrives_within(&mut pair, 1));
    }
}

#[test]
fn where_no_names_are_looked_up_an_address_is_asked_for() {
    let (mut pair, _) = usual();
    pair.client.host.directory = None;
    assert_eq!(
        pair.dial(None).err().expect("refused").to_string(),
        format!(
            "the Endpoint {NAME}:51820: names cannot be resolved here; write an address and a port"
        )
    );
}

#[test]
fn another_name_is_looked_up_when_the_configuration_changes() {
    let (mut pair, directory) = usual();
    directory.set(NAME, Ok("192.0.2.7"));
    pair.run_for(SECOND);
    directory.take_asked();
    let config = support::server_config(&peer_config(
        2,
        "AllowedIPs = 10.0.0.0/8\nEndpoint = other.example.org:7\nPersistentKeepalive = 10",
    ));
    directory.set("other.example.org", Ok("203.0.113.9"));
    pair.reconfigure_client(&config).unwrap();
    pair.run_for(2 * SECOND);
    assert_eq!(directory.take_asked(), ["other.example.org:7"]);
    assert_eq!(strays_to(&pair, "203.0.113.9:7"), 1);
}

#[test]
fn an_address_needs_nobody() {
    let (mut pair, directory) = pair(SERVER, "");
    assert!(arrives_within(&mut pair, 1));
    assert!(directory.take_asked().is_empty());
}

#[test]
fn over_streams_the_connection_is_made_once_the_address_is_known() {
    let (mut pair, directory) = pair_over(Outer::Streams, &format!("{NAME}:51820"), "");
    let stream = pair.dial(None).unwrap();
    stream.write(b"early");
    pair.run_for(SECOND / 2);
    let streams = pair.client.host.streams.clone().expect("streams");
    assert_eq!(streams.connect_tries(), 0);
    directory.set(NAME, Ok("192.0.2.1"));
    pair.run_for(SECOND);
    assert_eq!(streams.connect_tries(), 1);
    assert_eq!(pair.server.host.app.streams()[0].read(), b"early");
    assert!(arrives_within(&mut pair, 1));
}
