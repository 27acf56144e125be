//! Encoding of numbers and addresses, big-endian, for `message` and `snapshot`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use watm_netstack::Protocol;

use crate::outgoing::Endpoint;

const V4: u8 = 4;
const V6: u8 = 6;

/// Decodes bytes. Returns `None` if they are too short or malformed.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// The bytes that are not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(array)
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| *byte)
    }

    pub fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().copied().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().copied().map(u64::from_be_bytes)
    }

    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.flag()? {
            false => Some(None),
            true => read(self).map(Some),
        }
    }

    pub fn ip(&mut self) -> Option<IpAddr> {
        match self.byte()? {
            V4 => Some(Ipv4Addr::from(*self.array::<4>()?).into()),
            V6 => Some(Ipv6Addr::from(*self.array::<16>()?).into()),
            _ => None,
        }
    }

    pub fn socket_address(&mut self) -> Option<SocketAddr> {
        let ip = self.ip()?;
        let port = u16::from_be_bytes(*self.array()?);
        Some(match ip {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.u32()?).into(),
        })
    }

    pub fn endpoint(&mut self) -> Option<Endpoint> {
        Some(Endpoint {
            remote: self.socket_address()?,
            local: self.option(Self::ip)?,
        })
    }

    pub fn protocol(&mut self) -> Option<Protocol> {
        match self.byte()? {
            0 => Some(Protocol::Tcp),
            1 => Some(Protocol::Udp),
            _ => None,
        }
    }
}

/// Encodes into bytes.
pub trait Write {
    fn bytes(&mut self, bytes: &[u8]);

    fn byte(&mut self, byte: u8) {
        self.bytes(&[byte]);
    }

    fn u32(&mut self, number: u32) {
        self.bytes(&number.to_be_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.bytes(&number.to_be_bytes());
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn ip(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(ip) => {
                self.byte(V4);
                self.bytes(&ip.octets());
            }
            IpAddr::V6(ip) => {
                self.byte(V6);
                self.bytes(&ip.octets());
            }
        }
    }

    fn socket_address(&mut self, address: SocketAddr) {
        self.ip(address.ip());
        self.bytes(&address.port().to_be_bytes());
        if let SocketAddr::V6(address) = address {
            // A link-local address is complete only with its link.
            self.u32(address.scope_id());
        }
    }

    fn endpoint(&mut self, endpoint: Endpoint) {
        self.socket_address(endpoint.remote);
        self.option(endpoint.local, Self::ip);
    }

    fn protocol(&mut self, protocol: Protocol) {
        self.byte(match protocol {
            Protocol::Tcp => 0,
            Protocol::Udp => 1,
        });
    }
}

impl Write for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
