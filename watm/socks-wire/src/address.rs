//! Addresses (RFC 1928, section 5), which requests, replies and datagrams contain.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::parse::{Parser, Unread, Wrong};

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// A host and a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address<'a> {
    /// The host.
    pub host: Host<'a>,
    /// The port, which may be 0.
    pub port: u16,
}

/// A host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host<'a> {
    /// An address.
    Ip(IpAddr),
    /// The bytes of a name, at most 255, which nobody has checked.
    Name(&'a [u8]),
}

impl<'a> Address<'a> {
    /// Parses the address at the beginning of `bytes`. Returns it with its length in bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<(Address<'a>, usize), Unread> {
        let mut parser = Parser::new(bytes, 0);
        let address = Address::next(&mut parser)?;
        Ok((address, parser.position()))
    }

    pub(crate) fn next(parser: &mut Parser<'a>) -> Result<Address<'a>, Unread> {
        let host = match parser.byte()? {
            IPV4 => Host::Ip(IpAddr::from(parser.array::<4>()?)),
            IPV6 => Host::Ip(IpAddr::from(parser.array::<16>()?)),
            NAME => {
                let length = parser.byte()?;
                Host::Name(parser.bytes(length.into())?)
            }
            _ => return Err(Unread::Wrong(Wrong::AddressKind)),
        };
        let port = u16::from_be_bytes(parser.array()?);
        Ok(Address { host, port })
    }

    /// Appends the address. Returns false, and appends nothing, if its name is empty or longer than 255 bytes.
    pub fn write(&self, to: &mut Vec<u8>) -> bool {
        match self.host {
            Host::Ip(IpAddr::V4(ip)) => {
                to.push(IPV4);
                to.extend(ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                to.push(IPV6);
                to.extend(ip.octets());
            }
            Host::Name(name) => {
                let Ok(length @ 1..) = u8::try_from(name.len()) else {
                    return false;
                };
                to.extend([NAME, length]);
                to.extend(name);
            }
        }
        to.extend(self.port.to_be_bytes());
        true
    }
}

/// An address of IPv4 in the form of IPv6 becomes one of IPv4, because other programs know no such form.
impl From<SocketAddr> for Address<'_> {
    fn from(address: SocketAddr) -> Self {
        Address {
            host: Host::Ip(address.ip().to_canonical()),
            port: address.port(),
        }
    }
}

impl Address<'_> {
    /// The address of IPv4 without a host and a port, which stands for none.
    pub const NONE: Address<'static> = Address {
        host: Host::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        port: 0,
    };

    /// The unspecified address of the family of `like`, with this port: the host is the one that the message is from.
    pub fn unspecified(like: IpAddr, port: u16) -> Address<'static> {
        let host = match like.to_canonical() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Address {
            host: Host::Ip(host),
            port,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(address: Address<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(address.write(&mut bytes));
        bytes
    }

    #[test]
    fn addresses_are_written_as_they_are_parsed() {
        let name = vec![b'a'; 255];
        let named = |name| Address {
            host: Host::Name(name),
            port: 80,
        };
        let ip = |text: &str| Address::from(text.parse::<SocketAddr>().unwrap());
        for (address, length) in [
            (ip("192.0.2.1:65535"), 7),
            (ip("[2001:db8::1]:53"), 19),
            (named(b"example.com"), 15),
            (named(&name), 259),
        ] {
            let bytes = written(address);
            assert_eq!(bytes.len(), length);
            let mut longer = bytes.clone();
            longer.extend(b"rest");
            assert_eq!(Address::parse(&longer), Ok((address, length)));
            for cut in 0..length {
                let Err(Unread::Short(missing)) = Address::parse(&bytes[..cut]) else {
                    panic!("{cut} bytes are enough");
                };
                assert!((1..=length - cut).contains(&missing), "{cut}: {missing}");
            }
        }
    }

    #[test]
    fn an_unknown_kind_is_known_from_its_first_byte() {
        for kind in (0..=255).filter(|kind| ![IPV4, NAME, IPV6].contains(kind)) {
            let wrong = Unread::Wrong(Wrong::AddressKind);
            assert_eq!(Address::parse(&[kind]), Err(wrong));
        }
    }

    #[test]
    fn a_name_that_has_no_form_is_not_written() {
        for name in [vec![], vec![b'a'; 256]] {
            let mut bytes = Vec::new();
            let host = Host::Name(&name);
            assert!(!Address { host, port: 1 }.write(&mut bytes));
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn ipv4_within_ipv6_is_ipv4() {
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:53".parse().unwrap();
        assert_eq!(written(mapped.into()), [1, 192, 0, 2, 1, 0, 53]);
        let none = Address::unspecified(mapped.ip(), 7);
        assert_eq!(written(none), [1, 0, 0, 0, 0, 0, 7]);
    }
}
