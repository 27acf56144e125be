//! The handshake (WireGuard paper, section 5.4) with another implementation of the Noise framework
//! at the other end, which is told the pattern and nothing else of WireGuard.

mod support;

use std::net::SocketAddr;

use blake2::digest::Mac;
use blake2::digest::consts::U16;
use blake2::{Blake2s256, Blake2sMac, Digest};
use snow::{Builder, HandshakeState, StatelessTransportState};
use support::inner::packets;
use support::{SERVER_KEY, Sim, base64, peer_config, private_key, public_key, server_config};

const PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const PROLOGUE: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";

/// The number of the peer's key.
const PEER: u8 = 1;
/// The peer's index of its session.
const INDEX: [u8; 4] = [7, 8, 9, 10];

/// A TAI64N timestamp, of 2026.
const TIME: [u8; 12] = [0x40, 0, 0, 0, 0x6a, 0, 0, 0, 0, 0, 0, 1];

/// The length of the Noise message in an initiation: an ephemeral key, a sealed key, a sealed
/// timestamp.
const OF_INITIATION: usize = 32 + 48 + 28;
/// The length of the Noise message in a response: an ephemeral key, and an empty sealed payload.
const OF_RESPONSE: usize = 32 + 16;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn peer_address() -> SocketAddr {
    address("198.51.100.9:9")
}

fn noise<'a>(
    key: &'a [u8; 32],
    psk: &'a [u8; 32],
    pattern: &str,
    prologue: &'a [u8],
) -> Builder<'a> {
    Builder::new(pattern.parse().unwrap())
        .local_private_key(key)
        .and_then(|builder| builder.psk(2, psk))
        .and_then(|builder| builder.prologue(prologue))
        .unwrap()
}

/// The peer as the initiator, with its own key or another one.
fn initiator(pattern: &str, prologue: &[u8], psk: &[u8; 32], key: u8) -> HandshakeState {
    let (own, server) = (private_key(key).to_bytes(), public_key(SERVER_KEY));
    noise(&own, psk, pattern, prologue)
        .remote_public_key(server.as_bytes())
        .and_then(Builder::build_initiator)
        .unwrap()
}

/// Appends mac1, which proves that the sender knows the receiver's key, and an empty mac2 (section
/// 5.4.4).
fn with_macs(mut message: Vec<u8>, receiver: u8) -> Vec<u8> {
    let mac = mac1(&message, receiver);
    message.extend(mac);
    message.extend([0; 16]);
    message
}

fn mac1(message: &[u8], receiver: u8) -> [u8; 16] {
    let mut key = Blake2s256::new();
    key.update(b"mac1----");
    key.update(public_key(receiver).as_bytes());
    let mut mac = Blake2sMac::<U16>::new_from_slice(&key.finalize()).unwrap();
    Mac::update(&mut mac, message);
    mac.finalize().into_bytes().into()
}

fn initiation(noise: &mut HandshakeState, time: [u8; 12]) -> Vec<u8> {
    let mut said = [0; OF_INITIATION];
    assert_eq!(noise.write_message(&time, &mut said).unwrap(), said.len());
    [&[1, 0, 0, 0], &INDEX[..], &said].concat()
}

/// The server's datagrams to the address of the peer.
fn answers(sim: &mut Sim) -> Vec<Vec<u8>> {
    sim.settle();
    let stray = std::mem::take(&mut sim.stray).into_iter();
    stray
        .map(|(to, datagram)| {
            assert_eq!(to, peer_address());
            datagram
        })
        .collect()
}

fn server(psk: Option<[u8; 32]>) -> Sim {
    let psk = psk.map_or_else(String::new, |psk| {
        format!("PresharedKey = {}\n", base64(&psk))
    });
    let peer = peer_config(PEER, &format!("AllowedIPs = 10.0.0.0/24\n{psk}"));
    Sim::new(&server_config(&format!(
        "{peer}[Watm]\nHandshakesPerSecond = 100000\n"
    )))
}

/// Pads an inner packet to a length that may be sealed (section 5.4.6).
fn padded(mut packet: Vec<u8>) -> Vec<u8> {
    packet.resize(packet.len().next_multiple_of(16), 0);
    packet
}

fn data(noise: &StatelessTransportState, receiver: &[u8], counter: u64, text: &[u8]) -> Vec<u8> {
    let mut sealed = vec![0; text.len() + 16];
    assert_eq!(
        noise.write_message(counter, text, &mut sealed).unwrap(),
        sealed.len()
    );
    [&[4, 0, 0, 0], receiver, &counter.to_le_bytes(), &sealed].concat()
}

fn opened(noise: &StatelessTransportState, datagram: &[u8]) -> Vec<u8> {
    assert_eq!(datagram[..4], [4, 0, 0, 0]);
    assert_eq!(datagram[4..8], INDEX);
    let counter = u64::from_le_bytes(datagram[8..16].try_into().unwrap());
    let mut text = vec![0; datagram.len()];
    let len = noise
        .read_message(counter, &datagram[16..], &mut text)
        .unwrap();
    text.truncate(len);
    text
}

/// Processes the server's response to the initiation, and makes the session.
fn session(
    mut noise: HandshakeState,
    response: &[u8],
) -> Result<StatelessTransportState, snow::Error> {
    assert_eq!(response.len(), 12 + OF_RESPONSE + 32);
    assert_eq!(response[..4], [2, 0, 0, 0]);
    assert_eq!(response[8..12], INDEX);
    let (signed, macs) = response.split_at(12 + OF_RESPONSE);
    assert_eq!(macs[..16], mac1(signed, PEER));
    assert_eq!(macs[16..], [0; 16]);
    assert_eq!(noise.read_message(&signed[12..], &mut [0; 64])?, 0);
    noise.into_stateless_transport_mode()
}

#[test]
fn a_peer_by_another_implementation_is_answered_heard_and_told() {
    for psk in [None, Some([9; 32])] {
        let mut sim = server(psk);
        let mut noise = initiator(PATTERN, PROLOGUE, &psk.unwrap_or_default(), PEER);
        let first = with_macs(initiation(&mut noise, TIME), SERVER_KEY);
        sim.inject(peer_address(), &first);
        let [response] = &answers(&mut sim)[..] else {
            panic!("one answer");
        };
        let session = session(noise, response).expect("by the same keys");

        let packet = packets::udp(address("10.0.0.1:5"), address("192.168.0.1:9"), b"question");
        let question = data(&session, &response[4..8], 0, &padded(packet));
        sim.inject(peer_address(), &question);
        answers(&mut sim);
        let [flow] = sim.host.app.flows() else {
            panic!("one flow");
        };
        let flow = flow.clone();
        assert_eq!(flow.read(), [b"question"]);
        assert_eq!(flow.info().peer, Some(support::public_text(PEER)));
        flow.write(b"answer");
        let told = answers(&mut sim);
        let text = opened(&session, told.last().expect("an answer"));
        let len = usize::from(u16::from_be_bytes([text[2], text[3]]));
        assert_eq!(packets::read_udp(&text[..len]).2, b"answer");
        assert_eq!(sim.counter("wireguard.handshakes"), 1);
        // Repetitions are neither accepted nor answered.
        sim.inject(peer_address(), &question);
        sim.inject(peer_address(), &first);
        assert_eq!(answers(&mut sim), Vec::<Vec<u8>>::new());
        assert_eq!(flow.read(), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn a_message_with_one_bit_changed_is_not_answered() {
    let mut sim = server(None);
    let mut noise = initiator(PATTERN, PROLOGUE, &[0; 32], PEER);
    let message = initiation(&mut noise, TIME);
    for place in 8..message.len() {
        for bit in [1, 0x80] {
            let mut changed = message.clone();
            changed[place] ^= bit;
            sim.inject(peer_address(), &with_macs(changed, SERVER_KEY));
            assert_eq!(
                answers(&mut sim),
                Vec::<Vec<u8>>::new(),
                "bit {bit} of byte {place}"
            );
        }
    }
    sim.inject(peer_address(), &with_macs(message, SERVER_KEY));
    assert_eq!(answers(&mut sim).len(), 1, "unchanged it is answered");
}

#[test]
fn what_is_made_with_something_else_is_not_answered() {
    let other: &[u8] = b"WireGuard v2 zx2c4 Jason@zx2c4.com";
    for (pattern, prologue, key, answers_to) in [
        (PATTERN, PROLOGUE, PEER, 1),
        ("Noise_IKpsk2_25519_ChaChaPoly_BLAKE2b", PROLOGUE, PEER, 0),
        ("Noise_IK_25519_ChaChaPoly_BLAKE2s", PROLOGUE, PEER, 0),
        (PATTERN, other, PEER, 0),
        (PATTERN, PROLOGUE, PEER + 1, 0),
    ] {
        let mut sim = server(None);
        let mut noise = initiator(pattern, prologue, &[0; 32], key);
        let message = initiation(&mut noise, TIME);
        sim.inject(peer_address(), &with_macs(message.clone(), SERVER_KEY + 1));
        assert_eq!(
            answers(&mut sim).len(),
            0,
            "{pattern}: for another receiver"
        );
        sim.inject(peer_address(), &with_macs(message, SERVER_KEY));
        assert_eq!(answers(&mut sim).len(), answers_to, "{pattern}");
    }
}

#[test]
fn a_wrong_preshared_key_makes_no_session() {
    let mut sim = server(Some([9; 32]));
    let mut noise = initiator(PATTERN, PROLOGUE, &[8; 32], PEER);
    let first = with_macs(initiation(&mut noise, TIME), SERVER_KEY);
    sim.inject(peer_address(), &first);
    let [response] = &answers(&mut sim)[..] else {
        panic!("the key comes into the response first");
    };
    assert!(session(noise, response).is_err());
}

#[test]
fn a_responder_by_another_implementation_is_called_and_talked_to() {
    let psk = [9; 32];
    let config = format!(
        "[Interface]\nPrivateKey = {}\nAddress = 10.0.0.1/32\n[Watm]\nTarget = 10.9.8.7:80\n[Peer]\n\
         PublicKey = {}\nPresharedKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {}\nPersistentKeepalive = 25\n",
        base64(private_key(SERVER_KEY).as_bytes()),
        support::public_text(PEER),
        base64(&psk),
        peer_address(),
    );
    let mut sim = Sim::new(&config);
    let [first] = &answers(&mut sim)[..] else {
        panic!("one initiation");
    };
    assert_eq!(first.len(), 8 + OF_INITIATION + 32);
    assert_eq!(first[..4], [1, 0, 0, 0]);
    let (signed, macs) = first.split_at(8 + OF_INITIATION);
    assert_eq!(macs[..16], mac1(signed, PEER));
    let own = private_key(PEER).to_bytes();
    let mut noise = noise(&own, &psk, PATTERN, PROLOGUE)
        .build_responder()
        .unwrap();
    let mut time = [0; 64];
    assert_eq!(
        noise.read_message(&signed[8..], &mut time).unwrap(),
        TIME.len()
    );
    assert_eq!(
        noise.get_remote_static(),
        Some(&public_key(SERVER_KEY).as_bytes()[..])
    );
    // The timestamp is after 1970.
    assert!(time[..8] >= [0x40, 0, 0, 0, 0, 0, 0, 10][..]);

    let mut said = [0; OF_RESPONSE];
    noise.write_message(&[], &mut said).unwrap();
    let response = [&[2, 0, 0, 0], &INDEX, &first[4..8], &said].concat();
    let mut damaged = response.clone();
    damaged[20] ^= 1;
    sim.inject(peer_address(), &with_macs(damaged, SERVER_KEY));
    assert_eq!(answers(&mut sim), Vec::<Vec<u8>>::new());
    sim.inject(peer_address(), &with_macs(response, SERVER_KEY));
    let [keepalive] = &answers(&mut sim)[..] else {
        panic!("the session is confirmed");
    };
    let session = noise.into_stateless_transport_mode().unwrap();
    assert_eq!(opened(&session, keepalive), b"");
}
