//! Binding the sockets that the user gives to a module. Called by `server::builder` and `incoming`
//! of the runtime.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Socket, Type};

use super::options;
use super::place::{DatagramSocket, Place};
use super::tun::PacketDevice;
use crate::{Error, Network};

/// The unspecified address, for ends whose address is unknown.
pub(crate) const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// The buffer size asked of the kernel for each direction of a UDP socket; it may give less
/// (`net.core.rmem_max`). 4 MiB is 30 ms of 1 Gbit/s, about the time that a busy machine takes
/// until it reads again.
const UDP_BUFFER_BYTES: usize = 4 << 20;

/// The number of connections that the kernel completes before they are accepted; it may allow less
/// (`net.core.somaxconn`, 4096 by default on Linux).
const TCP_BACKLOG: i32 = 1024;

/// A socket that the user gives to a module.
pub struct Grant {
    /// The label that the module knows it by.
    pub label: String,
    /// The network.
    pub network: Network,
    /// The address to bind. Port 0 is one that the system chooses.
    pub address: SocketAddr,
    /// True to leave IPv4 alone, if `address` is the unspecified address of IPv6.
    pub ipv6_only: bool,
}

/// The protocol of a socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// None: a device for IP packets.
    Packets,
}

/// A socket that is bound and non-blocking, not yet registered with an executor.
pub enum BoundSocket {
    /// A UDP socket, its address, and its place among those that share it.
    Udp(UdpSocket, SocketAddr, Place),
    /// A listener and its address.
    Tcp(TcpListener, SocketAddr),
    /// No socket of the system's: a connector carries its datagrams.
    Carried,
    /// A device for IP packets.
    Packets(PacketDevice),
}

impl BoundSocket {
    /// Takes a listener that the user has bound.
    pub fn given(listener: TcpListener) -> io::Result<BoundSocket> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(BoundSocket::Tcp(listener, address))
    }

    /// Takes a socket for datagrams that the user has bound.
    pub fn given_datagrams(given: DatagramSocket) -> io::Result<BoundSocket> {
        let DatagramSocket { socket, place } = given;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(BoundSocket::Udp(socket, address, place))
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        match self {
            BoundSocket::Udp(..) | BoundSocket::Carried => Protocol::Udp,
            BoundSocket::Tcp(..) => Protocol::Tcp,
            BoundSocket::Packets(_) => Protocol::Packets,
        }
    }

    /// Returns the address that it is bound to; the unspecified one if it has none.
    pub fn local_addr(&self) -> SocketAddr {
        match self {
            BoundSocket::Udp(_, address, _) | BoundSocket::Tcp(_, address) => *address,
            BoundSocket::Carried | BoundSocket::Packets(_) => NO_ADDRESS,
        }
    }
}

impl Grant {
    /// Binds the socket. Fails with [`Error::Grant`], which names the label and the address.
    pub fn bind(&self) -> Result<BoundSocket, Error> {
        let bound = match self.network {
            Network::Udp => self.bind_udp(),
            Network::Tcp => self.bind_tcp(),
        };
        bound.map_err(|error| Error::Grant {
            protocol: match self.network {
                Network::Udp => "udp",
                Network::Tcp => "tcp",
            },
            address: self.address,
            label: self.label.clone(),
            reason: advise(&error),
            source: error,
        })
    }

    fn bind_udp(&self) -> io::Result<BoundSocket> {
        let socket = bind_datagrams(self.socket(Type::DGRAM)?, self.address)?;
        let address = socket.local_addr()?;
        Ok(BoundSocket::Udp(socket, address, Place::default()))
    }

    fn bind_tcp(&self) -> io::Result<BoundSocket> {
        let socket = self.socket(Type::STREAM)?;
        options::reuse_address(&socket)?;
        socket.bind(&self.address.into())?;
        socket.listen(TCP_BACKLOG)?;
        let listener: TcpListener = socket.into();
        let address = listener.local_addr()?;
        Ok(BoundSocket::Tcp(listener, address))
    }

    fn socket(&self, kind: Type) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(self.address), kind, None)?;
        prepare(&socket, self.address, self.ipv6_only)?;
        Ok(socket)
    }
}

/// Binds a socket for datagrams, with buffers that hold bursts.
pub(super) fn bind_datagrams(socket: Socket, address: SocketAddr) -> io::Result<UdpSocket> {
    // Larger buffers are optional, so errors are ignored.
    let _ = socket.set_recv_buffer_size(UDP_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(UDP_BUFFER_BYTES);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Sets the options that every socket needs before it is bound to `address`.
pub(super) fn prepare(socket: &Socket, address: SocketAddr, ipv6_only: bool) -> io::Result<()> {
    if address.is_ipv6() {
        // The unspecified address of IPv6 covers both families, unless `ipv6_only` is set.
        socket.set_only_v6(ipv6_only || !address.ip().is_unspecified())?;
    }
    socket.set_nonblocking(true)
}

pub(super) fn advise(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "address already in use; pass another port".to_owned(),
        io::ErrorKind::AddrNotAvailable => {
            "no such address on this machine; pass one of its own, 0.0.0.0 or [::]".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "permission denied; ports below 1024 are reserved, pass a higher one".to_owned()
        }
        _ => error.to_string(),
    }
}
