//! Long segments and partial checksums, which a device with offloads leaves to the module, and takes.

mod support;

use std::cell::RefCell;
use std::time::Duration;

use support::{
    Application, Entry, Post, arrive_unfinished, counter, grant, grant_with_offloads, options, run,
    run_for, sent, sent_entries, start_with, tcp, udp,
};
use watm_core::capture::{Capture, Direction, set_provider};
use watm_core::packets::{Checksum, PacketInfo};
use watm_core::{Instant, Transport};
use watm_tun::Tun;

/// The flags of a segment.
const SYN: u8 = 2;
const ACK: u8 = 16;

/// The bytes of the header of IPv4, and of those of IPv4 and TCP.
const IP: usize = 20;
const HEADERS: usize = 40;

/// An entry with a partial checksum, whose field is at `offset` in the header of its protocol.
fn partial(offset: u16, segment_size: Option<u16>) -> PacketInfo {
    PacketInfo {
        checksum: Checksum::Partial {
            start: IP as u16,
            offset,
        },
        segment_size,
        ..PacketInfo::default()
    }
}

fn with(config: &str) -> (Tun, Application) {
    grant_with_offloads();
    let mut host = Application::new(0, &Post::default());
    let tun = start_with(config, &mut host);
    (tun, host)
}

/// Opens a connection. Returns the number of the program's first byte, and of the server's.
fn connect(tun: &mut Tun, host: &mut Application) -> (u32, u32) {
    let answer = exchange(tcp(99, 0, SYN, b""), tun, host);
    let theirs = u32::from_be_bytes(answer[IP + 4..IP + 8].try_into().expect("four bytes"));
    arrive_unfinished(
        tcp(100, theirs.wrapping_add(1), ACK, b""),
        partial(16, None),
    );
    run(tun, &[0], host);
    (100, theirs.wrapping_add(1))
}

/// Passes a segment without a checksum. Returns the first packet that leaves.
fn exchange(packet: Vec<u8>, tun: &mut Tun, host: &mut Application) -> Vec<u8> {
    arrive_unfinished(packet, partial(16, None));
    run(tun, &[0], host);
    sent().remove(0)
}

/// Has the application send 4,000 bytes on a new connection.
fn send(tun: &mut Tun, host: &mut Application) -> Vec<Entry> {
    connect(tun, host);
    let token = host.answer(&[7; 4000]);
    run(tun, &[token], host);
    sent_entries()
}

#[test]
fn the_answers_of_a_call_leave_in_one_entry() {
    let (mut tun, mut host) = with("");
    let entries = send(&mut tun, &mut host);
    let [(packet, info)] = &entries[..] else {
        panic!("{} entries", entries.len());
    };
    assert_eq!(packet.len(), HEADERS + 4000);
    // The SYN announced no segment size, which means 536 bytes (RFC 9293 section 3.7.1).
    assert_eq!(
        info,
        &PacketInfo {
            len: packet.len() as u32,
            ..partial(16, Some(536))
        }
    );
}

#[test]
fn a_device_without_offloads_gets_packets() {
    grant();
    let mut host = Application::new(0, &Post::default());
    let mut tun = start_with("", &mut host);
    let entries = send(&mut tun, &mut host);
    assert_eq!(entries.len(), 8);
    assert!(
        entries
            .iter()
            .all(|(_, info)| info.checksum == Checksum::Complete)
    );
}

#[test]
fn a_bad_network_gets_packets_in_both_directions() {
    let (mut tun, mut host) = with(r#"{"network": "delay=10ms direction=to-peer"}"#);
    // A delay of the answers delays the handshake too.
    arrive_unfinished(tcp(99, 0, SYN, b""), partial(16, None));
    run(&mut tun, &[0], &mut host);
    run_for(Duration::from_millis(10), &mut tun, &mut host);
    let answer = sent().remove(0);
    let theirs = u32::from_be_bytes(answer[IP + 4..IP + 8].try_into().expect("four bytes"));
    arrive_unfinished(
        tcp(100, theirs.wrapping_add(1), ACK, b""),
        partial(16, None),
    );
    run(&mut tun, &[0], &mut host);
    let token = host.answer(&[7; 4000]);
    run(&mut tun, &[token], &mut host);
    run_for(Duration::from_millis(10), &mut tun, &mut host);
    let entries = sent_entries();
    assert_eq!(entries.len(), 8);
    assert!(
        entries
            .iter()
            .all(|(_, info)| info.checksum == Checksum::Complete)
    );

    let (mut tun, mut host) = with(r#"{"network": "loss=100%"}"#);
    arrive_unfinished(udp(4000, &[1; 2500]), partial(6, Some(1000)));
    run(&mut tun, &[0], &mut host);
    assert_eq!(counter(&tun, "network.lost"), 3);
}

#[test]
fn datagrams_in_one_entry_are_a_flows_datagrams() {
    let (mut tun, mut host) = with("");
    arrive_unfinished(udp(4000, &[1; 2500]), partial(6, Some(1000)));
    run(&mut tun, &[0], &mut host);
    let (_, _, end) = &host.flows[0];
    let lengths: Vec<_> = end.borrow().from_module.iter().map(Vec::len).collect();
    assert_eq!(lengths, [1000, 1000, 500]);
}

#[test]
fn a_long_segment_is_read_whole() {
    let (mut tun, mut host) = with("");
    let (own, theirs) = connect(&mut tun, &mut host);
    arrive_unfinished(tcp(own, theirs, ACK, &[1; 30_000]), partial(16, Some(1460)));
    run(&mut tun, &[0], &mut host);
    let (_, _, end) = &host.flows[0];
    let received: usize = end.borrow().from_module.iter().map(Vec::len).sum();
    assert_eq!(received, 30_000);
}

type Copy = (Direction, Vec<u8>);

thread_local! {
    static COPIES: RefCell<Vec<Copy>> = const { RefCell::new(Vec::new()) };
}

struct User;

impl Capture for User {
    fn wants_packets(&self) -> bool {
        true
    }

    fn wants_secrets(&self) -> bool {
        false
    }

    fn packet(&self, _: &str, direction: Direction, packet: &[u8]) {
        COPIES.with_borrow_mut(|copies| copies.push((direction, packet.to_vec())));
    }

    fn secret(&self, _: &str) {}
}

#[test]
fn a_capture_has_the_packets_with_their_checksums() {
    set_provider(Some(|| Some(Box::new(User))));
    let (mut tun, mut host) = with("");
    assert_eq!(send(&mut tun, &mut host).len(), 1);
    let copies = COPIES.take();
    let lengths: Vec<_> = copies
        .iter()
        .filter(|(way, packet)| *way == Direction::ToPeer && packet.len() > HEADERS + 24)
        .map(|(_, packet)| packet.len() - HEADERS)
        .collect();
    assert_eq!(lengths, [536, 536, 536, 536, 536, 536, 536, 248]);
    for (_, packet) in copies {
        let length = (packet.len() - IP) as u16;
        let mut sum = packet[12..20].to_vec();
        sum.extend([0, 6]);
        sum.extend(length.to_be_bytes());
        sum.extend(&packet[IP..]);
        assert_eq!(support::checksum(&sum), 0);
    }
}

#[test]
fn an_older_generation_passes_packets_on() {
    let (mut old, mut old_host) = with("");
    connect(&mut old, &mut old_host);
    let snapshot = old.snapshot(Instant(1));
    let mut new_host = Application::new(1, &old_host.post);
    let mut new = Tun::start(options("", 1, Some(snapshot)), &mut new_host).expect("it starts");
    new.serving(1, &mut new_host);
    old.serving(1, &mut old_host);
    run(&mut new, &[1], &mut new_host);
    // The answer of the old one's flow.
    let token = old_host.answer(&[7; 4000]);
    run(&mut old, &[token], &mut old_host);
    run(&mut new, &[1], &mut new_host);
    assert_eq!(sent_entries().len(), 8);
    // A long segment for the old one's flow: its packets, each in a message.
    arrive_unfinished(tcp(100, 0, ACK, &[1; 2500]), partial(16, Some(1000)));
    run(&mut new, &[0], &mut new_host);
    let post = old_host.post.borrow();
    assert_eq!(post[&0].len(), 3);
}
