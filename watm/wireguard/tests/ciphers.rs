//! The host's cipher for batches: one call for many packets of a session, with the results of one call
//! for each.

mod support;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use chacha20poly1305::{AeadInPlace, ChaCha20Poly1305, KeyInit};
use support::Sim;
use support::inner::packets;
use watm_core::crypto::{self, AeadKey, Algorithm, Opened, Text};

/// The bytes of the header of a data packet.
const HEADER: usize = 16;

/// The numbers of texts that were sealed, and opened, in one call.
#[derive(Default)]
struct Calls {
    sealed: Vec<usize>,
    opened: Vec<usize>,
}

thread_local! {
    static CALLS: RefCell<Calls> = RefCell::default();
}

/// A host's cipher. Batches are counted.
struct Host(ChaCha20Poly1305);

impl AeadKey for Host {
    fn seal(&self, nonce: &[u8; 12], aad: &[u8], in_out: &mut [u8]) -> [u8; 16] {
        let tag = self
            .0
            .encrypt_in_place_detached(nonce.into(), aad, in_out)
            .unwrap();
        tag.into()
    }

    fn open(&self, nonce: &[u8; 12], aad: &[u8], in_out: &mut [u8]) -> bool {
        let (text, tag) = in_out.split_last_chunk_mut::<16>().unwrap();
        self.0
            .decrypt_in_place_detached(nonce.into(), aad, text, (&*tag).into())
            .is_ok()
    }

    fn seal_all(&self, texts: &[Text], buffer: &[u8]) -> Vec<u8> {
        CALLS.with_borrow_mut(|calls| calls.sealed.push(texts.len()));
        let mut buffer = buffer.to_vec();
        for text in texts {
            let (plain, tag) = buffer[text.begin..][..text.len].split_at_mut(text.len - 16);
            tag.copy_from_slice(&self.seal(&text.nonce, &[], plain));
        }
        buffer
    }

    fn open_all(&self, texts: &[Text], buffer: &[u8]) -> Opened {
        CALLS.with_borrow_mut(|calls| calls.opened.push(texts.len()));
        let mut buffer = buffer.to_vec();
        let mut authentic = Vec::new();
        for text in texts {
            authentic.push(self.open(&text.nonce, &[], &mut buffer[text.begin..][..text.len]));
        }
        Opened { buffer, authentic }
    }
}

fn grant(algorithm: Algorithm, key: &[u8]) -> Option<Arc<dyn AeadKey>> {
    assert_eq!(algorithm, Algorithm::Chacha20Poly1305);
    Some(Arc::new(Host(
        ChaCha20Poly1305::new_from_slice(key).unwrap(),
    )))
}

fn calls() -> Calls {
    CALLS.take()
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A packet whose content is `number` a thousand times.
fn packet(number: u8) -> Vec<u8> {
    packets::udp(
        address("10.0.0.2:5000"),
        address("10.9.8.7:53"),
        &[number; 1000],
    )
}

/// A server with a client whose first packet has arrived: the key of its session is known.
fn met() -> Sim {
    crypto::set_provider(Some(grant));
    let mut sim = Sim::with_one_client();
    // The first packet waits for the handshake.
    for number in [250, 251] {
        sim.send(0, &packet(number));
        sim.settle();
    }
    assert_eq!(contents(&sim), [250, 251]);
    calls();
    sim
}

/// The numbers of the packets that have arrived at the application since the last call.
fn contents(sim: &Sim) -> Vec<u8> {
    let flows = sim.host.app.flows();
    let read = flows.last().expect("a flow").read();
    for content in &read {
        assert_eq!(*content, [content[0]; 1000]);
    }
    read.iter().map(|content| content[0]).collect()
}

/// Returns the datagrams of packets with these numbers, which the client keeps back.
fn datagrams(sim: &mut Sim, numbers: std::ops::Range<u8>) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; 2000];
    numbers
        .map(|number| {
            let sealed = sim.clients[0]
                .tunn
                .encapsulate(&packet(number), &mut buffer);
            match sealed {
                boringtun::noise::TunnResult::WriteToNetwork(datagram) => datagram.to_vec(),
                other => panic!("{other:?}"),
            }
        })
        .collect()
}

fn inject(sim: &mut Sim, datagrams: &[Vec<u8>]) {
    let from = sim.clients[0].address;
    for datagram in datagrams {
        sim.inject(from, datagram);
    }
    sim.settle();
}

#[test]
fn packets_that_arrive_together_are_opened_in_one_call() {
    let mut sim = met();
    let sent = datagrams(&mut sim, 0..40);
    inject(&mut sim, &sent);
    assert_eq!(contents(&sim), (0..40).collect::<Vec<_>>());
    assert_eq!(calls().opened, [40]);
    // A call for one packet has no batch.
    let sent = datagrams(&mut sim, 40..41);
    inject(&mut sim, &sent);
    assert_eq!(contents(&sim), [40]);
    assert!(calls().opened.is_empty());
}

#[test]
fn a_packet_of_a_batch_is_dropped_for_itself_alone() {
    let mut sim = met();
    let genuine = datagrams(&mut sim, 0..10);
    let mut sent = genuine.clone();
    // A forgery with the counter of a packet that follows it, and one that comes alone.
    let mut forged = genuine[3].clone();
    forged[HEADER + 5] ^= 1;
    sent.insert(3, forged);
    sent[8][HEADER + 900] ^= 1;
    // A repetition, and noise between the packets.
    sent.push(genuine[2].clone());
    sent.insert(5, vec![4, 0, 0, 0, 1, 2, 3]);
    inject(&mut sim, &sent);
    assert_eq!(contents(&sim), [0, 1, 2, 3, 4, 5, 6, 8, 9]);
    assert_eq!(sim.counter("wireguard.dropped.not_authentic"), 2);
    assert_eq!(sim.counter("wireguard.dropped.replay"), 1);
    assert_eq!(calls().opened, [5, 7]);
    // The packet that was damaged is accepted later.
    inject(&mut sim, &genuine[7..8]);
    assert_eq!(contents(&sim), [7]);
}

#[test]
fn a_key_that_is_gone_opens_nothing() {
    let mut sim = met();
    let old = datagrams(&mut sim, 0..3);
    // Three handshakes later the session is forgotten.
    for _ in 0..3 {
        sim.run_for(std::time::Duration::from_secs(1));
        let now = sim.now();
        sim.clients[0].handshake(now);
        sim.settle();
        let sent = datagrams(&mut sim, 100..110);
        inject(&mut sim, &sent);
        assert_eq!(contents(&sim), (100..110).collect::<Vec<_>>());
    }
    sim.run_for(std::time::Duration::from_secs(300));
    calls();
    inject(&mut sim, &old);
    assert!(contents(&sim).is_empty());
    assert!(calls().opened.is_empty());
}

#[test]
fn packets_that_leave_together_are_sealed_in_one_call() {
    let mut sim = met();
    let flow = sim.host.app.flows().last().expect("a flow").clone();
    for number in 0..40 {
        flow.write(&[number; 1000]);
    }
    sim.settle();
    assert_eq!(received(&mut sim), (0..40).collect::<Vec<_>>());
    assert_eq!(calls().sealed, [40]);
}

#[test]
fn packets_that_wait_for_the_network_are_sealed_once() {
    let mut sim = met();
    let flow = sim.host.app.flows().last().expect("a flow").clone();
    sim.host.set_room(1);
    for number in 0..100 {
        flow.write(&[number; 1000]);
    }
    sim.settle();
    sim.host.set_room(0);
    for number in 100..110 {
        flow.write(&[number; 1000]);
    }
    sim.settle();
    sim.host.set_room(usize::MAX);
    sim.settle();
    assert_eq!(received(&mut sim), (0..110).collect::<Vec<_>>());
    assert_eq!(calls().sealed.iter().sum::<usize>(), 110);
}

/// The numbers of the packets that the client has received since the last call.
fn received(sim: &mut Sim) -> Vec<u8> {
    let packets = std::mem::take(&mut sim.clients[0].received);
    let content = |packet: &Vec<u8>| {
        let (_, _, data) = packets::read_udp(packet);
        assert_eq!(data, [data[0]; 1000]);
        data[0]
    };
    packets.iter().map(content).collect()
}
