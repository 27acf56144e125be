//! IPv6 extension headers (RFC 8200 section 4).

use super::V6_HEADER;
use super::packet::Fragment;

/// The most headers accepted: each kind is meant to occur once, destination options twice, so that
/// five would do. More are an attack.
const MAX_HEADERS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// The result of walking the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walk {
    pub protocol: u8,
    /// The offset of the number `protocol`.
    pub protocol_at: usize,
    pub payload_at: usize,
    pub fragment: Option<Fragment>,
}

/// Walks the headers of a packet, whose length has been checked against its first header. `None` if
/// one is truncated, must not be ignored, or there are too many. Stops at a fragment header, except
/// for a packet in one fragment (RFC 6946).
pub(crate) fn walk(packet: &[u8]) -> Option<Walk> {
    let mut protocol_at = 6;
    let mut at = V6_HEADER;
    for _ in 0..MAX_HEADERS {
        let protocol = *packet.get(protocol_at)?;
        let rest = packet.get(at..)?;
        let length = match protocol {
            HOP_BY_HOP if at == V6_HEADER => options(rest)?,
            DESTINATION => options(rest)?,
            // A route with stops left is for another host, and type 0 is forbidden (RFC 5095).
            ROUTING if *rest.get(3)? == 0 => length(rest)?,
            HOP_BY_HOP | ROUTING => return None,
            FRAGMENT => {
                let fragment = fragment(rest)?;
                if fragment.offset > 0 || fragment.more {
                    return Some(Walk {
                        protocol: rest[0],
                        protocol_at: at,
                        payload_at: at + 8,
                        fragment: Some(fragment),
                    });
                }
                8
            }
            _ => {
                return Some(Walk {
                    protocol,
                    protocol_at,
                    payload_at: at,
                    fragment: None,
                });
            }
        };
        protocol_at = at;
        at += length;
    }
    None
}

fn length(header: &[u8]) -> Option<usize> {
    let length = (usize::from(*header.get(1)?) + 1) * 8;
    (length <= header.len()).then_some(length)
}

/// The length of a header of options. `None` if an option demands that the packet is dropped
/// (section 4.2: the two highest bits of the type).
fn options(header: &[u8]) -> Option<usize> {
    const PAD1: u8 = 0;
    let length = length(header)?;
    let mut rest = &header[2..length];
    while let [kind, tail @ ..] = rest {
        if *kind == PAD1 {
            rest = tail;
            continue;
        }
        if kind >> 6 != 0 {
            return None;
        }
        let size = usize::from(*tail.first()?) + 1;
        rest = tail.get(size..)?;
    }
    Some(length)
}

fn fragment(header: &[u8]) -> Option<Fragment> {
    let header = header.first_chunk::<8>()?;
    let field = u16::from_be_bytes([header[2], header[3]]);
    Some(Fragment {
        id: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        offset: usize::from(field & !7),
        more: field & 1 == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(first: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; V6_HEADER];
        packet[6] = first;
        packet.extend_from_slice(rest);
        packet
    }

    #[test]
    fn headers_lead_to_the_protocol() {
        let hop = [DESTINATION, 0, 1, 4, 0, 0, 0, 0];
        let destination = [17, 0, 0, 0, 0, 0, 0, 0];
        let walked = walk(&packet(HOP_BY_HOP, &[hop, destination].concat())).unwrap();
        assert_eq!(walked.protocol, 17);
        assert_eq!((walked.protocol_at, walked.payload_at), (48, 56));
    }

    #[test]
    fn a_packet_in_one_fragment_is_whole() {
        let walked = walk(&packet(FRAGMENT, &[17, 0, 0, 0, 0, 0, 0, 9])).unwrap();
        assert_eq!((walked.protocol, walked.fragment), (17, None));
    }

    #[test]
    fn what_cannot_be_ignored_is_refused() {
        let unknown_option = [17, 0, 0x40, 4, 0, 0, 0, 0];
        assert_eq!(walk(&packet(DESTINATION, &unknown_option)), None);
        let stops_left = [17, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(walk(&packet(ROUTING, &stops_left)), None);
        let cut = [17, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(walk(&packet(DESTINATION, &cut)), None);
        let option_overrun = [17, 0, 1, 9, 0, 0, 0, 0];
        assert_eq!(walk(&packet(DESTINATION, &option_overrun)), None);
        let late_hop_by_hop = [HOP_BY_HOP, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(walk(&packet(DESTINATION, &late_hop_by_hop)), None);
        let endless = [DESTINATION, 0, 0, 0, 0, 0, 0, 0].repeat(MAX_HEADERS);
        assert_eq!(walk(&packet(DESTINATION, &endless)), None);
        assert_eq!(walk(&packet(FRAGMENT, &[17, 0, 0])), None);
    }
}
