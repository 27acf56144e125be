//! Parsing of IP packets. The stack parses every packet of a peer here first.

use std::net::IpAddr;

use smoltcp::wire::{Ipv4Packet, Ipv6Packet};

use super::extension::{self, Walk};

/// The ECN field of a packet that a router has marked.
const MARKED: u8 = 3;

/// A valid IP packet, parsed up to the header of its protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The protocol of `payload`.
    pub protocol: u8,
    pub payload: &'a [u8],
    /// The packet, without trailing bytes of the buffer.
    pub whole: &'a [u8],
    /// The offset in `whole` of the number `protocol`.
    pub protocol_at: usize,
    /// True if a router marked it because of congestion (CE of RFC 3168 section 5).
    pub marked: bool,
    /// The position, if this is a fragment: `payload` is then a piece too.
    pub fragment: Option<Fragment>,
    /// True if the checksum of the payload was verified, or is partial.
    pub verified: bool,
    /// The bytes of each payload, if it stands for several TCP segments or UDP datagrams.
    pub segment_size: Option<u16>,
}

/// The position of a fragment in its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub id: u32,
    /// The offset in bytes.
    pub offset: usize,
    pub more: bool,
}

/// The reason why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A header is malformed.
    Malformed,
    /// The source or the destination is not a host's address.
    BadAddress,
    /// The destination is a group. Groups are not carried.
    Multicast,
    /// The source must be told (IPv6 alone).
    Problem(Problem),
}

/// A parameter problem (RFC 4443 section 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Problem {
    pub code: u8,
    /// The offset in the packet of what caused it.
    pub at: usize,
}

impl Problem {
    /// An erroneous field.
    pub(super) const FIELD: Problem = Problem { code: 0, at: 0 };
    /// An unknown header.
    pub(super) const HEADER: Problem = Problem { code: 1, at: 0 };
    /// An unknown option.
    pub(super) const OPTION: Problem = Problem { code: 2, at: 0 };

    /// The fault that this problem is at an offset.
    pub(super) fn at(self, at: usize) -> Fault {
        Fault::Problem(Problem { at, ..self })
    }
}

impl<'a> Packet<'a> {
    pub(crate) fn parse(packet: &'a [u8]) -> Result<Packet<'a>, Fault> {
        match packet.first().map(|first| first >> 4) {
            Some(4) => parse_v4(packet),
            Some(6) => parse_v6(packet),
            _ => Err(Fault::Malformed),
        }
    }
}

/// Returns true if the address can belong to a host.
pub(crate) fn is_host(address: IpAddr) -> bool {
    !address.is_multicast()
        && match address {
            IpAddr::V4(address) => !address.is_unspecified() && !address.is_broadcast(),
            // IPv4-mapped addresses (RFC 4291 section 2.5.5.2) are for programs, not for the wire.
            IpAddr::V6(address) => !address.is_unspecified() && address.to_ipv4_mapped().is_none(),
        }
}

fn parse_v4(packet: &[u8]) -> Result<Packet<'_>, Fault> {
    let header = Ipv4Packet::new_checked(packet).map_err(|_| Fault::Malformed)?;
    if !header.verify_checksum() {
        return Err(Fault::Malformed);
    }
    let (source, destination) = (header.src_addr(), header.dst_addr());
    if destination.is_multicast() || destination.is_broadcast() {
        return Err(Fault::Multicast);
    }
    if !is_host(source.into()) || !is_host(destination.into()) {
        return Err(Fault::BadAddress);
    }
    let whole = &packet[..usize::from(header.total_len())];
    let fragment = Fragment {
        id: header.ident().into(),
        offset: header.frag_offset().into(),
        more: header.more_frags(),
    };
    Ok(Packet {
        source: source.into(),
        destination: destination.into(),
        protocol: header.next_header().into(),
        payload: &whole[usize::from(header.header_len())..],
        whole,
        protocol_at: 9,
        marked: header.ecn() == MARKED,
        fragment: (fragment.more || fragment.offset > 0).then_some(fragment),
        verified: false,
        segment_size: None,
    })
}

fn parse_v6(packet: &[u8]) -> Result<Packet<'_>, Fault> {
    let header = Ipv6Packet::new_checked(packet).map_err(|_| Fault::Malformed)?;
    let (source, destination) = (header.src_addr(), header.dst_addr());
    if destination.is_multicast() {
        return Err(Fault::Multicast);
    }
    if !is_host(source.into()) || !is_host(destination.into()) {
        return Err(Fault::BadAddress);
    }
    let whole = &packet[..header.total_len()];
    let Walk {
        protocol,
        protocol_at,
        payload_at,
        fragment,
    } = extension::walk(whole)?;
    Ok(Packet {
        source: source.into(),
        destination: destination.into(),
        protocol,
        payload: &whole[payload_at..],
        whole,
        protocol_at,
        marked: header.traffic_class() & MARKED == MARKED,
        fragment,
        verified: false,
        segment_size: None,
    })
}
