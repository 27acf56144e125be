//! Destinations of flows, in the encoding of SOCKS5 (RFC 1928, section 5). Used by `codec`,
//! `packet`, `request` and `stream`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use watm_core::Destination;

/// The length of the longest address in bytes.
pub const LONGEST: usize = 1 + 1 + 255 + 2;

/// The result of parsing the beginning of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// The destination and its length in bytes.
    Complete(Destination, usize),
    /// Bytes that are not an address.
    Malformed,
}

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Parses the address at the beginning of `bytes`. The port is not 0. A name has letters, digits,
/// `-`, `.` and `_`; an IP address written as a name becomes an address.
pub fn parse(bytes: &[u8]) -> Parsed {
    let Some((&kind, rest)) = bytes.split_first() else {
        return Parsed::Incomplete;
    };
    let (length, start) = match kind {
        IPV4 => (4, 0),
        IPV6 => (16, 0),
        NAME => match rest.first() {
            Some(0) => return Parsed::Malformed,
            Some(&length) => (usize::from(length), 1),
            None => return Parsed::Incomplete,
        },
        _ => return Parsed::Malformed,
    };
    let end = start + length;
    let (Some(host), Some(port)) = (rest.get(start..end), rest.get(end..end + 2)) else {
        return Parsed::Incomplete;
    };
    let port = u16::from_be_bytes([port[0], port[1]]);
    let destination = match <[u8; 4]>::try_from(host) {
        Ok(host) if kind == IPV4 => address(Ipv4Addr::from(host).into(), port),
        _ => match <[u8; 16]>::try_from(host) {
            Ok(host) if kind == IPV6 => address(Ipv6Addr::from(host).into(), port),
            _ => name(host, port),
        },
    };
    match destination {
        Some(destination) => Parsed::Complete(destination, 1 + end + 2),
        None => Parsed::Malformed,
    }
}

fn address(address: IpAddr, port: u16) -> Option<Destination> {
    (port != 0).then(|| SocketAddr::new(address, port).into())
}

fn name(host: &[u8], port: u16) -> Option<Destination> {
    let host = std::str::from_utf8(host).ok()?;
    match host.parse() {
        Ok(literal) => address(literal, port),
        Err(_) => format!("{host}:{port}").parse().ok(),
    }
}

/// Append `destination`. Returns false, and appends nothing, if its name is too long.
pub fn write(destination: &Destination, to: &mut Vec<u8>) -> bool {
    let port = match destination {
        Destination::Address(address) => {
            match address.ip() {
                IpAddr::V4(host) => {
                    to.push(IPV4);
                    to.extend_from_slice(&host.octets());
                }
                IpAddr::V6(host) => {
                    to.push(IPV6);
                    to.extend_from_slice(&host.octets());
                }
            }
            address.port()
        }
        Destination::Name(host, port) => {
            let Ok(length @ 1..) = u8::try_from(host.len()) else {
                return false;
            };
            to.extend_from_slice(&[NAME, length]);
            to.extend_from_slice(host.as_bytes());
            *port
        }
    };
    to.extend_from_slice(&port.to_be_bytes());
    true
}
