//! Writing of TCP segments into packets.

use std::net::IpAddr;
use std::ops::BitOr;

use watm_core::packets::{Checksum, PacketInfo};

use super::options::Written;
use super::sequence::Sequence;
use crate::io::Io;
use crate::ip::{self, Marks, checksum};
use crate::offload::TCP_CHECKSUM;
use crate::table::Key;

/// The ECN field of a packet that routers may mark (RFC 3168 section 5).
const CAPABLE: u8 = 2;

/// The flags of a segment (RFC 9293 section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(pub u8);

impl Flags {
    pub(crate) const FIN: Flags = Flags(1);
    pub(crate) const SYN: Flags = Flags(2);
    pub(crate) const RST: Flags = Flags(4);
    pub(crate) const PSH: Flags = Flags(8);
    pub(crate) const ACK: Flags = Flags(16);
    /// Congestion is echoed (RFC 3168 section 6.1).
    pub(crate) const ECE: Flags = Flags(64);
    /// The window was reduced.
    pub(crate) const CWR: Flags = Flags(128);

    /// Returns true if all of these are set.
    pub(crate) fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags, except for those.
    pub(crate) fn without(self, flags: Flags) -> Flags {
        Flags(self.0 & !flags.0)
    }

    /// These flags, if `set`.
    pub(crate) fn only_if(self, set: bool) -> Flags {
        Flags(if set { self.0 } else { 0 })
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// The header of a segment to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub sequence: Sequence,
    pub acknowledged: Sequence,
    /// The window, scaled.
    pub window: u16,
    pub flags: Flags,
    pub options: Written,
    /// True if routers may mark the packet instead of dropping it.
    pub capable: bool,
}

/// Sends a segment of the flow with this key, with the payload in pieces. `buffer` is for the
/// packet.
pub(crate) fn segment<'a>(
    key: &Key,
    header: &Header,
    payload: impl Iterator<Item = &'a [u8]>,
    buffer: &mut Vec<u8>,
    io: &mut Io<'_>,
) {
    let mut train = Train::new(key, header, buffer);
    train.send(header.sequence, header.flags, payload, io);
}

/// Segments of one flow that leave one after another, with one header but for the numbers and the
/// flags. It is written once.
pub(crate) struct Train<'a> {
    key: &'a Key,
    /// The packet that was sent last.
    buffer: &'a mut Vec<u8>,
    /// The offsets of TCP's header and of the payload.
    start: usize,
    payload: usize,
    /// The traffic class, until the header of IP is written with the first packet.
    class: Option<u8>,
    /// The identification of the next packet, if routers may fragment it.
    identification: Option<u16>,
}

impl<'a> Train<'a> {
    /// Writes the header of TCP. `buffer` is for the packets, one at a time.
    pub(crate) fn new(key: &'a Key, header: &Header, buffer: &'a mut Vec<u8>) -> Train<'a> {
        buffer.clear();
        let start = ip::header_len(key.source.ip());
        buffer.resize(start, 0);
        write_header(key, header, buffer);
        Train {
            key,
            start,
            payload: buffer.len(),
            buffer,
            class: Some(if header.capable { CAPABLE } else { 0 }),
            identification: None,
        }
    }

    /// Lets routers fragment the packets if `first` is some. Identifications count up from it.
    pub(crate) fn set_identification(&mut self, first: Option<u16>) {
        self.identification = first;
    }

    /// Sends a segment.
    pub(crate) fn send<'p>(
        &mut self,
        sequence: Sequence,
        flags: Flags,
        payload: impl Iterator<Item = &'p [u8]>,
        io: &mut Io<'_>,
    ) {
        self.write(sequence, flags, payload, io);
        let addresses = self.addresses();
        let segment = &mut self.buffer[self.start..];
        segment[TCP_CHECKSUM..][..2].fill(0);
        fill_checksum(segment, addresses);
        io.sink.send(self.key.peer, self.buffer);
    }

    /// Sends bytes that the sink divides into segments of at most `size` bytes, and whose checksums
    /// it computes.
    pub(crate) fn send_unfinished<'p>(
        &mut self,
        sequence: Sequence,
        flags: Flags,
        payload: impl Iterator<Item = &'p [u8]>,
        size: usize,
        io: &mut Io<'_>,
    ) {
        self.write(sequence, flags, payload, io);
        let (source, destination) = self.addresses();
        let segment = &mut self.buffer[self.start..];
        let sum = checksum::pseudo_header(segment.len(), source, destination, ip::TCP);
        segment[TCP_CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
        let several = self.buffer.len() - self.payload > size;
        let info = PacketInfo {
            checksum: Checksum::Partial {
                start: self.start as u16,
                offset: TCP_CHECKSUM as u16,
            },
            segment_size: several.then_some(size as u16),
            ..PacketInfo::default()
        };
        io.sink.send_unfinished(self.key.peer, self.buffer, &info);
    }

    /// Writes a segment with any checksum into the buffer.
    fn write<'p>(
        &mut self,
        sequence: Sequence,
        flags: Flags,
        payload: impl Iterator<Item = &'p [u8]>,
        io: &Io<'_>,
    ) {
        self.buffer.truncate(self.payload);
        for piece in payload {
            self.buffer.extend_from_slice(piece);
        }
        let addresses = self.addresses();
        let segment = &mut self.buffer[self.start..];
        segment[4..8].copy_from_slice(&sequence.0.to_be_bytes());
        segment[13] = flags.0;
        match self.class.take() {
            Some(class) => {
                let label = io.labels.of(self.key);
                ip::write_header(self.buffer, addresses, ip::TCP, Marks { class, label });
            }
            None => ip::set_length(self.buffer),
        }
        if let Some(identification) = &mut self.identification {
            ip::allow_fragments(self.buffer, *identification);
            *identification = identification.wrapping_add(1);
        }
    }

    /// The source and the destination of the packets.
    fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.key.destination.ip(), self.key.source.ip())
    }
}

/// Appends a header whose checksum is zero.
fn write_header(key: &Key, header: &Header, out: &mut Vec<u8>) {
    let options = header.options.bytes();
    let words = (ip::TCP_HEADER + options.len()) / 4;
    out.extend_from_slice(&key.destination.port().to_be_bytes());
    out.extend_from_slice(&key.source.port().to_be_bytes());
    out.extend_from_slice(&header.sequence.0.to_be_bytes());
    out.extend_from_slice(&header.acknowledged.0.to_be_bytes());
    out.extend_from_slice(&[(words as u8) << 4, header.flags.0]);
    out.extend_from_slice(&header.window.to_be_bytes());
    // The checksum, and the urgent pointer.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(options);
}

/// Fills the checksum of a segment whose checksum field is zero.
fn fill_checksum(segment: &mut [u8], (source, destination): (IpAddr, IpAddr)) {
    let sum = checksum::transport(segment, source, destination, ip::TCP);
    segment[TCP_CHECKSUM..][..2].copy_from_slice(&(!sum).to_be_bytes());
}
