//! Packets made by hand.

use std::net::{IpAddr, SocketAddr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket, checksum,
};

/// A packet with this payload.
pub fn ip(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let repr = IpRepr::new(
        source.into(),
        destination.into(),
        IpProtocol::from(protocol),
        payload.len(),
        64,
    );
    let mut packet = vec![0; repr.header_len()];
    repr.emit(&mut packet, &ChecksumCapabilities::default());
    packet.extend_from_slice(payload);
    packet
}

/// An ICMP message, whose checksum is filled in.
pub fn icmp(source: IpAddr, destination: IpAddr, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let sum = icmp_sum(source, destination, &message);
    message[2..4].copy_from_slice(&(!sum).to_be_bytes());
    let protocol = if source.is_ipv4() { 1 } else { 58 };
    ip(source, destination, protocol, &message)
}

/// The sum over a message with its checksum; all ones if that is right.
pub fn icmp_sum(source: IpAddr, destination: IpAddr, message: &[u8]) -> u16 {
    let body = checksum::data(message);
    match (source, destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let length = message.len() as u32;
            let header = checksum::pseudo_header_v6(&source, &destination, 58.into(), length);
            checksum::combine(&[header, body])
        }
        _ => body,
    }
}

pub fn udp(source: SocketAddr, destination: SocketAddr, data: &[u8]) -> Vec<u8> {
    let message = udp_message(source, destination, data);
    ip(source.ip(), destination.ip(), 17, &message)
}

pub fn udp_message(source: SocketAddr, destination: SocketAddr, data: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 8];
    message.extend_from_slice(data);
    let length = message.len() as u16;
    let mut header = UdpPacket::new_unchecked(&mut message);
    header.set_src_port(source.port());
    header.set_dst_port(destination.port());
    header.set_len(length);
    header.fill_checksum(&source.ip().into(), &destination.ip().into());
    message
}

/// A segment of a connection from `source`.
pub struct Tcp<'a> {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub control: TcpControl,
    pub sequence: u32,
    pub acknowledges: Option<u32>,
    pub window: u16,
    pub scale: Option<u8>,
    pub payload: &'a [u8],
    /// The range received beyond a gap.
    pub sack: Option<(u32, u32)>,
}

impl Tcp<'_> {
    pub fn packet(&self) -> Vec<u8> {
        let repr = TcpRepr {
            src_port: self.source.port(),
            dst_port: self.destination.port(),
            control: self.control,
            seq_number: TcpSeqNumber(self.sequence as i32),
            ack_number: self.acknowledges.map(|number| TcpSeqNumber(number as i32)),
            window_len: self.window,
            window_scale: self.scale,
            max_seg_size: (self.control == TcpControl::Syn).then_some(1380),
            sack_permitted: self.control == TcpControl::Syn,
            sack_ranges: [self.sack, None, None],
            timestamp: None,
            payload: self.payload,
        };
        let mut segment = vec![0; repr.buffer_len()];
        repr.emit(
            &mut TcpPacket::new_unchecked(&mut segment),
            &self.source.ip().into(),
            &self.destination.ip().into(),
            &ChecksumCapabilities::default(),
        );
        ip(self.source.ip(), self.destination.ip(), 6, &segment)
    }
}

pub fn syn(source: SocketAddr, destination: SocketAddr, sequence: u32) -> Vec<u8> {
    Tcp {
        source,
        destination,
        control: TcpControl::Syn,
        sequence,
        acknowledges: None,
        window: 65535,
        scale: Some(7),
        payload: &[],
        sack: None,
    }
    .packet()
}

/// Set the flags of a TCP packet, for instance those of ECN.
pub fn set_flags(packet: &mut [u8], flags: u8) {
    let (source, destination, protocol, payload) = read_ip(packet);
    let start = packet.len() - payload.len();
    assert_eq!(protocol, 6);
    let mut segment = TcpPacket::new_unchecked(&mut packet[start..]);
    segment.set_checksum(0);
    segment.into_inner()[13] = flags;
    TcpPacket::new_unchecked(&mut packet[start..])
        .fill_checksum(&source.into(), &destination.into());
}

/// The flags of a TCP packet.
pub fn flags(packet: &[u8]) -> u8 {
    let (_, _, protocol, payload) = read_ip(packet);
    assert_eq!(protocol, 6);
    payload[13]
}

/// The content of a TCP packet.
#[derive(Debug, Clone)]
pub struct Segment {
    pub source_port: u16,
    pub destination_port: u16,
    pub syn: bool,
    pub fin: bool,
    pub reset: bool,
    pub sequence: u32,
    pub acknowledges: Option<u32>,
    pub window: u16,
    /// The announced maximum segment size, if any.
    pub most: Option<u16>,
    /// The blocks received beyond a gap, or twice.
    pub blocks: Vec<(u32, u32)>,
    pub payload: Vec<u8>,
}

pub fn read_tcp(packet: &[u8]) -> Segment {
    let (source, destination, protocol, payload) = read_ip(packet);
    assert_eq!(protocol, 6);
    let segment = TcpPacket::new_checked(payload).unwrap();
    assert!(segment.verify_checksum(&source.into(), &destination.into()));
    Segment {
        source_port: segment.src_port(),
        destination_port: segment.dst_port(),
        syn: segment.syn(),
        fin: segment.fin(),
        reset: segment.rst(),
        sequence: segment.seq_number().0 as u32,
        acknowledges: segment.ack().then(|| segment.ack_number().0 as u32),
        window: segment.window_len(),
        // The first option of a SYN.
        most: match payload[20..] {
            [2, 4, high, low, ..] if segment.syn() => Some(u16::from_be_bytes([high, low])),
            _ => None,
        },
        blocks: match segment.syn() {
            true => Vec::new(),
            false => blocks(segment.options()),
        },
        payload: segment.payload().to_vec(),
    }
}

/// The blocks of the SACK option (RFC 2018), which may stand behind others.
fn blocks(mut options: &[u8]) -> Vec<(u32, u32)> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    loop {
        options = match *options {
            [] | [0, ..] => return Vec::new(),
            [1, ref rest @ ..] => rest,
            [5, length, ..] => {
                let blocks = options[2..usize::from(length)].chunks(8);
                return blocks
                    .map(|block| (number(&block[..4]), number(&block[4..])))
                    .collect();
            }
            [_, length, ..] => &options[usize::from(length).max(2)..],
            [_] => panic!("an option without its length"),
        };
    }
}

/// Source, destination, protocol and payload.
pub fn read_ip(packet: &[u8]) -> (IpAddr, IpAddr, u8, &[u8]) {
    if packet[0] >> 4 == 4 {
        assert_eq!(!checksum::data(&packet[..20]), 0, "header checksum");
        let address = |at: usize| {
            let bytes: [u8; 4] = packet[at..at + 4].try_into().unwrap();
            IpAddr::from(bytes)
        };
        let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        assert_eq!(length, packet.len());
        (address(12), address(16), packet[9], &packet[20..])
    } else {
        let address = |at: usize| {
            let bytes: [u8; 16] = packet[at..at + 16].try_into().unwrap();
            IpAddr::from(bytes)
        };
        let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        assert_eq!(40 + length, packet.len());
        (address(8), address(24), packet[6], &packet[40..])
    }
}

/// The data of a UDP packet with a valid checksum, and its addresses.
pub fn read_udp(packet: &[u8]) -> (SocketAddr, SocketAddr, Vec<u8>) {
    let (source, destination, protocol, payload) = read_ip(packet);
    assert_eq!(protocol, 17);
    let datagram = UdpPacket::new_checked(payload).unwrap();
    assert!(datagram.verify_checksum(&source.into(), &destination.into()));
    (
        SocketAddr::new(source, datagram.src_port()),
        SocketAddr::new(destination, datagram.dst_port()),
        datagram.payload().to_vec(),
    )
}

/// Cuts a packet at these offsets of its payload, multiples of eight.
pub fn fragments(packet: &[u8], id: u32, cuts: &[usize]) -> Vec<Vec<u8>> {
    let (_, _, protocol, payload) = read_ip(packet);
    let mut ends = cuts.to_vec();
    ends.push(payload.len());
    let mut start = 0;
    let mut pieces = Vec::new();
    for end in ends {
        pieces.push(fragment(
            packet,
            protocol,
            id,
            start,
            end < payload.len(),
            &payload[start..end],
        ));
        start = end;
    }
    pieces
}

/// A single fragment with the addresses of `packet`.
pub fn fragment(
    packet: &[u8],
    protocol: u8,
    id: u32,
    offset: usize,
    more: bool,
    piece: &[u8],
) -> Vec<u8> {
    let (source, destination, ..) = read_ip(packet);
    if source.is_ipv4() {
        let mut out = ip(source, destination, protocol, piece);
        out[4..6].copy_from_slice(&(id as u16).to_be_bytes());
        let field = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
        out[6..8].copy_from_slice(&field.to_be_bytes());
        fill_header_sum(&mut out);
        out
    } else {
        let mut body = vec![protocol, 0];
        body.extend_from_slice(&(offset as u16 | u16::from(more)).to_be_bytes());
        body.extend_from_slice(&id.to_be_bytes());
        body.extend_from_slice(piece);
        ip(source, destination, 44, &body)
    }
}

/// Fill in the checksum of an IPv4 header.
pub fn fill_header_sum(packet: &mut [u8]) {
    let length = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let sum = !checksum::data(&packet[..length]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The traffic class of a packet, with ECN in its lowest two bits.
pub fn class(packet: &[u8]) -> u8 {
    match packet[0] >> 4 {
        4 => packet[1],
        _ => packet[0] << 4 | packet[1] >> 4,
    }
}

/// Change the traffic class of a packet.
pub fn set_class(packet: &mut [u8], class: u8) {
    if packet[0] >> 4 == 4 {
        packet[1] = class;
        fill_header_sum(packet);
    } else {
        packet[0] = packet[0] & 0xf0 | class >> 4;
        packet[1] = packet[1] & 0x0f | class << 4;
    }
}
