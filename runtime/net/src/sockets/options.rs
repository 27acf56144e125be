//! Socket options and calls that differ between operating systems, for the rest of `net`.

use std::io;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
#[cfg(unix)]
use std::os::fd::AsFd;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::fd::AsRawFd;

#[cfg(unix)]
use quinn_udp::TransportErrorPayload;
use quinn_udp::{UdpSockRef, UdpSocketState};
use socket2::Socket;
use watm_types::Steer;

/// Lets a listener bind at once after a restart, in place of waiting for its old connections to time
/// out. Windows does so by default, and there the option would let other programs take the port.
#[cfg(unix)]
pub(super) fn reuse_address(listener: &Socket) -> io::Result<()> {
    listener.set_reuse_address(true)
}

#[cfg(not(unix))]
pub(super) fn reuse_address(_: &Socket) -> io::Result<()> {
    Ok(())
}

/// Returns the number of descriptors that the process may have open; `None` if the limit is not
/// known.
#[cfg(unix)]
pub(super) fn most_descriptors() -> Option<u64> {
    use rustix::process::{Resource, getrlimit};

    getrlimit(Resource::Nofile).current
}

#[cfg(not(unix))]
pub(super) fn most_descriptors() -> Option<u64> {
    None
}

/// True if several sockets can listen on one port, with the kernel dividing the connections among
/// them.
pub(super) const CAN_SHARE_PORTS: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Lets other sockets with the same option bind to the same port.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn share_port(listener: &Socket) -> io::Result<()> {
    listener.set_reuse_port(true)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn share_port(_: &Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes the kernel choose among the `count` sockets of a port by what datagrams contain. It counts the
/// sockets in the order in which they were bound. Other datagrams go where they would go without this.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn steer(socket: &impl AsFd, steer: &[Steer], count: usize) -> io::Result<()> {
    let step = |code: u32, otherwise: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: otherwise,
        k,
    };
    let load = |at: u16| step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, at.into());
    let count = u32::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The program sees the datagram without its headers. A load beyond its end ends the program, and
    // the first socket gets the datagram.
    let mut program = vec![load(0)];
    for Steer { kind, byte } in steer {
        // Datagrams of other kinds skip the three steps after this one.
        let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(step(equals, 3, (*kind).into()));
        program.push(load(*byte));
        program.push(step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 0, count));
        program.push(step(libc::BPF_RET | libc::BPF_A, 0, 0));
    }
    // No socket has this number.
    program.push(step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the value is a program
    // of the given length, which the kernel checks and copies.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn steer<S>(_: &S, _: &[Steer], _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Sets whether a datagram that is longer than the path's MTU is dropped with an
/// [error](is_too_large), or fragmented here, as on any other datagram socket. The kernel learns the
/// MTU. quinn-udp wants neither, because QUIC probes for itself.
///
/// Systems other than Linux stay as quinn-udp sets them: a datagram that does not fit is dropped,
/// and counted. The packets of a tunnel with an MTU of 1420 bytes fit through Ethernet.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn set_dont_fragment(socket: &impl AsFd, on: bool) {
    use rustix::net::sockopt::{
        Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    };

    let (v4, v6) = match on {
        true => (Ipv4PathMtuDiscovery::DO, Ipv6PathMtuDiscovery::DO),
        false => (Ipv4PathMtuDiscovery::WANT, Ipv6PathMtuDiscovery::WANT),
    };
    // A socket of IPv4 has only the first option; one of IPv6 has both.
    let _ = set_ip_mtu_discover(socket, v4);
    let _ = set_ipv6_mtu_discover(socket, v6);
    let dont_fragment = libc::c_int::from(on);
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the value is an
    // int of the size that is given.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_DONTFRAG,
            (&raw const dont_fragment).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn set_dont_fragment<S>(_: &S, _: bool) {}

/// Makes the kernel keep ICMP errors for datagrams. A failure only costs a hint.
#[cfg(unix)]
pub(super) fn collect_errors(state: &UdpSocketState, socket: UdpSockRef<'_>) {
    let _ = state.enable_transport_errors(socket);
}

/// Returns the hosts that the first `most` of the kept ICMP errors call unreachable.
#[cfg(unix)]
pub(super) fn unreachable(
    state: &UdpSocketState,
    socket: &impl AsFd,
    most: usize,
) -> impl Iterator<Item = IpAddr> {
    (0..most)
        .map_while(|_| state.recv_transport_error(socket.into()).ok()?)
        .filter(|error| matches!(error.payload, TransportErrorPayload::Unreachable))
        .filter_map(|error| Some(error.addr?.ip().to_canonical()))
}

#[cfg(not(unix))]
pub(super) fn collect_errors(_: &UdpSocketState, _: UdpSockRef<'_>) {}

#[cfg(not(unix))]
pub(super) fn unreachable<S>(_: &UdpSocketState, _: &S, _: usize) -> impl Iterator<Item = IpAddr> {
    std::iter::empty()
}

/// Returns the largest packet that reaches this address whole, in bytes: the MTU of the outgoing
/// interface, or the one that routers have reported for larger packets, which the kernel keeps for
/// ten minutes.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn path_mtu(remote: SocketAddr) -> Option<u32> {
    use rustix::net::sockopt::{ip_mtu, ipv6_mtu};

    let any: SocketAddr = match remote.is_ipv4() {
        true => (Ipv4Addr::UNSPECIFIED, 0).into(),
        false => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Only connected sockets have it. Connecting sends nothing.
    let probe = UdpSocket::bind(any).ok()?;
    probe.connect(remote).ok()?;
    match remote.is_ipv4() {
        true => ip_mtu(&probe).ok(),
        false => ipv6_mtu(&probe).ok(),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn path_mtu(_: SocketAddr) -> Option<u32> {
    None
}

/// Returns true if a datagram was not sent because of its size.
pub(super) fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(MESSAGE_SIZE)
}

#[cfg(unix)]
const MESSAGE_SIZE: i32 = rustix::io::Errno::MSGSIZE.raw_os_error();

/// WSAEMSGSIZE of winsock2.h.
#[cfg(windows)]
const MESSAGE_SIZE: i32 = 10040;

/// Returns true if a datagram was not sent because its source address is no longer this machine's.
/// Always false on systems other than Linux.
pub(super) fn is_lost_source(error: &io::Error) -> bool {
    cfg!(any(target_os = "linux", target_os = "android"))
        && error.kind() == io::ErrorKind::InvalidInput
}

/// Returns the number of bytes that can be read from this socket now, as far as the system tells. It
/// is 0 at the end, and where the system does not tell.
#[cfg(unix)]
pub fn readable_bytes(stream: &tokio::net::TcpStream) -> usize {
    let bytes = rustix::io::ioctl_fionread(stream).unwrap_or(0);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns 0: this system does not tell.
#[cfg(not(unix))]
pub fn readable_bytes(_: &tokio::net::TcpStream) -> usize {
    0
}

/// The most datagrams that [`receive_several`] returns.
pub(super) const SEVERAL: usize = match cfg!(any(target_os = "linux", target_os = "android")) {
    true => 8,
    false => 1,
};

/// Receives datagrams from a non-blocking socket, each into one of `pieces` and with its length, in
/// one system call where the system has one. If [`SEVERAL`] is not 1, fewer than that mean that
/// there are no more.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn receive_several(
    socket: &tokio::net::UdpSocket,
    pieces: &mut std::slice::ChunksExactMut<'_, u8>,
    lengths: &mut [usize; SEVERAL],
) -> io::Result<usize> {
    let mut vectors = [const { MaybeUninit::<libc::iovec>::zeroed() }; SEVERAL];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::zeroed() }; SEVERAL];
    let mut asked = 0;
    for ((vector, message), piece) in vectors.iter_mut().zip(&mut messages).zip(pieces) {
        let vector = vector.write(libc::iovec {
            iov_base: piece.as_mut_ptr().cast(),
            iov_len: piece.len(),
        });
        // SAFETY: an `mmsghdr` of zeros is valid: it has no address, no control data and no buffers.
        let message = unsafe { message.assume_init_mut() };
        message.msg_hdr.msg_iov = vector;
        message.msg_hdr.msg_iovlen = 1;
        asked += 1;
    }
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, the first `asked` messages
    // are filled in, and each has a piece of memory that nothing else refers to meanwhile.
    let count = unsafe {
        libc::recvmmsg(
            socket.as_fd().as_raw_fd(),
            messages.as_mut_ptr().cast(),
            asked,
            // musl's type differs.
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    for (length, message) in lengths.iter_mut().zip(&messages).take(count) {
        // SAFETY: the message is initialized, for the same reason.
        *length = unsafe { message.assume_init_ref() }.msg_len as usize;
    }
    Ok(count)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn receive_several(
    socket: &tokio::net::UdpSocket,
    pieces: &mut std::slice::ChunksExactMut<'_, u8>,
    lengths: &mut [usize; SEVERAL],
) -> io::Result<usize> {
    use std::io::Read;

    let socket = socket2::SockRef::from(socket);
    lengths[0] = (&*socket).read(pieces.next().unwrap_or_default())?;
    Ok(1)
}

/// True if a socket can be bound to an address that is not this machine's.
pub(super) const CAN_BIND_TRANSPARENT: bool = cfg!(target_os = "linux");

/// Binds to any address, of this machine or not, with this mark. For port 0 the kernel chooses a
/// port when it knows the destination of the socket, so that one address has all ports for each
/// upstream.
#[cfg(target_os = "linux")]
pub(super) fn bind_transparent(
    socket: &Socket,
    address: SocketAddr,
    mark: Option<u32>,
) -> io::Result<()> {
    match address.is_ipv4() {
        true => socket.set_ip_transparent_v4(true)?,
        false => socket.set_ip_transparent_v6(true)?,
    }
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    // A client may use its port again before the kernel has forgotten the last connection.
    socket.set_reuse_address(true)?;
    if address.port() == 0 {
        let on: libc::c_int = 1;
        // SAFETY: the descriptor is open for as long as `socket` is borrowed, and the value is an
        // int of the size that is given.
        // Without the option, the port is one that nothing else uses.
        let _ = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
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
pub(super) fn bind_transparent(_: &Socket, _: SocketAddr, _: Option<u32>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
