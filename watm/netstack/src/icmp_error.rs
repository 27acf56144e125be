//! ICMP errors about packets that the stack has sent (RFC 792, RFC 4443).

use std::net::{IpAddr, SocketAddr};

use watm_core::ErrorCode;

use crate::PeerId;
use crate::ip::{self, Packet};
use crate::table::{Key, Protocol};

/// The fate of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The packet cannot be delivered: a connection that is being opened fails, and an open one
    /// goes on. RFC 9293 section 3.9.2.2 (MUST-56) forbids this for unreachable networks and hosts,
    /// because they may come back. An application that knows another address can try it at once
    /// this way (RFC 5461 section 4).
    Unreachable(ErrorCode),
    /// It exceeds this MTU of the path, in bytes.
    TooBig(usize),
}

/// A segment or datagram of this stack, and its fate.
pub(crate) struct ReportedError {
    pub protocol: Protocol,
    pub key: Key,
    /// The sequence number of the segment; meaningless for a datagram.
    pub sequence: u32,
    pub fate: Fate,
}

/// Parses the fate of a TCP or UDP packet. `None` if the message reports something else, or on
/// something else. The checksum of `packet` is valid.
pub(crate) fn of_packet(peer: PeerId, packet: &Packet<'_>) -> Option<ReportedError> {
    let (head, quoted) = packet.payload.split_first_chunk::<8>()?;
    let [kind, code, _, _, field @ ..] = *head;
    let fate = match packet.source {
        IpAddr::V4(_) => fate_v4(kind, code, field)?,
        IpAddr::V6(_) => fate_v6(kind, code, field)?,
    };
    let (protocol, (from, to, sequence)) = match packet.source {
        IpAddr::V4(_) => ends_v4(quoted)?,
        IpAddr::V6(_) => ends_v6(quoted)?,
    };
    // A flow's source is the peer's end, whichever end opened it.
    let key = Key {
        peer,
        source: to,
        destination: from,
    };
    Some(ReportedError {
        protocol: match protocol {
            ip::TCP => Protocol::Tcp,
            ip::UDP => Protocol::Udp,
            _ => return None,
        },
        key,
        sequence,
        fate,
    })
}

fn fate_v4(kind: u8, code: u8, field: [u8; 4]) -> Option<Fate> {
    let [_, _, mtu @ ..] = field;
    Some(match (kind, code) {
        (3, 4) => Fate::TooBig(u16::from_be_bytes(mtu).into()),
        // Protocol or port unreachable, prohibited.
        (3, 2 | 3 | 9 | 10 | 13) => Fate::Unreachable(ErrorCode::ConnectionRefused),
        (3, 0 | 1 | 6 | 7 | 11 | 12) => Fate::Unreachable(ErrorCode::RemoteUnreachable),
        _ => return None,
    })
}

fn fate_v6(kind: u8, code: u8, field: [u8; 4]) -> Option<Fate> {
    Some(match (kind, code) {
        // A value that no path has is discarded (RFC 8201 section 4).
        (2, _) => match u32::from_be_bytes(field) as usize {
            mtu @ ip::LEAST_MTU_V6.. => Fate::TooBig(mtu),
            _ => return None,
        },
        // Prohibited, port unreachable, failed policy, rejected route.
        (1, 1 | 4 | 5 | 6) => Fate::Unreachable(ErrorCode::ConnectionRefused),
        (1, 0 | 2 | 3) => Fate::Unreachable(ErrorCode::RemoteUnreachable),
        _ => return None,
    })
}

type Ends = (SocketAddr, SocketAddr, u32);

/// The ends, with the protocol.
fn ends_v4(quoted: &[u8]) -> Option<(u8, Ends)> {
    let header = quoted.get(..ip::V4_HEADER)?;
    let length = usize::from(header[0] & 15) * 4;
    let first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    if header[0] >> 4 != 4 || length < ip::V4_HEADER || !first {
        return None;
    }
    let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&header[at..at + 4]).expect("four"));
    let ends = ends(address(12), address(16), quoted.get(length..)?)?;
    Some((header[9], ends))
}

/// The ends, with the protocol.
fn ends_v6(quoted: &[u8]) -> Option<(u8, Ends)> {
    let header = quoted.get(..ip::V6_HEADER)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    // The stack's own packets have no extension headers, unless they are fragments.
    let (protocol, message) = match (header[6], &quoted[ip::V6_HEADER..]) {
        (ip::FRAGMENT, [protocol, _, high, low, _, _, _, _, message @ ..])
            if [*high, low & !7] == [0, 0] =>
        {
            (*protocol, message)
        }
        (protocol, message) => (protocol, message),
    };
    let address =
        |at: usize| IpAddr::from(<[u8; 16]>::try_from(&header[at..at + 16]).expect("sixteen"));
    let ends = ends(address(8), address(24), message)?;
    Some((protocol, ends))
}

fn ends(from: IpAddr, to: IpAddr, segment: &[u8]) -> Option<Ends> {
    let [a, b, c, d, sequence @ ..] = *segment.first_chunk::<8>()?;
    Some((
        SocketAddr::new(from, u16::from_be_bytes([a, b])),
        SocketAddr::new(to, u16::from_be_bytes([c, d])),
        u32::from_be_bytes(sequence),
    ))
}
