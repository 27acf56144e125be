//! TCP segments: parsing, answers without a flow, and changes to the packets from and to smoltcp.

use std::net::{IpAddr, SocketAddr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{Ipv4Packet, Ipv6Packet, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use super::time_wait::Last;
use crate::ip::{self, Packet, Sender, checksum};
use crate::table::Key;
use crate::{PacketSink, PeerId};

/// The bytes of a header without options.
const HEADER: usize = 20;

/// A valid TCP segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub repr: TcpRepr<'a>,
}

impl<'a> Segment<'a> {
    pub(crate) fn parse(packet: &Packet<'a>) -> Option<Segment<'a>> {
        let segment = TcpPacket::new_checked(packet.payload).ok()?;
        let (source, destination) = (packet.source, packet.destination);
        if checksum::transport(packet.payload, source, destination, ip::TCP) != u16::MAX {
            return None;
        }
        let checked = ChecksumCapabilities::ignored();
        let repr = TcpRepr::parse(&segment, &source.into(), &destination.into(), &checked).ok()?;
        Some(Segment { repr })
    }

    /// Returns true if it requests a new connection.
    pub(crate) fn opens(&self) -> bool {
        self.repr.control == TcpControl::Syn && self.repr.ack_number.is_none()
    }

    /// Returns true if it has a SYN, which opens or accepts a connection.
    pub(crate) fn is_syn(&self) -> bool {
        self.repr.control == TcpControl::Syn
    }

    pub(crate) fn resets(&self) -> bool {
        self.repr.control == TcpControl::Rst
    }

    pub(crate) fn sequence(&self) -> Sequence {
        Sequence(self.repr.seq_number.0 as u32)
    }

    pub(crate) fn acknowledges(&self) -> Option<Sequence> {
        Some(Sequence(self.repr.ack_number?.0 as u32))
    }

    /// The ranges that it reports as received beyond a gap.
    pub(crate) fn received(&self) -> impl Iterator<Item = (Sequence, Sequence)> {
        let ranges = self.repr.sack_ranges.into_iter().flatten();
        ranges.map(|(start, end)| (Sequence(start), Sequence(end)))
    }

    /// Returns true if it only acknowledges.
    pub(crate) fn is_bare(&self) -> bool {
        self.repr.payload.is_empty() && self.repr.control == TcpControl::None
    }

    /// The key of its flow.
    pub(crate) fn key(&self, peer: PeerId, packet: &Packet<'_>) -> Key {
        Key {
            peer,
            source: SocketAddr::new(packet.source, self.repr.src_port),
            destination: SocketAddr::new(packet.destination, self.repr.dst_port),
        }
    }

    /// Answer with a reset (RFC 9293 section 3.10.7.1). The segment must not be a reset itself.
    pub(crate) fn send_reset(&self, key: &Key, sender: &mut Sender, sink: &mut dyn PacketSink) {
        let seen = &self.repr;
        let answer = TcpRepr {
            control: TcpControl::Rst,
            seq_number: seen.ack_number.unwrap_or_default(),
            ack_number: seen
                .ack_number
                .is_none()
                .then(|| seen.seq_number + seen.segment_len()),
            ..bare(key.destination.port(), key.source.port())
        };
        send(&answer, key, sender, sink);
    }

    /// Answer with the position of both directions, and the value of the window field.
    pub(crate) fn send_acknowledgement(
        &self,
        key: &Key,
        last: Last,
        window: u16,
        sender: &mut Sender,
        sink: &mut dyn PacketSink,
    ) {
        let answer = TcpRepr {
            seq_number: last.ours.number(),
            ack_number: Some(last.theirs.number()),
            window_len: window,
            ..bare(key.destination.port(), key.source.port())
        };
        send(&answer, key, sender, sink);
    }
}

/// A position in TCP's sequence space, which wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sequence(pub u32);

impl Sequence {
    fn number(self) -> TcpSeqNumber {
        TcpSeqNumber(self.0 as i32)
    }

    pub(crate) fn plus(self, bytes: usize) -> Sequence {
        // Positions wrap modulo 2^32; lengths are far below that.
        Sequence(self.0.wrapping_add(bytes as u32))
    }

    /// The bytes from here to `end`; 0 if that is not after this.
    pub(crate) fn until(self, end: Sequence) -> usize {
        match end.is_after(self) {
            true => end.0.wrapping_sub(self.0) as usize,
            false => 0,
        }
    }

    pub(crate) fn minus(self, bytes: usize) -> Sequence {
        Sequence(self.0.wrapping_sub(bytes as u32))
    }

    pub(crate) fn is_after(self, other: Sequence) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    pub(crate) fn later(self, other: Sequence) -> Sequence {
        if other.is_after(self) { other } else { self }
    }

    pub(crate) fn earlier(self, other: Sequence) -> Sequence {
        if self.is_after(other) { other } else { self }
    }
}

/// A segment without flags or payload.
fn bare(source: u16, destination: u16) -> TcpRepr<'static> {
    TcpRepr {
        src_port: source,
        dst_port: destination,
        control: TcpControl::None,
        seq_number: TcpSeqNumber(0),
        ack_number: None,
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}

fn send(answer: &TcpRepr<'_>, key: &Key, sender: &mut Sender, sink: &mut dyn PacketSink) {
    let addresses = (key.destination.ip(), key.source.ip());
    sender.send(key.peer, sink, addresses, ip::TCP, |out| {
        let start = out.len();
        out.resize(start + answer.header_len(), 0);
        answer.emit(
            &mut TcpPacket::new_unchecked(&mut out[start..]),
            &addresses.0.into(),
            &addresses.1.into(),
            &ChecksumCapabilities::ignored(),
        );
        fill_checksum(&mut out[start..], addresses);
    });
}

/// Fill the checksum of a segment whose checksum field is zero.
fn fill_checksum(segment: &mut [u8], (source, destination): (IpAddr, IpAddr)) {
    let sum = checksum::transport(segment, source, destination, ip::TCP);
    TcpPacket::new_unchecked(segment).set_checksum(!sum);
}

/// Fill the checksum of the segment in a packet that smoltcp wrote between these addresses.
pub(crate) fn finish(packet: &mut [u8]) {
    let Ok(Packet {
        source,
        destination,
        payload,
        ..
    }) = Packet::parse(packet)
    else {
        return;
    };
    let start = packet.len() - payload.len();
    fill_checksum(&mut packet[start..], (source, destination));
}

/// The content of a sent segment, parsed from the packet that smoltcp wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentSegment {
    pub reset: bool,
    pub start: Sequence,
    /// The number after the last byte. SYN and FIN count as one each.
    pub end: Sequence,
    pub acknowledged: Sequence,
    /// The window, unscaled.
    pub window: usize,
    /// True if it carries one byte: it may be a keepalive or a zero-window probe.
    pub may_probe: bool,
    /// True if it only acknowledges.
    pub is_bare: bool,
    /// The range that it reports as received beyond a gap.
    pub received: Option<(Sequence, Sequence)>,
}

impl SentSegment {
    pub(crate) fn read(packet: &[u8]) -> Option<SentSegment> {
        let segment = TcpPacket::new_checked(packet.get(start_of(packet)?..)?).ok()?;
        let sequence = |number: TcpSeqNumber| Sequence(number.0 as u32);
        let has_options = usize::from(segment.header_len()) > HEADER;
        let received = (has_options && !segment.syn())
            .then(|| segment.selective_ack_ranges().ok()?[0])
            .flatten();
        Some(SentSegment {
            reset: segment.rst(),
            start: sequence(segment.seq_number()),
            end: sequence(segment.seq_number()).plus(segment.segment_len()),
            acknowledged: sequence(segment.ack_number()),
            window: usize::from(segment.window_len()),
            may_probe: segment.payload().len() == 1,
            is_bare: segment.segment_len() == 0 && segment.ack() && !segment.rst(),
            received: received.map(|(start, end)| (Sequence(start), Sequence(end))),
        })
    }
}

/// The offset of the segment in a packet without IP options or extension headers.
fn start_of(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 => Some(ip::V4_HEADER),
        _ => Some(ip::V6_HEADER),
    }
}

/// The segment in such a packet.
fn segment_mut(packet: &mut [u8]) -> Option<TcpPacket<&mut [u8]>> {
    let start = start_of(packet)?;
    TcpPacket::new_checked(packet.get_mut(start..)?).ok()
}

/// The sequence number of the segment in a packet that smoltcp wrote, and true if it is a SYN.
pub(crate) fn sequence_of(packet: &[u8]) -> Option<(Sequence, bool)> {
    let segment = TcpPacket::new_checked(packet.get(start_of(packet)?..)?).ok()?;
    Some((Sequence(segment.seq_number().0 as u32), segment.syn()))
}

/// Replaces the sequence number in such a packet, before its checksum is filled.
pub(crate) fn set_sequence(packet: &mut [u8], sequence: Sequence) {
    if let Some(mut segment) = segment_mut(packet) {
        segment.set_seq_number(sequence.number());
    }
}

/// Replaces the acknowledgement number in a packet for smoltcp, which verifies no checksum.
pub(crate) fn set_acknowledged(packet: &mut [u8], acknowledged: Sequence) {
    if let Some(mut segment) = segment_mut(packet) {
        segment.set_ack_number(acknowledged.number());
    }
}

/// Replaces the window, unscaled, in a packet for smoltcp.
pub(crate) fn set_window(packet: &mut [u8], window: u16) {
    if let Some(mut segment) = segment_mut(packet) {
        segment.set_window_len(window);
    }
}

/// Replaces the options of a bare acknowledgement that smoltcp wrote by these blocks (RFC 2018
/// section 3), at most four, before its checksum is filled.
pub(crate) fn set_blocks(packet: &mut Vec<u8>, blocks: impl Iterator<Item = (Sequence, Sequence)>) {
    const NO_OPERATION: u8 = 1;
    const BLOCKS: u8 = 5;
    let Some(start) = start_of(packet) else {
        return;
    };
    let options = start + HEADER;
    packet.truncate(options);
    packet.extend_from_slice(&[NO_OPERATION, NO_OPERATION, BLOCKS, 2]);
    for (start, end) in blocks {
        packet.extend_from_slice(&start.0.to_be_bytes());
        packet.extend_from_slice(&end.0.to_be_bytes());
        // The length of the option.
        packet[options + 3] += 8;
    }
    if packet[options + 3] == 2 {
        packet.truncate(options);
    }
    let length = packet.len();
    if let Ok(header_len) = u8::try_from(length - start) {
        TcpPacket::new_unchecked(&mut packet[start..]).set_header_len(header_len);
    }
    match start {
        ip::V4_HEADER => {
            let mut header = Ipv4Packet::new_unchecked(&mut packet[..]);
            header.set_total_len(length as u16);
            header.fill_checksum();
        }
        _ => Ipv6Packet::new_unchecked(&mut packet[..]).set_payload_len((length - start) as u16),
    }
}
