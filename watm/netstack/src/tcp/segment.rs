use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{TCP_HEADER_LEN, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::ip::{self, Packet, Sender};
use crate::table::Key;
use crate::{PacketSink, PeerId};

/// A TCP segment that was read and found sound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub repr: TcpRepr<'a>,
}

impl<'a> Segment<'a> {
    pub(crate) fn parse(packet: &Packet<'a>) -> Option<Segment<'a>> {
        let segment = TcpPacket::new_checked(packet.payload).ok()?;
        let (source, destination) = (packet.source.into(), packet.destination.into());
        let checks = ChecksumCapabilities::default();
        let repr = TcpRepr::parse(&segment, &source, &destination, &checks).ok()?;
        Some(Segment { repr })
    }

    /// Whether it asks for a new connection.
    pub(crate) fn opens(&self) -> bool {
        self.repr.control == TcpControl::Syn && self.repr.ack_number.is_none()
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

    /// A packet that is like this segment's, but acknowledges up to `end` and says nothing
    /// else. Without a checksum: it does not leave the stack.
    pub(crate) fn write_acknowledgement(&self, key: &Key, end: Sequence, out: &mut Vec<u8>) {
        let repr = TcpRepr {
            control: TcpControl::None,
            ack_number: Some(TcpSeqNumber(end.0 as i32)),
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
            ..self.repr
        };
        let mut bytes = [0; TCP_HEADER_LEN];
        repr.emit(
            &mut TcpPacket::new_unchecked(&mut bytes[..]),
            &key.source.ip().into(),
            &key.destination.ip().into(),
            &ChecksumCapabilities::ignored(),
        );
        ip::write_packet(out, key.source.ip(), key.destination.ip(), ip::TCP, &bytes);
    }
}

/// A position in TCP's sequence space, which wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sequence(pub u32);

impl Sequence {
    pub(crate) fn plus(self, bytes: usize) -> Sequence {
        // Positions are taken modulo 2^32, lengths are far below it.
        Sequence(self.0.wrapping_add(bytes as u32))
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

/// Answer a segment that belongs to no flow (RFC 9293 section 3.10.7.1). It must not be a
/// reset itself.
pub(crate) fn send_reset(
    peer: PeerId,
    packet: &Packet<'_>,
    segment: &Segment<'_>,
    sender: &mut Sender,
    sink: &mut dyn PacketSink,
) {
    let seen = &segment.repr;
    let reset = TcpRepr {
        src_port: seen.dst_port,
        dst_port: seen.src_port,
        control: TcpControl::Rst,
        seq_number: seen.ack_number.unwrap_or_default(),
        ack_number: seen
            .ack_number
            .is_none()
            .then(|| seen.seq_number + seen.segment_len()),
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let addresses = (packet.destination, packet.source);
    sender.send(peer, sink, addresses, ip::TCP, |out| {
        let start = out.len();
        out.resize(start + reset.header_len(), 0);
        let mut header = TcpPacket::new_unchecked(&mut out[start..]);
        reset.emit(
            &mut header,
            &addresses.0.into(),
            &addresses.1.into(),
            &ChecksumCapabilities::default(),
        );
    });
}

/// What one of our own segments says, read from the packet that smoltcp wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    pub reset: bool,
    /// Past the last byte; the flags of SYN and FIN count.
    pub end: Sequence,
    pub acknowledged: Sequence,
    /// Unscaled.
    pub window: usize,
}

impl Said {
    pub(crate) fn read(packet: &[u8]) -> Option<Said> {
        let header = match packet.first()? >> 4 {
            4 => ip::V4_HEADER,
            _ => ip::V6_HEADER,
        };
        let segment = TcpPacket::new_checked(packet.get(header..)?).ok()?;
        let sequence = |number: TcpSeqNumber| Sequence(number.0 as u32);
        Some(Said {
            reset: segment.rst(),
            end: sequence(segment.seq_number()).plus(segment.segment_len()),
            acknowledged: sequence(segment.ack_number()),
            window: usize::from(segment.window_len()),
        })
    }
}
