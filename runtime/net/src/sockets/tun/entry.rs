//! The entries of a batch of packets: what each packet leaves to the other side.

/// The checksum of the TCP segment or UDP datagram in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// The field holds it, and nobody has verified it.
    Complete,
    /// The other side has verified it, or vouches that the packet crossed no network.
    Verified,
    /// The field holds the sum of the pseudo-header alone.
    Partial {
        /// The bytes before the segment or datagram, from the start of the packet.
        start: u16,
        /// The bytes from there to the field.
        offset: u16,
    },
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketInfo {
    /// The bytes of the payload that it covers.
    pub len: u32,
    /// The state of the checksum.
    pub checksum: Checksum,
    /// The payload of each packet, if the entry stands for several.
    pub segment_size: Option<u16>,
}

/// Work that one side may leave to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads {
    /// Checksums may be partial.
    pub checksum: bool,
    /// An entry may stand for several TCP segments.
    pub tcp_segments: bool,
    /// An entry may stand for several UDP datagrams.
    pub udp_segments: bool,
}

impl Offloads {
    /// Returns those of `self` that `other` has too. Segments need partial checksums.
    pub fn and(self, other: Offloads) -> Offloads {
        let checksum = self.checksum && other.checksum;
        Offloads {
            checksum,
            tcp_segments: checksum && self.tcp_segments && other.tcp_segments,
            udp_segments: checksum && self.udp_segments && other.udp_segments,
        }
    }
}

/// The protocol in an entry that stands for several packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segments {
    Tcp,
    Udp,
}

/// The offsets of the checksum in the headers of TCP (RFC 9293 section 3.1) and UDP (RFC 768).
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

impl PacketInfo {
    /// Returns the entry of a packet that leaves nothing to the other side.
    pub fn plain(len: u32) -> PacketInfo {
        PacketInfo {
            len,
            checksum: Checksum::Complete,
            segment_size: None,
        }
    }

    /// Returns true if the entry fits its packet, and needs no other offloads than these.
    pub fn is_valid(&self, packet: &[u8], offloads: Offloads) -> bool {
        let Checksum::Partial { start, offset } = self.checksum else {
            return self.segment_size.is_none();
        };
        let field_end = usize::from(start) + usize::from(offset) + 2;
        if !offloads.checksum || field_end > packet.len() {
            return false;
        }
        match (self.segment_size, self.segments(packet)) {
            (None, _) => true,
            (Some(1..), Some((Segments::Tcp, _))) => offloads.tcp_segments,
            (Some(1..), Some((Segments::Udp, _))) => offloads.udp_segments,
            (Some(_), _) => false,
        }
    }

    /// Returns the protocol of an entry with a partial checksum, and the bytes of all headers. `None`
    /// if the packet is shorter than that, or the protocol is another.
    pub(super) fn segments(&self, packet: &[u8]) -> Option<(Segments, usize)> {
        let Checksum::Partial { start, offset } = self.checksum else {
            return None;
        };
        let start = usize::from(start);
        let (segments, header) = match usize::from(offset) {
            // The data offset, in words of four bytes.
            TCP_CHECKSUM => (Segments::Tcp, usize::from(packet.get(start + 12)? >> 4) * 4),
            UDP_CHECKSUM => (Segments::Udp, 8),
            _ => return None,
        };
        let headers = start + header;
        (header > usize::from(offset) && headers <= packet.len()).then_some((segments, headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Offloads = Offloads {
        checksum: true,
        tcp_segments: true,
        udp_segments: true,
    };

    fn entry(start: u16, offset: u16, segment_size: Option<u16>) -> PacketInfo {
        PacketInfo {
            len: 100,
            checksum: Checksum::Partial { start, offset },
            segment_size,
        }
    }

    /// A packet whose byte 32, the data offset of TCP after a header of 20 bytes, says 20 bytes.
    fn packet() -> [u8; 100] {
        let mut packet = [0; 100];
        packet[32] = 0x50;
        packet
    }

    #[test]
    fn an_entry_may_use_the_offloads_that_were_set() {
        let (tcp, udp) = (entry(20, 16, Some(30)), entry(20, 6, Some(30)));
        let single = entry(20, 16, None);
        assert!(
            [tcp, udp, single]
                .iter()
                .all(|info| info.is_valid(&packet(), ALL))
        );
        let checksum = Offloads {
            checksum: true,
            ..Offloads::default()
        };
        assert!(single.is_valid(&packet(), checksum));
        assert!(!tcp.is_valid(&packet(), checksum) && !udp.is_valid(&packet(), checksum));
        assert!(!single.is_valid(&packet(), Offloads::default()));
    }

    #[test]
    fn an_entry_must_fit_its_packet() {
        let unfit = [
            entry(98, 16, None),
            entry(u16::MAX, u16::MAX, None),
            entry(20, 16, Some(0)),
            entry(20, 10, Some(30)),
            entry(95, 6, Some(30)),
            // The data offset of TCP is 0 there.
            entry(21, 16, Some(30)),
        ];
        for info in unfit {
            assert!(!info.is_valid(&packet(), ALL), "{info:?}");
        }
        let complete = PacketInfo {
            len: 100,
            checksum: Checksum::Complete,
            segment_size: Some(30),
        };
        assert!(!complete.is_valid(&packet(), ALL));
    }

    #[test]
    fn segments_need_partial_checksums() {
        let segments = Offloads {
            checksum: false,
            ..ALL
        };
        assert_eq!(ALL.and(segments), Offloads::default());
        assert_eq!(ALL.and(ALL), ALL);
    }
}
