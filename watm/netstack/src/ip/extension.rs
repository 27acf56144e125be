//! IPv6 extension headers (RFC 8200 section 4).

use super::packet::{Fault, Fragment, Problem};
use super::{FRAGMENT, ICMPV6, TCP, TCP_HEADER, UDP, UDP_HEADER, V6_HEADER};

/// The most headers accepted: each kind is meant to occur once, destination options twice, so that
/// five would do. More are an attack.
const MAX_HEADERS: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;

const FRAGMENT_HEADER: usize = 8;

/// The offset of the payload's length in a packet.
const PAYLOAD_LENGTH_AT: usize = 4;

/// The result of walking the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walk {
    pub protocol: u8,
    /// The offset of the number `protocol`.
    pub protocol_at: usize,
    pub payload_at: usize,
    pub fragment: Option<Fragment>,
}

/// Walks the headers of a packet, whose length has been checked against its first header. Stops at
/// a fragment header, except for a packet in one fragment (RFC 6946).
///
/// # Errors
///
/// [`Fault::Malformed`] if a header is truncated or there are too many, or if an option demands
/// silence. [`Fault::Problem`] if the source must be told which header cannot be ignored.
pub(crate) fn walk(packet: &[u8]) -> Result<Walk, Fault> {
    let mut protocol_at = 6;
    let mut at = V6_HEADER;
    for _ in 0..MAX_HEADERS {
        let protocol = *packet.get(protocol_at).ok_or(Fault::Malformed)?;
        let rest = packet.get(at..).ok_or(Fault::Malformed)?;
        let length = match protocol {
            HOP_BY_HOP if at == V6_HEADER => options(rest, at)?,
            // It comes first, or is none (section 4).
            HOP_BY_HOP => return Err(Problem::HEADER.at(protocol_at)),
            DESTINATION => options(rest, at)?,
            ROUTING => route(rest, at)?,
            FRAGMENT => {
                let fragment = fragment(rest, at)?;
                if fragment.offset == 0 && fragment.more && !has_all_headers(rest) {
                    return Err(Problem::CHAIN.at(0));
                }
                if fragment.offset > 0 || fragment.more {
                    return Ok(Walk {
                        protocol: rest[0],
                        protocol_at: at,
                        payload_at: at + FRAGMENT_HEADER,
                        fragment: Some(fragment),
                    });
                }
                FRAGMENT_HEADER
            }
            _ => {
                return Ok(Walk {
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
    Err(Fault::Malformed)
}

/// Returns true if a first fragment has every header, up to and including the one above IP
/// (RFC 7112 section 5). `fragment` begins with the fragment header.
fn has_all_headers(fragment: &[u8]) -> bool {
    let upper = upper_layer(fragment[0], &fragment[FRAGMENT_HEADER..]);
    let Some((protocol, header)) = upper else {
        return false;
    };
    let least = match protocol {
        TCP => TCP_HEADER,
        UDP => UDP_HEADER,
        ICMPV6 => 8,
        _ => 0,
    };
    header.len() >= least
}

/// The protocol above IP, and what there is of its message. `None` if the headers do not end in
/// this packet. `rest` begins with a header of the kind `protocol`.
pub(super) fn upper_layer(mut protocol: u8, mut rest: &[u8]) -> Option<(u8, &[u8])> {
    for _ in 0..MAX_HEADERS {
        let length = match protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => length(rest).ok()?,
            FRAGMENT if fragment(rest, V6_HEADER).ok()?.offset > 0 => {
                // The bytes that follow are from the middle of a message, or of a header.
                return match rest[0] {
                    HOP_BY_HOP | ROUTING | DESTINATION | FRAGMENT => None,
                    upper => Some((upper, &[])),
                };
            }
            FRAGMENT => FRAGMENT_HEADER,
            upper => return Some((upper, rest)),
        };
        (protocol, rest) = (rest[0], rest.get(length..)?);
    }
    None
}

fn length(header: &[u8]) -> Result<usize, Fault> {
    let words = header.get(1).ok_or(Fault::Malformed)?;
    let length = (usize::from(*words) + 1) * 8;
    match length <= header.len() {
        true => Ok(length),
        false => Err(Fault::Malformed),
    }
}

/// The length of a header of options at this offset. Fails if an option demands that the packet is
/// dropped (section 4.2: the two highest bits of its type).
fn options(header: &[u8], at: usize) -> Result<usize, Fault> {
    const PAD1: u8 = 0;
    let length = length(header)?;
    let mut rest = &header[2..length];
    while let [kind, tail @ ..] = rest {
        if *kind == PAD1 {
            rest = tail;
            continue;
        }
        match kind >> 6 {
            0 => {}
            1 => return Err(Fault::Malformed),
            _ => return Err(Problem::OPTION.at(at + length - rest.len())),
        }
        let size = usize::from(*tail.first().ok_or(Fault::Malformed)?) + 1;
        rest = tail.get(size..).ok_or(Fault::Malformed)?;
    }
    Ok(length)
}

/// The length of a routing header at this offset. A route with stops left is for another host, and
/// type 0 is as good as unknown (section 4.4, RFC 5095).
fn route(header: &[u8], at: usize) -> Result<usize, Fault> {
    let length = length(header)?;
    match header[3] {
        0 => Ok(length),
        _ => Err(Problem::FIELD.at(at + 2)),
    }
}

/// The fragment whose header is at this offset (section 4.5).
fn fragment(header: &[u8], at: usize) -> Result<Fragment, Fault> {
    let (head, payload) = header
        .split_first_chunk::<FRAGMENT_HEADER>()
        .ok_or(Fault::Malformed)?;
    let field = u16::from_be_bytes([head[2], head[3]]);
    let fragment = Fragment {
        id: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        offset: usize::from(field & !7),
        more: field & 1 == 1,
    };
    if fragment.more && !payload.len().is_multiple_of(8) {
        return Err(Problem::FIELD.at(PAYLOAD_LENGTH_AT));
    }
    // The headers before this one belong to the whole packet.
    let end = at - V6_HEADER + fragment.offset + payload.len();
    if end > usize::from(u16::MAX) {
        return Err(Problem::FIELD.at(at + 2));
    }
    Ok(fragment)
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
    fn a_truncated_header_is_malformed() {
        let cut = [17, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(walk(&packet(DESTINATION, &cut)), Err(Fault::Malformed));
        let option_overrun = [17, 0, 1, 9, 0, 0, 0, 0];
        let walked = walk(&packet(DESTINATION, &option_overrun));
        assert_eq!(walked, Err(Fault::Malformed));
        let endless = [DESTINATION, 0, 0, 0, 0, 0, 0, 0].repeat(MAX_HEADERS);
        assert_eq!(walk(&packet(DESTINATION, &endless)), Err(Fault::Malformed));
        let short = walk(&packet(FRAGMENT, &[17, 0, 0]));
        assert_eq!(short, Err(Fault::Malformed));
    }

    #[test]
    fn the_source_learns_what_cannot_be_ignored() {
        // The highest bits of an option's type: skip, drop, and tell the source.
        for (kind, expected) in [
            (0x1e, Ok(())),
            (0x5e, Err(Fault::Malformed)),
            (0x9e, Err(Problem::OPTION.at(44))),
            (0xde, Err(Problem::OPTION.at(44))),
        ] {
            let options = [17, 0, 0, 0, kind, 0, 0, 0];
            let walked = walk(&packet(DESTINATION, &options));
            assert_eq!(walked.map(|_| ()), expected, "{kind:x}");
        }
        let stops_left = [17, 0, 0, 1, 0, 0, 0, 0];
        let walked = walk(&packet(ROUTING, &stops_left));
        assert_eq!(walked, Err(Problem::FIELD.at(42)));
        let late = [HOP_BY_HOP, 0, 0, 0, 0, 0, 0, 0];
        let walked = walk(&packet(DESTINATION, &late));
        assert_eq!(walked, Err(Problem::HEADER.at(40)));
        // A piece in the middle, whose length is not one of eights.
        let odd = [&[17, 0, 0, 1, 0, 0, 0, 9][..], &[0; 9]].concat();
        let walked = walk(&packet(FRAGMENT, &odd));
        assert_eq!(walked, Err(Problem::FIELD.at(4)));
        // A last piece that ends behind the longest packet.
        let far = [&[17, 0, 0xff, 0xf8, 0, 0, 0, 9][..], &[0; 16]].concat();
        let walked = walk(&packet(FRAGMENT, &far));
        assert_eq!(walked, Err(Problem::FIELD.at(42)));
    }

    #[test]
    fn the_first_piece_has_all_headers() {
        let options = [TCP, 0, 1, 4, 0, 0, 0, 0];
        let first = |next: u8, payload: &[u8]| {
            let header = [next, 0, 0, 1, 0, 0, 0, 9];
            walk(&packet(FRAGMENT, &[&header[..], payload].concat()))
        };
        let incomplete = Err(Problem::CHAIN.at(0));
        assert_eq!(first(TCP, &[0; 16]), incomplete);
        assert!(first(TCP, &[0; 24]).is_ok());
        assert!(first(UDP, &[0; 8]).is_ok());
        assert_eq!(first(DESTINATION, &options), incomplete);
        let within = [&options[..], &[0; 16]].concat();
        assert_eq!(first(DESTINATION, &within), incomplete);
        let within = [&options[..], &[0; 24]].concat();
        assert!(first(DESTINATION, &within).is_ok());
        assert_eq!(first(DESTINATION, &[TCP, 9, 0, 0, 0, 0, 0, 0]), incomplete);
        // A later piece has none.
        let later = [TCP, 0, 0, 8 | 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(walk(&packet(FRAGMENT, &later)).is_ok());
    }
}
