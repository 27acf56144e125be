//! ICMP (RFC 792) and ICMPv6 (RFC 4443): echo replies, and errors for undeliverable packets.

use std::net::IpAddr;

use smoltcp::wire::{Icmpv4Packet, Icmpv6Packet, IpProtocol, Ipv6Packet, checksum};

use crate::counters::Counters;
use crate::hash::Keyed;
use crate::io::Io;
use crate::ip::{self, Expired, LEAST_MTU_V6, Packet, Path, Problem, Sender};
use crate::limit::Limiter;
use crate::{PacketSink, PeerId};

/// The number of errors sent at once, and in each second after that. A program that probes
/// protocols gets its answers; a flood does not.
const ERROR_BURST: u32 = 20;
const ERRORS_PER_SECOND: u32 = 10;

/// The bytes after the header of the offending packet that an ICMPv4 error repeats (RFC 1812
/// section 4.3.2.3: as much as fits 576 bytes).
const QUOTE_V4: usize = 576 - ip::V4_HEADER - 8;
/// The bytes that an ICMPv6 error repeats, which fills the smallest MTU of IPv6 (RFC 4443 section
/// 2.4 c).
const QUOTE_V6: usize = LEAST_MTU_V6 - ip::V6_HEADER - 8;

/// The ICMPv6 type of redirects. They are not errors, but no error answers them.
const REDIRECT: u8 = 137;

/// The missing destination of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A protocol that is not carried.
    Protocol,
    /// A port without a receiver.
    Port,
}

/// Answers echo requests and sends errors.
#[derive(Debug)]
pub(crate) struct Icmp {
    errors: Limiter,
}

impl Icmp {
    pub(crate) fn new(hash: Keyed) -> Self {
        Icmp {
            errors: Limiter::new(ERROR_BURST, ERRORS_PER_SECOND, hash),
        }
    }

    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.errors.forget(peer);
    }

    /// Handle an ICMP message; the protocol of `packet` belongs to its addresses.
    pub(crate) fn handle(
        &mut self,
        peer: PeerId,
        packet: &Packet<'_>,
        sender: &mut Sender,
        sink: &mut dyn PacketSink,
        counters: &mut Counters,
    ) {
        let message = packet.payload;
        if !is_sound(packet) {
            counters.icmp_malformed += 1;
            return;
        }
        let (request, reply) = match packet.source {
            IpAddr::V4(_) => (8, 0),
            IpAddr::V6(_) => (128, 129),
        };
        if message[..2] != [request, 0] || message.len() < 8 {
            counters.icmp_ignored += 1;
            return;
        }
        let addresses = (packet.destination, packet.source);
        // The reply has the traffic class of the request, without ECN (RFC 1349 section 5.1).
        let path = Path::of_message(packet.source, packet.service());
        sender.send(path, peer, sink, addresses, packet.protocol, |out| {
            let start = out.len();
            out.extend_from_slice(&[reply, 0, 0, 0]);
            out.extend_from_slice(&message[4..]);
            fill_checksum(&mut out[start..], addresses);
        });
        counters.icmp_echoed += 1;
    }

    /// Report the missing destination of its packet to a peer.
    pub(crate) fn refuse(
        &mut self,
        peer: PeerId,
        packet: &Packet<'_>,
        missing: Missing,
        sender: &mut Sender,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) {
        // The type is destination unreachable. For a protocol in IPv6 it is a parameter problem:
        // unrecognized next header, with its offset.
        let (kind, code, field) = match (packet.source, missing) {
            (IpAddr::V4(_), Missing::Protocol) => (3, 2, 0),
            (IpAddr::V4(_), Missing::Port) => (3, 3, 0),
            (IpAddr::V6(_), Missing::Protocol) => (4, 1, packet.protocol_at as u32),
            (IpAddr::V6(_), Missing::Port) => (1, 4, 0),
        };
        let error = Error {
            kind,
            code,
            field,
            whole: packet.whole,
            ends: (packet.source, packet.destination),
        };
        self.send(peer, &error, sender, io, counters);
    }

    /// Report the header of an IPv6 packet that cannot be ignored to a peer.
    pub(crate) fn complain(
        &mut self,
        peer: PeerId,
        packet: &[u8],
        problem: Problem,
        sender: &mut Sender,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) {
        let header = Ipv6Packet::new_unchecked(packet);
        let whole = &packet[..header.total_len()];
        if may_be_error(whole) {
            return;
        }
        let error = Error {
            kind: 4,
            code: problem.code,
            field: problem.at as u32,
            whole,
            ends: (header.src_addr().into(), header.dst_addr().into()),
        };
        self.send(peer, &error, sender, io, counters);
    }

    /// Tells the source of a packet that fragments of it are missing (RFC 792, RFC 4443
    /// section 3.3). Nothing is sent if the first fragment is missing.
    pub(crate) fn report_expired(
        &mut self,
        expired: &Expired,
        sender: &mut Sender,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) {
        let whole = &expired.head[..];
        if whole.is_empty() || may_be_error(whole) {
            return;
        }
        let error = Error {
            kind: match expired.ends.0 {
                IpAddr::V4(_) => 11,
                IpAddr::V6(_) => 3,
            },
            code: 1,
            field: 0,
            whole,
            ends: expired.ends,
        };
        self.send(expired.peer, &error, sender, io, counters);
    }

    fn send(
        &mut self,
        peer: PeerId,
        error: &Error<'_>,
        sender: &mut Sender,
        io: &mut Io<'_>,
        counters: &mut Counters,
    ) {
        if !self.errors.permits(peer, io.now) {
            counters.icmp_errors_withheld += 1;
            return;
        }
        let (source, destination) = error.ends;
        let (protocol, quote) = match source {
            IpAddr::V4(_) => (ip::ICMP, QUOTE_V4),
            IpAddr::V6(_) => (ip::ICMPV6, QUOTE_V6),
        };
        let addresses = (destination, source);
        let path = Path::of_message(source, 0);
        sender.send(path, peer, io.sink, addresses, protocol, |out| {
            let start = out.len();
            out.extend_from_slice(&[error.kind, error.code, 0, 0]);
            out.extend_from_slice(&error.field.to_be_bytes());
            out.extend_from_slice(&error.whole[..error.whole.len().min(quote)]);
            fill_checksum(&mut out[start..], addresses);
        });
        counters.icmp_errors_sent += 1;
    }
}

/// An error about a packet.
struct Error<'a> {
    kind: u8,
    code: u8,
    /// The four bytes after the checksum.
    field: u32,
    whole: &'a [u8],
    /// The source and destination of the packet.
    ends: (IpAddr, IpAddr),
}

/// Returns true if a packet with valid headers may be a message to which no ICMP error may be sent
/// (RFC 1122 section 3.2.2, RFC 4443 section 2.4 e).
fn may_be_error(packet: &[u8]) -> bool {
    let Some((protocol, message)) = ip::upper_layer(packet) else {
        return true;
    };
    let kind = message.first();
    match (packet[0] >> 4, protocol) {
        // Destination unreachable, source quench, redirect, time exceeded, parameter problem.
        (4, ip::ICMP) => kind.is_none_or(|kind| matches!(kind, 3..=5 | 11 | 12)),
        (6, ip::ICMPV6) => kind.is_none_or(|kind| *kind < 128 || *kind == REDIRECT),
        _ => false,
    }
}

/// Returns true if the checksum is right.
pub(crate) fn is_sound(packet: &Packet<'_>) -> bool {
    match (packet.source, packet.destination) {
        (IpAddr::V4(_), _) => {
            Icmpv4Packet::new_checked(packet.payload).is_ok_and(|message| message.verify_checksum())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            packet.payload.len() >= 4
                && Icmpv6Packet::new_unchecked(packet.payload)
                    .verify_checksum(&source, &destination)
        }
        _ => false,
    }
}

/// Fill the checksum of a message whose checksum field is zero.
fn fill_checksum(message: &mut [u8], (source, destination): (IpAddr, IpAddr)) {
    let body = checksum::data(message);
    let sum = match source {
        IpAddr::V4(_) => body,
        IpAddr::V6(_) => {
            // The pseudo-header contains the length; a message is never longer than that field
            // allows.
            let length = message.len() as u32;
            let header = checksum::pseudo_header(
                &source.into(),
                &destination.into(),
                IpProtocol::Icmpv6,
                length,
            );
            checksum::combine(&[header, body])
        }
    };
    message[2..4].copy_from_slice(&(!sum).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP_BY_HOP: u8 = 0;
    const DESTINATION: u8 = 60;

    /// A packet of IPv6.
    fn packet(first: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; ip::V6_HEADER];
        packet[0] = 0x60;
        packet[6] = first;
        packet.extend_from_slice(rest);
        packet
    }

    /// A packet of IPv4, with options.
    fn packet_v4(protocol: u8, message: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; ip::V4_HEADER + 4];
        packet[0] = 0x46;
        packet[9] = protocol;
        packet.extend_from_slice(message);
        packet
    }

    #[test]
    fn an_error_is_recognised_behind_options() {
        for kind in [3, 4, 5, 11, 12] {
            assert!(may_be_error(&packet_v4(ip::ICMP, &[kind, 0])), "{kind}");
        }
        assert!(!may_be_error(&packet_v4(ip::ICMP, &[8, 0])));
        assert!(!may_be_error(&packet_v4(ip::UDP, &[3, 0])));
        assert!(!may_be_error(&packet_v4(ip::ICMPV6, &[3, 0])));
        assert!(may_be_error(&packet_v4(ip::ICMP, &[])));
    }

    #[test]
    fn an_error_is_recognised_behind_headers() {
        let hop = [ip::ICMPV6, 0, 0, 0, 0, 0, 0, 0];
        let behind = |kind: u8| packet(HOP_BY_HOP, &[&hop[..], &[kind, 0]].concat());
        assert!(may_be_error(&behind(1)));
        assert!(!may_be_error(&behind(128)));
        assert!(may_be_error(&behind(REDIRECT)));
        // A piece from the middle of a message.
        let middle = |above: u8| packet(ip::FRAGMENT, &[above, 0, 0, 8, 0, 0, 0, 9, 128, 0]);
        assert!(may_be_error(&middle(ip::ICMPV6)));
        assert!(may_be_error(&middle(DESTINATION)));
        assert!(!may_be_error(&middle(ip::UDP)));
        assert!(!may_be_error(&packet(17, &[1])));
        // Nobody can tell.
        assert!(may_be_error(&packet(ip::ICMPV6, &[])));
        assert!(may_be_error(&packet(DESTINATION, &[ip::ICMPV6, 9, 0, 0])));
    }
}
