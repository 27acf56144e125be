//! Outgoing connections of this machine. Called by `roles`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpStream, UdpSocket, lookup_host};

use crate::{Destination, Family, Network, Target, Wire};

/// The most addresses of one name that are tried, one after another.
const MAX_ADDRESSES: usize = 16;

/// Returns the addresses of a target, of its family, in the system's order. Never empty: fails with
/// an error of the kind `NotFound` if there is none.
pub async fn resolve(target: &Target) -> io::Result<Vec<SocketAddr>> {
    let found = match &target.destination {
        Destination::Address(address) => vec![*address],
        Destination::Name(name, port) => lookup_host((name.as_str(), *port))
            .await
            .map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?
            .collect(),
    };
    of_family(found, target.family)
}

/// Returns the addresses of a family, as [`resolve`] returns them.
pub fn of_family(found: Vec<SocketAddr>, family: Family) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = found
        .into_iter()
        .filter(|address| family.admits(address))
        .take(MAX_ADDRESSES)
        .collect();
    if addresses.is_empty() {
        let kind = match family {
            Family::Any => "",
            Family::V4 => "IPv4 ",
            Family::V6 => "IPv6 ",
        };
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("the name has no {kind}address"),
        ));
    }
    Ok(addresses)
}

/// Connects to the first of these addresses that answers. Fails with the last one's error.
pub async fn connect(network: Network, addresses: &[SocketAddr]) -> io::Result<Wire> {
    let mut last = None;
    for address in addresses {
        let result = match network {
            Network::Tcp => connect_tcp(*address).await,
            Network::Udp => connect_udp(*address).await,
        };
        match result {
            Ok(wire) => return Ok(wire),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

async fn connect_tcp(address: SocketAddr) -> io::Result<Wire> {
    let stream = TcpStream::connect(address).await?;
    // Latency matters more than the number of packets; a module writes what it has.
    let _ = stream.set_nodelay(true);
    Ok(Wire::tcp(stream))
}

async fn connect_udp(address: SocketAddr) -> io::Result<Wire> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(Wire::udp(socket))
}
