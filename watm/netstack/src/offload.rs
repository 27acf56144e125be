//! Packets that are finished outside of the stack: those whose checksum is partial, and those that
//! stand for several (GSO and GRO of Linux). `watm_core::packets` describes them.

use watm_core::packets::{Checksum, PacketInfo};

use crate::ip::{self, Packet, checksum};

/// The offset of the checksum in a TCP header.
pub(crate) const TCP_CHECKSUM: usize = 16;
/// The same in a UDP header.
const UDP_CHECKSUM: usize = 6;

/// FIN and PSH, which belong to the last of several segments.
const LAST: u8 = 1 | 8;
/// CWR, which belongs to the first (RFC 3168 section 6.1.2).
const FIRST: u8 = 128;

/// Calls `each` with every packet that an entry of a device stands for, finished. An entry that is
/// malformed stands for none.
pub fn finish(packet: &[u8], info: &PacketInfo, mut each: impl FnMut(&[u8])) {
    let partial = matches!(info.checksum, Checksum::Partial { .. });
    if !partial && info.segment_size.is_none() {
        return each(packet);
    }
    if let Ok(mut parsed) = Packet::parse(packet) {
        parsed.verified = partial;
        parsed.segment_size = info.segment_size;
        divide(&parsed, each);
    }
}

/// Calls `each` with the packets that a packet without a fragment's header stands for, finished.
pub(crate) fn divide(packet: &Packet<'_>, mut each: impl FnMut(&[u8])) {
    if !packet.verified && packet.segment_size.is_none() {
        return each(packet.whole);
    }
    let start = packet.whole.len() - packet.payload.len();
    let (header, at) = match packet.protocol {
        ip::TCP if packet.payload.len() > TCP_CHECKSUM => {
            (usize::from(packet.payload[12] >> 4) * 4, TCP_CHECKSUM)
        }
        ip::UDP => (ip::UDP_HEADER, UDP_CHECKSUM),
        _ => return,
    };
    if packet.payload.len() < header || header < at + 2 {
        return;
    }
    let (headers, content) = packet.whole.split_at(start + header);
    let size = packet
        .segment_size
        .map_or(content.len(), usize::from)
        .max(1);
    let mut buffer = Vec::with_capacity(headers.len() + size.min(content.len()));
    let mut offset = 0;
    let mut number = 0;
    loop {
        let piece = &content[offset..content.len().min(offset + size)];
        buffer.clear();
        buffer.extend_from_slice(headers);
        buffer.extend_from_slice(piece);
        let place = Place {
            offset,
            number,
            last: offset + piece.len() == content.len(),
        };
        write(&mut buffer, start, packet, &place);
        each(&buffer);
        offset += piece.len();
        number += 1;
        if place.last {
            return;
        }
    }
}

/// The place of a packet among several.
struct Place {
    /// The offset of its payload.
    offset: usize,
    number: u16,
    last: bool,
}

/// Writes the fields in which the packets of an entry differ. `start` is the offset of the segment.
fn write(buffer: &mut [u8], start: usize, packet: &Packet<'_>, place: &Place) {
    if packet.source.is_ipv4() {
        let id = u16::from_be_bytes([buffer[4], buffer[5]]).wrapping_add(place.number);
        buffer[4..6].copy_from_slice(&id.to_be_bytes());
    }
    ip::set_length(buffer);
    let message = &mut buffer[start..];
    let length = message.len();
    let at = if packet.protocol == ip::TCP {
        let sequence = [message[4], message[5], message[6], message[7]];
        let sequence = u32::from_be_bytes(sequence).wrapping_add(place.offset as u32);
        message[4..8].copy_from_slice(&sequence.to_be_bytes());
        if place.number > 0 {
            message[13] &= !FIRST;
        }
        if !place.last {
            message[13] &= !LAST;
        }
        TCP_CHECKSUM
    } else {
        message[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        UDP_CHECKSUM
    };
    message[at..at + 2].fill(0);
    let (source, destination) = (packet.source, packet.destination);
    let sum = !checksum::transport(message, source, destination, packet.protocol);
    // A checksum of UDP that is 0 says that there is none (RFC 768).
    let sum = match (packet.protocol, sum) {
        (ip::UDP, 0) => u16::MAX,
        (_, sum) => sum,
    };
    message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}
