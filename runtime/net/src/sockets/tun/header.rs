//! The header before each packet of a device with `IFF_VNET_HDR`: `struct virtio_net_hdr` of Linux,
//! in the byte order of the machine (VIRTIO 1.3 section 5.1.6, legacy interface).

use super::entry::{Checksum, PacketInfo, Segments};

/// The bytes of the header.
pub(super) const LEN: usize = 10;

/// Flags: the checksum is partial, or was verified.
const NEEDS_CHECKSUM: u8 = 1;
const VERIFIED: u8 = 2;

/// Kinds of packets that stand for several, and the flag of TCP packets with CWR
/// (`VIRTIO_NET_HDR_GSO_ECN`): only the first part keeps it.
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;

/// Returns the entry of a packet of `len` bytes with this header.
pub(super) fn decode(header: &[u8; LEN], len: u32) -> PacketInfo {
    let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let checksum = match header[0] {
        flags if flags & NEEDS_CHECKSUM != 0 => Checksum::Partial {
            start: field(6),
            offset: field(8),
        },
        flags if flags & VERIFIED != 0 => Checksum::Verified,
        _ => Checksum::Complete,
    };
    let several = matches!(header[1] & !ECN, TCP_OVER_IPV4 | TCP_OVER_IPV6 | UDP);
    PacketInfo {
        len,
        checksum,
        segment_size: several.then(|| field(4)),
    }
}

/// Returns the header for a packet whose entry is valid.
pub(super) fn encode(info: &PacketInfo, packet: &[u8]) -> [u8; LEN] {
    let mut header = [0; LEN];
    let mut set = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    let flags = match info.checksum {
        Checksum::Complete => 0,
        Checksum::Verified => VERIFIED,
        Checksum::Partial { start, offset } => {
            set(6, start);
            set(8, offset);
            NEEDS_CHECKSUM
        }
    };
    let mut kind = 0;
    if let (Some(size), Some((segments, headers))) = (info.segment_size, info.segments(packet)) {
        // Headers are shorter than 64 KiB.
        set(2, headers as u16);
        set(4, size);
        kind = match (segments, packet[0] >> 4) {
            (Segments::Tcp, 4) => TCP_OVER_IPV4 | cwr_flag(info, packet),
            (Segments::Tcp, _) => TCP_OVER_IPV6 | cwr_flag(info, packet),
            (Segments::Udp, _) => UDP,
        };
    }
    header[0] = flags;
    header[1] = kind;
    header
}

/// Returns [`ECN`] if a TCP packet has CWR, else 0.
fn cwr_flag(info: &PacketInfo, packet: &[u8]) -> u8 {
    const CWR: u8 = 0x80;
    match info.checksum {
        Checksum::Partial { start, .. } if packet[usize::from(start) + 13] & CWR != 0 => ECN,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_an_entry_says() {
        let mut packet = [0; 100];
        packet[0] = 0x45;
        packet[32] = 0x50;
        let partial = |offset| Checksum::Partial { start: 20, offset };
        let entries = [
            (Checksum::Complete, None),
            (Checksum::Verified, None),
            (partial(16), None),
            (partial(16), Some(30)),
            (partial(6), Some(30)),
        ];
        for (checksum, segment_size) in entries {
            let info = PacketInfo {
                len: 100,
                checksum,
                segment_size,
            };
            assert_eq!(decode(&encode(&info, &packet), 100), info);
        }
    }

    #[test]
    fn the_kernel_is_told_the_kind_and_the_headers() {
        let mut packet = [0; 100];
        packet[52] = 0x80;
        let info = PacketInfo {
            len: 100,
            checksum: Checksum::Partial {
                start: 40,
                offset: 16,
            },
            segment_size: Some(7),
        };
        for (first, kind) in [(0x45, TCP_OVER_IPV4), (0x60, TCP_OVER_IPV6)] {
            packet[0] = first;
            let header = encode(&info, &packet);
            assert_eq!(header[..2], [NEEDS_CHECKSUM, kind]);
            assert_eq!(header[2..4], 72u16.to_ne_bytes());
        }
        packet[53] = 0x80;
        assert_eq!(encode(&info, &packet)[1], TCP_OVER_IPV6 | ECN, "CWR");
    }
}
