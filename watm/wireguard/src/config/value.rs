//! Single values. Each error is one line with the mistake and its correction. No error repeats a
//! key, since a secret may be in the wrong field. Used by `json` and `wg`.

use std::net::{IpAddr, SocketAddr};

use watm_core::Destination;
use watm_netstack::Algorithm;
use watm_schema::Field;

use super::Network;
use crate::key;

/// The most text of a file that an error repeats, in characters.
const QUOTED: usize = 60;

/// The number of base64 characters in a row that may be (a part of) a key, which has 43 of them.
const SECRET: usize = 32;

/// Quotes text of a file for an error: one line, not too long, and without anything that may be a
/// key.
pub fn quote(text: &str) -> String {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let runs = text.as_bytes().split(|&byte| !is_base64(byte));
    if runs.map(<[u8]>::len).max() >= Some(SECRET) {
        return "…".to_owned();
    }
    let mut quoted: String = text
        .chars()
        .take(QUOTED)
        .map(|character| match character.is_control() {
            true => char::REPLACEMENT_CHARACTER,
            false => character,
        })
        .collect();
    if text.chars().nth(QUOTED).is_some() {
        quoted.push('…');
    }
    quoted
}

/// Parses a key in base64.
pub fn key(text: &str) -> Result<[u8; 32], String> {
    match key::decode(text) {
        Ok(key) if key == [0; 32] => {
            Err("all zero, which is not a key; make one with 'wg genkey'".to_owned())
        }
        Ok(key) => Ok(key),
        Err(why) => Err(why.to_owned()),
    }
}

/// Parses the name of a congestion control that the field admits.
pub fn congestion_control(text: &str, field: &Field) -> Result<Algorithm, String> {
    match text {
        "cubic" => Ok(Algorithm::Cubic),
        "bbr" => Ok(Algorithm::Bbr),
        _ => Err(format!("'{}' is not {}", quote(text), field.kind)),
    }
}

/// Parses a decimal number that the field admits.
pub fn number(text: &str, field: &Field) -> Result<u32, String> {
    let number = digits(text).and_then(|number| field.admit(Some(number)).ok());
    number
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| match text.is_empty() {
            true => format!("empty; must be {}", field.kind),
            false => format!("'{}' is not {}", quote(text), field.kind),
        })
}

/// The number that these digits write.
fn digits(text: &str) -> Option<u64> {
    let number = text.parse().ok()?;
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(number)
}

/// Parses the seconds between keepalives, or `off`.
pub fn keepalive(text: &str) -> Result<Option<u16>, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    match digits(text).and_then(|seconds| u16::try_from(seconds).ok()) {
        Some(seconds) => Ok(Some(seconds).filter(|&seconds| seconds > 0)),
        None => Err(format!(
            "'{}' is neither 'off' nor a number of seconds from 0 to 65535",
            quote(text)
        )),
    }
}

/// Parses an address with or without a prefix length, such as `10.0.0.2/32`.
pub fn network(text: &str) -> Result<Network, String> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| {
        format!(
            "'{}' is not an IP address with a prefix length, such as 10.0.0.2/32",
            quote(text)
        )
    })?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => longest,
        Some(prefix) => digits(prefix)
            .and_then(|prefix| u8::try_from(prefix).ok())
            .filter(|prefix| *prefix <= longest)
            .ok_or_else(|| {
                format!(
                    "'{}' has no prefix length from 0 to {longest} after the '/'",
                    quote(text)
                )
            })?,
    };
    Ok(Network { address, prefix })
}

/// Parses an address and a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 {
            Err(format!(
                "'{}' has port 0; use one from 1 to 65535",
                quote(text)
            ))
        } else {
            Ok(address)
        };
    }
    Err(if names_host(text) {
        format!(
            "'{}' names a host, and a module cannot resolve names; write an address and a port, \
             such as 192.0.2.1:51820",
            quote(text)
        )
    } else {
        format!(
            "'{}' is not an address and a port, such as 192.0.2.1:51820 or [2001:db8::1]:51820",
            quote(text)
        )
    })
}

/// Parses a peer's endpoint: an address, or a name to look up. A zone of an IPv6 address (RFC 4007)
/// matters for link-local addresses only. Those are refused, because a module cannot choose the
/// interface to send through.
pub fn endpoint(text: &str) -> Result<Destination, String> {
    let zoneless = without_zone(text);
    let plain = zoneless.as_deref().unwrap_or(text);
    if names_host(plain)
        && let Ok(name @ Destination::Name(..)) = plain.parse()
    {
        return Ok(name);
    }
    let Ok(endpoint) = plain.parse::<SocketAddr>() else {
        return Err(format!(
            "'{}' is not a host and a port, such as vpn.example.org:51820, 192.0.2.1:51820 or \
             [2001:db8::1]:51820",
            quote(text)
        ));
    };
    match endpoint.ip() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Err(format!(
            "'{}' is an address of one link, and a module cannot choose the interface; \
             use an address that is valid everywhere",
            quote(text)
        )),
        _ => address(plain).map(Destination::from),
    }
}

fn names_host(text: &str) -> bool {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    host.parse::<IpAddr>().is_err()
        && host.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !host.contains(':')
}

/// Removes the zone: `[2001:db8::1%eth0]:51820` becomes `[2001:db8::1]:51820`.
fn without_zone(text: &str) -> Option<String> {
    let (address, rest) = text.strip_prefix('[')?.split_once('%')?;
    let (zone, rest) = rest.split_once(']')?;
    (!zone.is_empty()).then(|| format!("[{address}]{rest}"))
}

/// Parses a comma-separated list. Refuses empty entries, but accepts an empty list.
pub fn list<T>(text: &str, item: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|text| match text.trim() {
            "" => Err("a comma with nothing before or after it".to_owned()),
            text => item(text),
        })
        .collect()
}

/// Parses a list that wg-quick reads and wg does not: separated by commas, blanks or both, with
/// surplus commas ignored.
pub fn words<T>(text: &str, item: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .map(item)
        .collect()
}

/// Parses a resolver's address or a search domain, as wg-quick takes them.
pub fn dns(text: &str) -> Result<String, String> {
    let is_domain = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    if is_domain || text.parse::<IpAddr>().is_ok() {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{}' is neither an IP address nor a search domain",
            quote(text)
        ))
    }
}
