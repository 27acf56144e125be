//! Version 2: a binary header (section 2.2). Used by `parse`.

use std::net::{IpAddr, SocketAddr};

use watm_proxy_header::{
    CHECKSUM, DATAGRAM, FIXED, INET, INET6, LOCAL, PROXY, Protocol, STREAM, UNIX, UNSPECIFIED,
};

use crate::header::{Addresses, Header, Proxied};
use crate::parse::{Parsed, Rules};
use crate::refused::Refused;
use crate::tlv;

/// The bytes of a Unix socket's path.
const PATH: usize = 108;

/// Parses bytes that begin with [`SIGNATURE`](watm_proxy_header::SIGNATURE), or are its beginning.
pub fn parse<'a>(bytes: &'a [u8], rules: &Rules) -> Result<Parsed<'a>, Refused> {
    let command = bytes.get(12).copied();
    if command.is_some_and(|command| command != LOCAL && command != PROXY) {
        return Err(Refused::Command);
    }
    let Some(&[_, _, high, low]) = bytes.get(12..FIXED).and_then(<[u8]>::first_chunk) else {
        return Ok(Parsed::Incomplete);
    };
    let length = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if length > rules.longest.max(FIXED) {
        return Err(Refused::TooLong);
    }
    let Some(header) = bytes.get(..length) else {
        return Ok(Parsed::Incomplete);
    };
    // The rest of LOCAL has no meaning (section 2.2).
    let parsed = match command {
        Some(PROXY) => proxied(header, rules)?,
        _ => Header::Local,
    };
    Ok(Parsed::Complete(length, parsed))
}

/// Parses a complete PROXY header.
fn proxied<'a>(header: &'a [u8], rules: &Rules) -> Result<Header<'a>, Refused> {
    let (family, protocol) = (header[13] >> 4, header[13] & 15);
    let protocol = match protocol {
        0 => None,
        STREAM => Some(Protocol::Stream),
        DATAGRAM => Some(Protocol::Datagram),
        _ => return Err(Refused::Family),
    };
    let rest = &header[FIXED..];
    let (addresses, rest) = match family {
        UNSPECIFIED => (None, rest),
        // With an unspecified protocol the addresses have no meaning.
        INET..=UNIX if protocol.is_none() => (None, rest),
        INET => inet::<4>(rest)?,
        INET6 => inet::<16>(rest)?,
        UNIX => unix(rest)?,
        _ => return Err(Refused::Family),
    };
    let (Some(addresses), Some(protocol)) = (addresses, protocol) else {
        return match rules.unspecified_is_local {
            true => Ok(Header::Local),
            false => Err(Refused::Unspecified),
        };
    };
    let tlvs = tlv::check(rest)?;
    if let Some(at) = tlv::checksum_at(tlvs) {
        check(header, header.len() - rest.len() + at)?;
    }
    Ok(Header::Proxied(Proxied {
        addresses,
        protocol,
        tlvs,
    }))
}

type Ends<'a> = (Option<Addresses<'a>>, &'a [u8]);

fn inet<const N: usize>(bytes: &[u8]) -> Result<Ends<'_>, Refused>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = bytes.split_first_chunk::<N>().ok_or(Refused::TooShort)?;
    let (destination, rest) = rest.split_first_chunk::<N>().ok_or(Refused::TooShort)?;
    let (source_port, rest) = rest.split_first_chunk().ok_or(Refused::TooShort)?;
    let (destination_port, rest) = rest.split_first_chunk().ok_or(Refused::TooShort)?;
    let end = |address: [u8; N], port: [u8; 2]| {
        SocketAddr::new(IpAddr::from(address), u16::from_be_bytes(port))
    };
    let addresses = Addresses::Inet {
        source: end(*source, *source_port),
        destination: end(*destination, *destination_port),
    };
    Ok((Some(addresses), rest))
}

fn unix(bytes: &[u8]) -> Result<Ends<'_>, Refused> {
    let (source, rest) = bytes.split_first_chunk::<PATH>().ok_or(Refused::TooShort)?;
    let (destination, rest) = rest.split_first_chunk::<PATH>().ok_or(Refused::TooShort)?;
    let addresses = Addresses::Unix {
        source: path(source),
        destination: path(destination),
    };
    Ok((Some(addresses), rest))
}

fn path(bytes: &[u8; PATH]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(PATH)]
}

/// Checks the checksum at `at`, which covers the header with zeros in its place.
fn check(header: &[u8], at: usize) -> Result<(), Refused> {
    let (before, rest) = header.split_at(at);
    let (said, after) = rest.split_first_chunk().ok_or(Refused::TlvSize)?;
    let mut digest = CHECKSUM.digest();
    digest.update(before);
    digest.update(&[0; 4]);
    digest.update(after);
    match digest.finalize() == u32::from_be_bytes(*said) {
        true => Ok(()),
        false => Err(Refused::Checksum),
    }
}
