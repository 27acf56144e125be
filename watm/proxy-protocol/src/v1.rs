//! Version 1: a line of text (section 2.1). Used by `parse`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::{self, FromStr};

use watm_proxy_header::{Protocol, Tlvs};

use crate::header::{Addresses, Header, Proxied};
use crate::parse::Parsed;
use crate::refused::Refused;

pub const SIGNATURE: &[u8] = b"PROXY ";

/// The longest line in bytes, with its CRLF.
const LONGEST: usize = 107;

/// The longest line with IPv6 addresses, as in the specification.
const LONGEST_TCP6: usize = 104;

/// Parses bytes that begin with [`SIGNATURE`], or are its beginning.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, Refused> {
    let line = &bytes[..bytes.len().min(LONGEST)];
    let Some(end) = line.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return match bytes.len() < LONGEST {
            true => Ok(Parsed::Incomplete),
            false => Err(Refused::TooLong),
        };
    };
    match line[end..] {
        [b'\r', b'\n', ..] => {}
        [b'\r'] if end + 1 < LONGEST => return Ok(Parsed::Incomplete),
        [b'\r'] => return Err(Refused::TooLong),
        _ => return Err(Refused::LineEnd),
    }
    let header = fields(&line[SIGNATURE.len()..end], end + 2)?;
    Ok(Parsed::Complete(end + 2, header))
}

/// Parses the text between the signature and the CRLF of a line of `length` bytes.
fn fields(line: &[u8], length: usize) -> Result<Header<'_>, Refused> {
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return Ok(Header::Local);
    }
    let text = str::from_utf8(line).map_err(|_| Refused::Fields)?;
    let mut fields = text.split(' ');
    let family = fields.next();
    let mut field = || fields.next().ok_or(Refused::Fields);
    let (source, destination, source_port, destination_port) =
        (field()?, field()?, field()?, field()?);
    if fields.next().is_some() {
        return Err(Refused::Fields);
    }
    let address: fn(&str) -> Result<IpAddr, Refused> = match family {
        Some("TCP4") => address::<Ipv4Addr>,
        Some("TCP6") if length <= LONGEST_TCP6 => address::<Ipv6Addr>,
        Some("TCP6") => return Err(Refused::TooLong),
        _ => return Err(Refused::Fields),
    };
    Ok(Header::Proxied(Proxied {
        addresses: Addresses::Inet {
            source: SocketAddr::new(address(source)?, port(source_port)?),
            destination: SocketAddr::new(address(destination)?, port(destination_port)?),
        },
        protocol: Protocol::Stream,
        tlvs: Tlvs::default(),
    }))
}

fn address<A: FromStr + Into<IpAddr>>(text: &str) -> Result<IpAddr, Refused> {
    text.parse::<A>()
        .map(Into::into)
        .map_err(|_| Refused::Address)
}

fn port(text: &str) -> Result<u16, Refused> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let leading = text.len() > 1 && text.starts_with('0');
    if !digits || leading {
        return Err(Refused::Port);
    }
    text.parse().map_err(|_| Refused::Port)
}
