//! What sockets are asked for, and answer, differently by the operating system.

use std::io;
use std::net::UdpSocket;

use socket2::Socket;

/// Have a listener come back at once after a restart, in place of waiting for its old
/// connections to time out. On Windows it does so unasked, and the option would let other
/// programs take the port.
#[cfg(unix)]
pub(super) fn reuse_address(listener: &Socket) -> io::Result<()> {
    listener.set_reuse_address(true)
}

#[cfg(not(unix))]
pub(super) fn reuse_address(_: &Socket) -> io::Result<()> {
    Ok(())
}

/// Whether several sockets listen on one port, among which the kernel divides the connections.
pub(super) const CAN_SHARE_PORTS: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Have other sockets that ask for the same listen on the same port.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn share_port(listener: &Socket) -> io::Result<()> {
    listener.set_reuse_port(true)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn share_port(_: &Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The path's MTU is the kernel's to learn, and what does not fit is fragmented here, as
/// with any other datagram socket. quinn-udp forbids it, because QUIC probes for itself.
///
/// Elsewhere than on Linux it stays forbidden: what does not fit is lost, and counted. What
/// a tunnel of 1420 bytes sends fits through Ethernet.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn allow_fragments(socket: &UdpSocket) {
    use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};

    // Not every socket has it; then large datagrams are lost here too.
    let _ = set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::WANT);
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn allow_fragments(_: &UdpSocket) {}

/// Whether a datagram was not sent because of its size.
pub(super) fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(MESSAGE_SIZE)
}

#[cfg(unix)]
const MESSAGE_SIZE: i32 = rustix::io::Errno::MSGSIZE.raw_os_error();

/// WSAEMSGSIZE of winsock2.h.
#[cfg(windows)]
const MESSAGE_SIZE: i32 = 10040;

/// Bytes that can be read from this socket now, as far as the system tells; 0 also at the end
/// and where it does not.
#[cfg(unix)]
pub(crate) fn readable_bytes(stream: &tokio::net::TcpStream) -> usize {
    let bytes = rustix::io::ioctl_fionread(stream).unwrap_or(0);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(not(unix))]
pub(crate) fn readable_bytes(_: &tokio::net::TcpStream) -> usize {
    0
}

/// Whether a socket can be bound to an address that is not this machine's.
pub(super) const CAN_BIND_TRANSPARENT: bool = cfg!(target_os = "linux");

/// Bind to an address of anybody's, with this mark. With port 0 the kernel chooses one when it
/// knows where the socket connects to, so that one address has as many for each upstream.
#[cfg(target_os = "linux")]
pub(super) fn bind_transparent(
    socket: &Socket,
    address: std::net::SocketAddr,
    mark: Option<u32>,
) -> io::Result<()> {
    match address.is_ipv4() {
        true => socket.set_ip_transparent_v4(true)?,
        false => socket.set_ip_transparent_v6(true)?,
    }
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    // A client may be back at its port before the kernel has forgotten the last connection.
    socket.set_reuse_address(true)?;
    if address.port() == 0 {
        let on: libc::c_int = 1;
        // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the value is an
        // int of the size that is given.
        // Where it cannot be set, the port is one that nothing else has.
        let _ = unsafe {
            libc::setsockopt(
                std::os::fd::AsRawFd::as_raw_fd(socket),
                libc::IPPROTO_IP,
                libc::IP_BIND_ADDRESS_NO_PORT,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
    }
    socket.bind(&address.into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn bind_transparent(
    _: &Socket,
    _: std::net::SocketAddr,
    _: Option<u32>,
) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
