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
