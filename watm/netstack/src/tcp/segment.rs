//! Received TCP segments: parsing, and answers to those without a flow.

use std::net::SocketAddr;

use smoltcp::wire::TcpPacket;

use super::emit::{self, Flags, Header};
use super::options::{Options, Written};
use super::sequence::Sequence;
use super::time_wait::Last;
use crate::PeerId;
use crate::io::Io;
use crate::ip::{self, Packet, checksum};
use crate::table::Key;

/// A valid TCP segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    source_port: u16,
    destination_port: u16,
    pub sequence: Sequence,
    /// The number that it acknowledges.
    pub acknowledges: Option<Sequence>,
    /// The window, unscaled.
    pub window: u16,
    pub flags: Flags,
    pub options: Options,
    pub payload: &'a [u8],
    /// True if a router has marked it because it is congested (RFC 3168 section 5).
    pub marked: bool,
    /// True if it stands for several that arrived one after another.
    pub several: bool,
}

impl<'a> Segment<'a> {
    /// Parses the payload of a packet. `None` if it is malformed, or its checksum is wrong.
    pub(crate) fn parse(packet: &Packet<'a>) -> Option<Segment<'a>> {
        let segment = TcpPacket::new_checked(packet.payload).ok()?;
        let (source, destination) = (packet.source, packet.destination);
        let sound = packet.verified
            || checksum::transport(packet.payload, source, destination, ip::TCP) == u16::MAX;
        if !sound {
            return None;
        }
        let mut flags = Flags(packet.payload[13]);
        // RST is looked at before SYN and FIN (RFC 9293 section 3.10.7).
        if flags.has(Flags::RST) {
            flags = flags.without(Flags::SYN | Flags::FIN);
        }
        let (source_port, destination_port) = (segment.src_port(), segment.dst_port());
        if source_port == 0 || destination_port == 0 || flags.has(Flags::SYN | Flags::FIN) {
            return None;
        }
        let header = usize::from(segment.header_len());
        Some(Segment {
            source_port,
            destination_port,
            sequence: Sequence(segment.seq_number().0 as u32),
            acknowledges: flags
                .has(Flags::ACK)
                .then(|| Sequence(segment.ack_number().0 as u32)),
            window: segment.window_len(),
            flags,
            options: Options::parse(&packet.payload[ip::TCP_HEADER..header])?,
            payload: &packet.payload[header..],
            marked: packet.is_marked(),
            several: packet.segment_size.is_some(),
        })
    }

    /// Returns true if it overlaps the window from `next` up to, but not including, `edge` (RFC
    /// 9293 section 3.10.7.4). A bare acknowledgement or a FIN at `edge` also counts, as in Linux.
    /// So do bytes at the edge of a closed window: their acknowledgement counts.
    pub(crate) fn is_in_window(&self, next: Sequence, edge: Sequence) -> bool {
        let (start, length) = (self.sequence, self.length());
        let begins = match self.payload.is_empty() || edge == next {
            true => !start.is_after(edge),
            false => edge.is_after(start),
        };
        let reaches = match length {
            0 => !next.is_after(start),
            _ => start.plus(length).is_after(next),
        };
        begins && reaches
    }

    /// Returns true if it requests a new connection.
    pub(crate) fn opens(&self) -> bool {
        self.is_syn() && self.acknowledges.is_none()
    }

    /// Returns true if it has a SYN, which opens or accepts a connection.
    pub(crate) fn is_syn(&self) -> bool {
        self.flags.has(Flags::SYN)
    }

    pub(crate) fn resets(&self) -> bool {
        self.flags.has(Flags::RST)
    }

    pub(crate) fn ends(&self) -> bool {
        self.flags.has(Flags::FIN)
    }

    /// Its length in the sequence space, in which SYN and FIN count as one each.
    pub(crate) fn length(&self) -> usize {
        self.payload.len() + usize::from(self.is_syn()) + usize::from(self.ends())
    }

    /// The number after its last byte, without a FIN.
    pub(crate) fn payload_end(&self) -> Sequence {
        self.sequence.plus(self.payload.len())
    }

    /// Returns true if it only acknowledges.
    pub(crate) fn is_bare(&self) -> bool {
        self.length() == 0 && !self.resets()
    }

    /// The key of its flow.
    pub(crate) fn key(&self, peer: PeerId, packet: &Packet<'_>) -> Key {
        Key {
            peer,
            source: SocketAddr::new(packet.source, self.source_port),
            destination: SocketAddr::new(packet.destination, self.destination_port),
        }
    }

    /// Answer with a reset (RFC 9293 section 3.10.7.1). The segment must not be a reset itself.
    pub(crate) fn send_reset(&self, key: &Key, buffer: &mut Vec<u8>, io: &mut Io<'_>) {
        let (sequence, acknowledged, flags) = match self.acknowledges {
            Some(acknowledged) => (acknowledged, Sequence(0), Flags::RST),
            None => {
                let end = self.sequence.plus(self.length());
                (Sequence(0), end, Flags::RST | Flags::ACK)
            }
        };
        let answer = Header {
            sequence,
            acknowledged,
            window: 0,
            flags,
            options: Written::new(),
            capable: false,
        };
        emit::segment(key, &answer, [].into_iter(), buffer, io);
    }
}

/// Answer with the position of both directions, and the value of the window field.
pub(crate) fn send_acknowledgement(
    key: &Key,
    last: Last,
    window: u16,
    buffer: &mut Vec<u8>,
    io: &mut Io<'_>,
) {
    let mut options = Written::new();
    if let Some(clocks) = last.clocks {
        options.timestamp(clocks.timestamp(io.now));
    }
    let answer = Header {
        sequence: last.ours,
        acknowledged: last.theirs,
        window,
        flags: Flags::ACK,
        options,
        capable: false,
    };
    emit::segment(key, &answer, [].into_iter(), buffer, io);
}
