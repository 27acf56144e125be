//! Parsing of IP packets. The stack parses every packet of a peer here first.

use std::net::IpAddr;

use smoltcp::wire::{Ipv4Packet, Ipv6Packet};

use super::extension::{self, Walk};

/// The ECN field in the traffic class (RFC 3168 section 5).
const ECN: u8 = 3;
/// The ECN field of a packet that a router has marked because of congestion (CE).
pub(super) const MARKED: u8 = 3;
/// The ECN field of a packet that routers drop instead of marking it (Not-ECT).
const NOT_ECT: u8 = 0;

/// The options of IPv4 (RFC 791 section 3.1).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;

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
    /// The traffic class, with ECN in its lowest two bits (RFC 2474, RFC 3168).
    pub class: u8,
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

    /// The first fragment ends within the headers (RFC 7112 section 5).
    pub(super) const CHAIN: Problem = Problem { code: 3, at: 0 };

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

    /// Returns true if a router marked it because of congestion.
    pub(crate) fn is_marked(&self) -> bool {
        self.class & ECN == MARKED
    }

    /// Returns true if routers drop it instead of marking it.
    pub(super) fn cannot_be_marked(&self) -> bool {
        self.class & ECN == NOT_ECT
    }

    /// The traffic class without ECN, for an answer to it.
    pub(crate) fn service(&self) -> u8 {
        self.class & !ECN
    }
}

/// Marks a packet whose tunnel datagram has a congestion mark (RFC 6040 section 4.2). The RFC drops
/// a packet that is not ECN-capable. Here it stays unmarked, as in WireGuard of Linux. A malformed
/// packet stays as it is.
pub fn mark_congestion(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            if let Ok(mut header) = Ipv4Packet::new_checked(packet)
                && header.ecn() != NOT_ECT
                && header.verify_checksum()
            {
                header.set_ecn(MARKED);
                header.fill_checksum();
            }
        }
        Some(6) => {
            if let Ok(mut header) = Ipv6Packet::new_checked(packet)
                && header.traffic_class() & ECN != NOT_ECT
            {
                header.set_traffic_class(header.traffic_class() | MARKED);
            }
        }
        _ => {}
    }
}

/// The protocol above IP in a packet with valid headers, and what there is of its message. `None`
/// if the headers do not end in this packet.
pub(crate) fn upper_layer(packet: &[u8]) -> Option<(u8, &[u8])> {
    match packet[0] >> 4 {
        6 => extension::upper_layer(packet[6], &packet[super::V6_HEADER..]),
        _ => Some((packet[9], &packet[usize::from(packet[0] & 15) * 4..])),
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
    let header_len = usize::from(header.header_len());
    check_options(&whole[super::V4_HEADER..header_len])?;
    let fragment = Fragment {
        id: header.ident().into(),
        offset: header.frag_offset().into(),
        more: header.more_frags(),
    };
    Ok(Packet {
        source: source.into(),
        destination: destination.into(),
        protocol: header.next_header().into(),
        payload: &whole[header_len..],
        whole,
        protocol_at: 9,
        class: whole[1],
        fragment: (fragment.more || fragment.offset > 0).then_some(fragment),
        verified: false,
        segment_size: None,
    })
}

/// Checks the options of IPv4. None changes anything here. Source routes are refused, as by default
/// in Linux: an answer would have to take the same way back (RFC 9293 section 3.9.2.1).
fn check_options(options: &[u8]) -> Result<(), Fault> {
    let mut rest = options;
    while let [kind, tail @ ..] = rest {
        match *kind {
            END_OF_OPTIONS => return Ok(()),
            NO_OPERATION => {
                rest = tail;
                continue;
            }
            LOOSE_ROUTE | STRICT_ROUTE => return Err(Fault::Malformed),
            _ => {}
        }
        let length = tail.first().map_or(0, |length| usize::from(*length));
        let option = rest.get(..length).filter(|option| option.len() >= 2);
        let option = option.ok_or(Fault::Malformed)?;
        rest = &rest[option.len()..];
    }
    Ok(())
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
        class: header.traffic_class(),
        fragment,
        verified: false,
        segment_size: None,
    })
}
