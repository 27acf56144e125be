//! Captures of packets and of session keys, as the user enables them.

mod support;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use boringtun::x25519::{PublicKey, StaticSecret};
use support::{Outer, Pair, SERVER, base64, peer_config, private_key, public_text};
use watm_core::capture::{Capture, Direction, set_provider};

const CLIENT_KEY: u8 = 1;
const SECOND: Duration = Duration::from_secs(1);

type Copy = (String, Direction, Vec<u8>);

thread_local! {
    static PACKETS: RefCell<Vec<Copy>> = const { RefCell::new(Vec::new()) };
    static SECRETS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static WANTED: Cell<(bool, bool)> = const { Cell::new((false, false)) };
}

struct User;

impl Capture for User {
    fn wants_packets(&self) -> bool {
        WANTED.get().0
    }

    fn wants_secrets(&self) -> bool {
        WANTED.get().1
    }

    fn packet(&self, peer: &str, direction: Direction, packet: &[u8]) {
        PACKETS.with_borrow_mut(|all| all.push((peer.to_owned(), direction, packet.to_vec())));
    }

    fn secret(&self, lines: &str) {
        SECRETS.with_borrow_mut(|all| all.push(lines.to_owned()));
    }
}

/// Two sides, with these captures enabled on both.
fn pair(packets: bool, secrets: bool) -> Pair {
    WANTED.set((packets, secrets));
    set_provider(Some(|| Some(Box::new(User))));
    let shared = format!("PresharedKey = {}\n", base64(&[77; 32]));
    let client = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.1/32\n[Watm]\nTarget = 10.9.8.7:80\n\
         [Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {SERVER}\n{shared}",
        base64(private_key(CLIENT_KEY).as_bytes()),
        public_text(support::SERVER_KEY),
    );
    let peer = peer_config(CLIENT_KEY, "AllowedIPs = 10.0.0.1/32") + &shared;
    let mut pair = Pair::new(&client, &support::server_config(&peer), Outer::Datagrams);
    pair.keep_seen = true;
    pair
}

/// A connection that carries data for longer than keys live.
fn talk(pair: &mut Pair) {
    let near = pair.dial(None).expect("dialled");
    for second in 0..130_u8 {
        near.write(&[second; 10]);
        pair.run_for(SECOND);
    }
    let far = pair.server.host.app.streams()[0].clone();
    assert_eq!(far.read().len(), 1300);
}

fn value<'a>(lines: &'a str, name: &str) -> &'a str {
    let mut found = lines.lines().filter_map(|line| line.strip_prefix(name));
    found
        .next()
        .expect(name)
        .strip_prefix(" = ")
        .expect("a value")
}

fn key(text: &str) -> [u8; 32] {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text);
    bytes.unwrap().try_into().unwrap()
}

#[test]
fn each_handshake_of_either_side_has_the_key_that_its_message_was_made_with() {
    let mut pair = pair(false, true);
    talk(&mut pair);
    let sent: BTreeSet<[u8; 32]> = pair
        .seen
        .iter()
        .filter_map(|datagram| match datagram[0] {
            1 => Some(datagram[8..40].try_into().unwrap()),
            2 => Some(datagram[12..44].try_into().unwrap()),
            _ => None,
        })
        .collect();
    let secrets = SECRETS.take();
    let logged = secrets.iter().map(|lines| {
        let private = key(value(lines, "LOCAL_EPHEMERAL_PRIVATE_KEY"));
        PublicKey::from(&StaticSecret::from(private)).to_bytes()
    });
    assert_eq!(logged.collect::<BTreeSet<_>>(), sent);
    // An initiation and a response, and again for the next keys.
    assert_eq!(secrets.len(), 4);
    let statics = [support::SERVER_KEY, CLIENT_KEY].map(|one| *private_key(one).as_bytes());
    for lines in &secrets {
        let own = key(value(lines, "LOCAL_STATIC_PRIVATE_KEY"));
        let other = key(value(lines, "REMOTE_STATIC_PUBLIC_KEY"));
        let place = statics.iter().position(|known| *known == own).unwrap();
        let theirs = StaticSecret::from(statics[1 - place]);
        assert_eq!(PublicKey::from(&theirs).to_bytes(), other);
        assert_eq!(key(value(lines, "PRESHARED_KEY")), [77; 32]);
        assert_eq!(lines.lines().count(), 4);
        assert!(lines.ends_with('\n'));
    }
    assert!(PACKETS.take().is_empty());
}

#[test]
fn packets_are_copied_as_they_are_in_the_tunnel() {
    let mut pair = pair(true, false);
    talk(&mut pair);
    let packets = PACKETS.take();
    let of = |peer: u8, direction: Direction| {
        let name = public_text(peer);
        let of_it = packets
            .iter()
            .filter(move |(peer, to, _)| *peer == name && *to == direction);
        of_it
            .map(|(_, _, packet)| packet.clone())
            .collect::<Vec<_>>()
    };
    // The server knows the client as its peer, and vice versa.
    let up = of(support::SERVER_KEY, Direction::ToPeer);
    let down = of(CLIENT_KEY, Direction::ToPeer);
    assert!(
        up.len() > 130 && down.len() > 100,
        "{} {}",
        up.len(),
        down.len()
    );
    assert_eq!(of(CLIENT_KEY, Direction::FromPeer), up);
    assert_eq!(of(support::SERVER_KEY, Direction::FromPeer), down);
    assert!(
        up.iter()
            .all(|packet| packet[0] == 0x45 && packet[12..16] == [10, 0, 0, 1])
    );
    assert!(SECRETS.take().is_empty());
}

#[test]
fn nothing_is_kept_for_nobody() {
    let mut pair = pair(false, false);
    talk(&mut pair);
    assert!(PACKETS.take().is_empty());
    assert!(SECRETS.take().is_empty());
    assert!(getrandom::take_keys().is_empty());
}
