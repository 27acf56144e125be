//! Sending of IP packets, which TCP, UDP and ICMP use.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{Ipv4Packet, Ipv6FragmentHeader, Ipv6Packet};

use super::{FRAGMENT, V4_HEADER, V6_HEADER};
use crate::{PacketSink, PeerId};

/// The hop limit of sent packets, as RFC 1700 recommends.
const HOP_LIMIT: u8 = 64;
/// The largest value of the 16-bit lengths in IP headers.
const MAX_LENGTH: usize = 65535;
const FRAGMENT_HEADER: usize = 8;
/// The MTU of every IPv6 path (RFC 8200 section 5).
pub(crate) const LEAST_MTU_V6: usize = 1280;

/// Writes IP packets, and fragments them to the MTU.
#[derive(Debug)]
pub(crate) struct Sender {
    mtu: usize,
    /// The MTU of each path that is below the general one.
    narrow: BTreeMap<PeerId, usize>,
    next_id: u32,
    packet: Vec<u8>,
    fragment: Vec<u8>,
}

impl Sender {
    pub(crate) fn new(mtu: usize, first_id: u32) -> Self {
        Sender {
            mtu,
            narrow: BTreeMap::new(),
            next_id: first_id,
            packet: Vec::new(),
            fragment: Vec::new(),
        }
    }

    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// Set the MTU of the path to this peer. `None`: only the general MTU limits it.
    pub(crate) fn set_path(&mut self, peer: PeerId, mtu: Option<usize>) {
        match mtu {
            Some(mtu) => self.narrow.insert(peer, mtu),
            None => self.narrow.remove(&peer),
        };
    }

    /// The largest packet to this peer, in bytes.
    pub(crate) fn mtu(&self, peer: PeerId) -> usize {
        let path = self.narrow.get(&peer);
        path.map_or(self.mtu, |&path| path.min(self.mtu))
    }

    /// Send a packet whose payload `fill` appends. Returns false, and sends nothing, if the payload
    /// is too large for IP.
    pub(crate) fn send(
        &mut self,
        path: Path,
        peer: PeerId,
        sink: &mut dyn PacketSink,
        (source, destination): (IpAddr, IpAddr),
        protocol: u8,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let header = header_len(destination);
        self.packet.clear();
        self.packet.resize(header, 0);
        fill(&mut self.packet);
        let length = self.packet.len();
        let counted = if destination.is_ipv4() {
            length
        } else {
            length - header
        };
        if counted > MAX_LENGTH {
            return false;
        }
        let mtu = self.mtu(peer).min(path.mtu);
        if length <= mtu {
            let ends = (source, destination);
            write_header(&mut self.packet, ends, protocol, path.marks);
            if path.may_fragment && destination.is_ipv4() {
                let id = self.take_id();
                allow_fragments(&mut self.packet, id as u16);
            }
            sink.send(peer, &self.packet);
            return true;
        }
        let id = self.take_id();
        let overhead = match destination {
            IpAddr::V4(_) => header,
            IpAddr::V6(_) => header + FRAGMENT_HEADER,
        };
        // Each piece but the last is a multiple of eight bytes.
        let step = (mtu - overhead) / 8 * 8;
        let payload = &self.packet[header..];
        for (number, piece) in payload.chunks(step).enumerate() {
            let offset = number * step;
            let more = offset + piece.len() < payload.len();
            self.fragment.clear();
            self.fragment.resize(overhead, 0);
            self.fragment.extend_from_slice(piece);
            write_fragment(
                &mut self.fragment,
                (source, destination),
                protocol,
                Piece {
                    id,
                    offset,
                    more,
                    marks: path.marks,
                },
            );
            sink.send(peer, &self.fragment);
        }
        true
    }

    fn take_id(&mut self) -> u32 {
        self.next_id = self.next_id.wrapping_add(1);
        self.next_id
    }
}

struct Piece {
    id: u32,
    offset: usize,
    more: bool,
    marks: Marks,
}

/// Writes a packet with this payload, of any size, to `out`.
pub(super) fn write_packet(
    out: &mut Vec<u8>,
    ends: (IpAddr, IpAddr),
    protocol: u8,
    class: u8,
    payload: &[u8],
) {
    out.clear();
    out.resize(header_len(ends.1), 0);
    out.extend_from_slice(payload);
    write_header(out, ends, protocol, Marks { class, label: 0 });
}

pub(crate) fn header_len(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => V4_HEADER,
        IpAddr::V6(_) => V6_HEADER,
    }
}

/// The path of packets behind a peer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    /// The longest packet, in bytes.
    mtu: usize,
    /// True if IPv4 routers may fragment the packets (DF is clear): no flow hears of their reports,
    /// or the path carries less than the least size used.
    may_fragment: bool,
    marks: Marks,
}

impl Path {
    /// Returns the path of a flow, with its MTU in bytes and its flow label. `may_fragment`: IPv4
    /// routers may fragment its packets.
    pub(crate) fn of_flow(mtu: usize, label: u32, may_fragment: bool) -> Path {
        Path {
            mtu,
            may_fragment,
            marks: Marks { class: 0, label },
        }
    }

    /// Returns the path of a message without a flow, on which a router's report has no effect. Over
    /// IPv6, packets fit the least MTU (RFC 8200 section 5).
    pub(crate) fn of_message(destination: IpAddr, class: u8) -> Path {
        Path {
            mtu: match destination {
                IpAddr::V4(_) => usize::MAX,
                IpAddr::V6(_) => LEAST_MTU_V6,
            },
            may_fragment: true,
            marks: Marks { class, label: 0 },
        }
    }
}

/// The parts of a header that routers look at.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// The traffic class, with ECN in its lowest two bits (RFC 2474, RFC 3168).
    pub class: u8,
    /// The flow label of IPv6, or 0 (RFC 6437).
    pub label: u32,
}

/// Writes the header of a packet that is not fragmented. Its place is at the beginning of `packet`.
pub(crate) fn write_header(
    packet: &mut [u8],
    (source, destination): (IpAddr, IpAddr),
    protocol: u8,
    Marks { class, label }: Marks,
) {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = write_v4(packet, source, destination, protocol);
            header.set_ecn(class & 3);
            header.set_dscp(class >> 2);
            // Fragmentation is forbidden, so that the identification may be 0 (RFC 6864).
            header.set_dont_frag(true);
            header.fill_checksum();
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = write_v6(packet, source, destination, protocol);
            header.set_traffic_class(class);
            header.set_flow_label(label);
        }
        _ => unreachable!("both addresses come from one packet"),
    }
}

/// Lets routers fragment an IPv4 packet that [`write_header`] wrote. Its identification must not
/// repeat soon (RFC 6864 section 4.2).
pub(crate) fn allow_fragments(packet: &mut [u8], id: u16) {
    let mut header = Ipv4Packet::new_unchecked(packet);
    header.set_dont_frag(false);
    header.set_ident(id);
    header.fill_checksum();
}

/// Changes the length in the header of a packet that [`write_header`] wrote for another payload.
pub(crate) fn set_length(packet: &mut [u8]) {
    let length = packet.len();
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let mut header = Ipv4Packet::new_unchecked(packet);
            header.set_total_len(u16::try_from(length).expect("checked by the caller"));
            header.fill_checksum();
        }
        _ => {
            let length = u16::try_from(length - V6_HEADER).expect("checked by the caller");
            Ipv6Packet::new_unchecked(packet).set_payload_len(length);
        }
    }
}

fn write_fragment(
    packet: &mut [u8],
    (source, destination): (IpAddr, IpAddr),
    protocol: u8,
    piece: Piece,
) {
    let offset = u16::try_from(piece.offset).expect("the payload has at most 65535 bytes");
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = write_v4(packet, source, destination, protocol);
            header.set_ident(piece.id as u16);
            header.set_dscp(piece.marks.class >> 2);
            header.set_frag_offset(offset);
            header.set_more_frags(piece.more);
            header.fill_checksum();
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = write_v6(packet, source, destination, FRAGMENT);
            header.set_traffic_class(piece.marks.class);
            header.set_flow_label(piece.marks.label);
            packet[V6_HEADER] = protocol;
            let mut header = Ipv6FragmentHeader::new_unchecked(&mut packet[V6_HEADER + 2..]);
            header.set_frag_offset(offset / 8);
            header.set_more_frags(piece.more);
            header.set_ident(piece.id);
        }
        _ => unreachable!("both addresses come from one packet"),
    }
}

fn write_v4(
    packet: &mut [u8],
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
) -> Ipv4Packet<&mut [u8]> {
    let length = u16::try_from(packet.len()).expect("checked by the caller");
    let mut header = Ipv4Packet::new_unchecked(packet);
    header.set_version(4);
    header.set_header_len(V4_HEADER as u8);
    header.set_total_len(length);
    header.set_hop_limit(HOP_LIMIT);
    header.set_next_header(protocol.into());
    header.set_src_addr(source);
    header.set_dst_addr(destination);
    header
}

fn write_v6(
    packet: &mut [u8],
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
) -> Ipv6Packet<&mut [u8]> {
    let length = u16::try_from(packet.len() - V6_HEADER).expect("checked by the caller");
    let mut header = Ipv6Packet::new_unchecked(packet);
    header.set_version(6);
    header.set_payload_len(length);
    header.set_next_header(protocol.into());
    header.set_hop_limit(HOP_LIMIT);
    header.set_src_addr(source);
    header.set_dst_addr(destination);
    header
}
