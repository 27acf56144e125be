//! Cloudflare's Simple Proxy Protocol for datagrams. Used by `datagrams` and `opening`.

use std::net::{IpAddr, SocketAddr};

use crate::refused::Refused;

/// The length in bytes of a header of Cloudflare's Simple Proxy Protocol: a magic number, the
/// addresses of the client and of the proxy as IPv6 addresses, and their ports.
pub const SPP_LENGTH: usize = 38;

const MAGIC: [u8; 2] = [0x56, 0xec];

/// Parses the header at the front of a datagram: the client, and the proxy's address that it sent
/// to. IPv4 addresses are IPv4-mapped there, such as `::ffff:192.0.2.1`.
pub fn parse_spp(datagram: &[u8]) -> Result<(SocketAddr, SocketAddr), Refused> {
    let Some(rest) = datagram.strip_prefix(&MAGIC) else {
        return Err(Refused::NotProxy);
    };
    let (client, rest) = address(rest)?;
    let (proxy, rest) = address(rest)?;
    let (client_port, rest) = port(rest)?;
    let (proxy_port, _) = port(rest)?;
    Ok((
        SocketAddr::new(client, client_port),
        SocketAddr::new(proxy, proxy_port),
    ))
}

/// Encodes the header in front of a datagram to the client, which is the same as in those from it.
pub fn write_spp(client: SocketAddr, proxy: SocketAddr) -> [u8; SPP_LENGTH] {
    let mut header = [0; SPP_LENGTH];
    let (magic, rest) = header.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    let (client_ip, rest) = rest.split_at_mut(16);
    client_ip.copy_from_slice(&octets(client.ip()));
    let (proxy_ip, rest) = rest.split_at_mut(16);
    proxy_ip.copy_from_slice(&octets(proxy.ip()));
    let (client_port, proxy_port) = rest.split_at_mut(2);
    client_port.copy_from_slice(&client.port().to_be_bytes());
    proxy_port.copy_from_slice(&proxy.port().to_be_bytes());
    header
}

fn address(bytes: &[u8]) -> Result<(IpAddr, &[u8]), Refused> {
    let (octets, rest) = bytes.split_first_chunk::<16>().ok_or(Refused::TooShort)?;
    Ok((IpAddr::from(*octets).to_canonical(), rest))
}

fn port(bytes: &[u8]) -> Result<(u16, &[u8]), Refused> {
    let (port, rest) = bytes.split_first_chunk().ok_or(Refused::TooShort)?;
    Ok((u16::from_be_bytes(*port), rest))
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
