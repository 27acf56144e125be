//! Datagrams over streams: their parsing, encoding and bounds.

mod support;

use support::Random;
use support::host::{LOCAL, REMOTE, SimHost};
use watm_core::{Datagram, DatagramBatch, DatagramSocket, Ecn};
use watm_stream::{FramedSocket, FramedTokens};

struct Socket {
    host: SimHost,
    socket: FramedSocket,
    tokens: FramedTokens,
}

impl Socket {
    fn new() -> Socket {
        let mut host = SimHost::new();
        let (socket, tokens) = FramedSocket::open(&mut host, "listen").unwrap();
        Socket {
            host,
            socket,
            tokens,
        }
    }

    /// Reports ready tokens. Returns true if there were any.
    fn tell(&mut self) -> bool {
        let ready = self.host.take_ready();
        assert!(ready.iter().all(|token| self.tokens.ready(*token)));
        !ready.is_empty()
    }

    /// All received datagrams.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        self.tell();
        let mut datagrams = Vec::new();
        loop {
            let batch = self.socket.receive(64, 128 << 10).unwrap();
            datagrams.extend(batch.iter().map(|(_, datagram)| datagram.to_vec()));
            if batch.is_empty() && !self.tell() {
                return datagrams;
            }
        }
    }
}

fn framed(datagram: &[u8]) -> Vec<u8> {
    let mut framed = (datagram.len() as u16).to_be_bytes().to_vec();
    framed.extend(datagram);
    framed
}

fn batch(datagrams: &[Vec<u8>]) -> DatagramBatch {
    let mut batch = DatagramBatch::default();
    for datagram in datagrams {
        batch.payload.extend(datagram);
        batch.datagrams.push(Datagram {
            len: datagram.len() as u32,
            segment_size: None,
            remote: REMOTE.parse().unwrap(),
            local: None,
            ecn: Ecn::NotEct,
        });
    }
    batch
}

#[test]
fn datagrams_are_taken_apart_wherever_reads_end() {
    let mut random = Random(5);
    for _ in 0..20 {
        let mut socket = Socket::new();
        let datagrams: Vec<_> = (0..200)
            .map(|_| {
                let size = 1 + random.below(2000);
                random.bytes(size)
            })
            .collect();
        let stream = datagrams.iter().flat_map(|datagram| framed(datagram));
        let stream: Vec<u8> = stream.collect();
        let cut = random.below(stream.len());
        socket.host.arrive(&stream[..cut]);
        let mut received = socket.receive();
        for part in stream[cut..].chunks(1 + random.below(40_000)) {
            socket.host.connections()[0].write(part);
            received.extend(socket.receive());
        }
        assert!(received == datagrams);
    }
}

#[test]
fn the_longest_and_the_empty_datagram() {
    let mut socket = Socket::new();
    let longest = vec![3; 65_535];
    let stream = [framed(b""), framed(&longest), framed(b"short")].concat();
    socket.host.arrive(&stream);
    assert!(socket.receive() == [longest, b"short".to_vec()]);
    assert_eq!(socket.socket.local_address(), LOCAL.parse().unwrap());
}

#[test]
fn limits_of_a_receive_hold_and_the_rest_comes_with_the_next() {
    let mut socket = Socket::new();
    let stream: Vec<u8> = (0..10u8)
        .flat_map(|number| framed(&[number; 100]))
        .collect();
    socket.host.arrive(&stream);
    socket.tell();
    for (max_datagrams, max_bytes, expected) in [(3, 10_000, 3), (64, 450, 4), (64, 10_000, 3)] {
        let batch = socket.socket.receive(max_datagrams, max_bytes).unwrap();
        assert_eq!(batch.datagrams.len(), expected);
        assert!(
            batch
                .datagrams
                .iter()
                .all(|entry| entry.remote == REMOTE.parse().unwrap())
        );
    }
    assert!(socket.socket.receive(64, 10_000).unwrap().is_empty());
}

#[test]
fn what_is_sent_has_its_length_before_it_and_trains_are_taken_apart() {
    let mut socket = Socket::new();
    socket.host.arrive(&framed(b"hello"));
    socket.receive();
    let mut train = batch(&[vec![1; 250]]);
    train.datagrams[0].segment_size = Some(100);
    assert_eq!(socket.socket.send(&train), Ok(1));
    let sent = socket.host.connections()[0].read();
    assert_eq!(
        sent,
        [framed(&[1; 100]), framed(&[1; 100]), framed(&[1; 50])].concat()
    );

    // A datagram to an unconnected address.
    let mut stray = batch(&[b"lost".to_vec()]);
    stray.datagrams[0].remote = LOCAL.parse().unwrap();
    assert_eq!(socket.socket.send(&stray), Ok(1));
    assert!(socket.host.connections()[0].read().is_empty());
}

#[test]
fn what_waits_for_a_stream_is_bounded_and_never_cut() {
    let mut socket = Socket::new();
    socket.host.arrive(&framed(b"hello"));
    socket.receive();
    let connection = socket.host.connections()[0].clone();
    connection.set_room(1001);
    let datagrams: Vec<_> = (0..2000u32)
        .map(|number| number.to_be_bytes().repeat(100))
        .collect();
    for datagrams in datagrams.chunks(50) {
        assert_eq!(
            socket.socket.send(&batch(datagrams)),
            Ok(datagrams.len() as u32)
        );
    }
    let mut received = connection.read();
    while socket.tell() {
        received.extend(connection.read());
    }
    assert!(received.len() <= (256 << 10) + 1001, "{}", received.len());
    let whole: Vec<u8> = datagrams
        .iter()
        .flat_map(|datagram| framed(datagram))
        .collect();
    assert!(received.len() > 200 << 10 && whole.starts_with(&received));
    assert_eq!(received.len() % 402, 0);
}

#[test]
fn a_connection_that_ends_is_let_go() {
    let mut socket = Socket::new();
    socket.host.arrive(&framed(b"one"));
    socket.host.arrive(&framed(b"two"));
    assert_eq!(socket.receive(), [b"one", b"two"]);
    let [ended, broken] = [0, 1].map(|number| socket.host.connections()[number].clone());
    ended.write(&framed(b"last")[..4]);
    ended.close();
    broken.abort();
    assert!(socket.receive().is_empty());
    assert!(ended.gone() && ended.finished() && broken.gone() && !broken.finished());
}

#[test]
fn the_most_silent_makes_way_when_there_are_too_many() {
    let mut socket = Socket::new();
    for _ in 0..1024 {
        socket.host.arrive(&framed(b"hello"));
    }
    assert_eq!(socket.receive().len(), 1024);
    socket.host.connections()[0].write(&framed(b"still here"));
    socket.receive();
    socket.host.arrive(&framed(b"new"));
    assert_eq!(socket.receive(), [b"new"]);
    let connections = socket.host.connections();
    assert!(!connections[0].gone() && connections[1].gone() && !connections[1024].gone());
}
