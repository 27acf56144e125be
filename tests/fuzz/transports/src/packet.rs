//! Inner packets that a program chooses, and what holds for those that come back.

use std::net::{IpAddr, SocketAddr};

use smoltcp::wire::{IpProtocol, checksum};

use crate::program::Program;
use crate::support::inner::packets;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const ICMPV6: u8 = 58;

/// Protocols and extension headers that mean something, and some that do not.
const PROTOCOLS: [u8; 14] = [
    TCP, UDP, ICMP, ICMPV6, 0, 43, FRAGMENT, 60, 59, 51, 50, 4, 41, 132,
];

/// A packet of any kind from `source` to `destination`, as a rule with right checksums.
pub fn any(program: &mut Program<'_>, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let (from, to) = (source.ip(), destination.ip());
    let mut packet = match program.below(7) {
        // A TCP header as it comes, but for the ports.
        0 => {
            let mut segment = ports(source, destination);
            segment.extend_from_slice(program.bytes());
            segment.resize(segment.len().max(20), 0);
            whole(from, to, TCP, segment)
        }
        // A TCP header whose flags, options and numbers are chosen one by one.
        1 => {
            let options = program.bytes();
            let options = &options[..options.len().min(40)];
            let words = 5 + options.len().div_ceil(4);
            let mut segment = ports(source, destination);
            segment.extend_from_slice(&u32::from(program.word()).to_be_bytes());
            segment.extend_from_slice(&u32::from(program.word()).to_be_bytes());
            segment.extend_from_slice(&[(words << 4) as u8, program.byte()]);
            segment.extend_from_slice(&program.word().to_be_bytes());
            segment.extend_from_slice(&[0; 4]);
            segment.extend_from_slice(options);
            segment.resize(words * 4, 0);
            segment.extend_from_slice(program.bytes());
            whole(from, to, TCP, segment)
        }
        // UDP, with a length that may lie.
        2 => {
            let mut message = packets::udp_message(source, destination, program.bytes());
            if program.one_in(4) {
                message[4..6].copy_from_slice(&program.word().to_be_bytes());
            }
            whole(from, to, UDP, message)
        }
        3 => {
            let protocol = if from.is_ipv4() { ICMP } else { ICMPV6 };
            let mut message = vec![program.choose(&[8, 128, 3, 1, 4, 11, 135]), 0, 0, 0];
            message.extend_from_slice(program.bytes());
            whole(from, to, protocol, message)
        }
        // A chain of headers of eight bytes, with options in them.
        4 => {
            let count = program.below(10);
            let kinds: Vec<u8> = (0..count).map(|_| program.choose(&PROTOCOLS)).collect();
            let mut chain = Vec::new();
            for at in 0..count {
                chain.push(kinds.get(at + 1).copied().unwrap_or(UDP));
                chain.extend((0..7).map(|_| program.byte()));
            }
            chain.extend(packets::udp_message(source, destination, program.bytes()));
            let first = kinds.first().copied().unwrap_or(UDP);
            packets::ip(from, to, first, &chain)
        }
        // A piece of something.
        5 => {
            let protocol = program.choose(&PROTOCOLS);
            let template = packets::udp(source, destination, &[]);
            let id = u32::from(program.byte() % 4);
            let offset = program.below(8192) * 8;
            let more = program.one_in(2);
            let mut piece = program.bytes().to_vec();
            // Only the last may have any length, and small ones are refused.
            if more && !program.one_in(8) {
                piece.resize((piece.len() & !7).max(48), 7);
            }
            packets::fragment(&template, protocol, id, offset, more, &piece)
        }
        _ => {
            let protocol = program.choose(&PROTOCOLS);
            packets::ip(from, to, protocol, program.bytes())
        }
    };
    if program.one_in(8) {
        program.damage(&mut packet);
    }
    if from.is_ipv4() && program.one_in(8) {
        add_options(&mut packet, program.bytes());
    }
    packet
}

fn ports(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut bytes = source.port().to_be_bytes().to_vec();
    bytes.extend_from_slice(&destination.port().to_be_bytes());
    bytes
}

/// The packet with this payload, whose checksum is made right.
fn whole(source: IpAddr, destination: IpAddr, protocol: u8, mut payload: Vec<u8>) -> Vec<u8> {
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        _ => 2,
    };
    if let Some(field) = payload.get_mut(at..at + 2) {
        field.fill(0);
        let sum = sum(source, destination, protocol, &payload);
        payload[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
    }
    packets::ip(source, destination, protocol, &payload)
}

fn sum(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> u16 {
    let body = checksum::data(payload);
    if protocol == ICMP {
        return body;
    }
    let length = payload.len() as u32;
    let protocol = IpProtocol::from(protocol);
    let header = checksum::pseudo_header(&source.into(), &destination.into(), protocol, length);
    checksum::combine(&[header, body])
}

/// Put options into an IPv4 header, in whole words and as many as fit.
fn add_options(packet: &mut Vec<u8>, options: &[u8]) {
    if packet.len() < 20 || packet[0] != 0x45 {
        return;
    }
    let mut options = options[..options.len().min(40)].to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    packet[0] += (options.len() / 4) as u8;
    let header = 20 + options.len();
    packet.splice(20..20, options);
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[10..12].fill(0);
    let sum = !checksum::data(&packet[..header]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Returns true if the packet carries a fragment of a message.
fn is_fragment(packet: &[u8]) -> bool {
    if packet[0] >> 4 == 4 {
        packet[6] & 0x3f != 0 || packet[7] != 0
    } else {
        packet[6] == FRAGMENT
    }
}

/// Check a packet that came from the stack: lengths and checksums are right, and it is no
/// larger than `mtu`.
pub fn check(packet: &[u8], mtu: usize) {
    assert!(packet.len() <= mtu, "{} bytes, over {mtu}", packet.len());
    let (source, destination, protocol, payload) = packets::read_ip(packet);
    assert_eq!(source.is_ipv4(), destination.is_ipv4());
    if is_fragment(packet) {
        return;
    }
    match protocol {
        TCP => {
            packets::read_tcp(packet);
        }
        UDP => {
            packets::read_udp(packet);
        }
        ICMP | ICMPV6 => assert_eq!(sum(source, destination, protocol, payload), 0xffff),
        _ => panic!("the stack sends no protocol {protocol}"),
    }
}

/// Check a packet, and take the TCP segment out of it, with its addresses.
pub fn read_tcp(packet: &[u8]) -> Option<(IpAddr, u16, packets::Segment)> {
    let (_, destination, protocol, payload) = packets::read_ip(packet);
    let port = u16::from_be_bytes([*payload.get(2)?, *payload.get(3)?]);
    (protocol == TCP && !is_fragment(packet))
        .then(|| (destination, port, packets::read_tcp(packet)))
}
