//! The sockets of a network namespace, asked for one at a time (sock_diag(7)). `helper` opens the
//! table of a program's network, and the parent asks it.
//!
//! The files in `/proc/net` have the same facts, but take milliseconds to read: the kernel goes
//! through all buckets of its table.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;

use super::{processes, sys};

/// The type of a request and of its answer (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;

/// The bytes of a header (`nlmsghdr`), of a request (`inet_diag_req_v2`), and of an answer
/// (`inet_diag_msg`), in linux/netlink.h and linux/inet_diag.h.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const ANSWER: usize = 72;

/// The most messages that are taken for one answer. Others are late answers.
const MOST_LATE: usize = 16;

/// The sockets of one network namespace.
#[derive(Debug)]
pub struct SocketTable {
    /// A socket of netlink, which a file reads and writes as well.
    netlink: File,
    /// The number of the last request.
    sequence: Mutex<u32>,
}

impl From<SocketTable> for OwnedFd {
    fn from(table: SocketTable) -> OwnedFd {
        table.netlink.into()
    }
}

impl SocketTable {
    /// Opens the table of this process's network.
    pub fn open() -> io::Result<SocketTable> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes no pointers.
        let made = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) };
        let descriptor = sys::check(made)?;
        // SAFETY: the descriptor is new, so nothing else owns it.
        let netlink = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(SocketTable::of(netlink))
    }

    /// Takes a table that another process has opened.
    pub(super) fn of(netlink: OwnedFd) -> SocketTable {
        SocketTable {
            netlink: netlink.into(),
            sequence: Mutex::new(0),
        }
    }

    /// Returns the number of the TCP socket with these ends; `None` without one.
    pub fn stream(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
        let found = self.ask(libc::IPPROTO_TCP, local, remote)?;
        // Without a connection the system answers with the listener.
        Ok(found
            .filter(|it| it.ports == (local.port(), remote.port()))
            .map(|it| it.number))
    }

    /// Returns the number of the UDP socket that gets the datagrams from `remote` to `local`; `None`
    /// without one.
    pub fn datagrams(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
        // For datagrams the request has the ends the other way round (`udp_dump_one` in
        // net/ipv4/udp_diag.c).
        let found = self.ask(libc::IPPROTO_UDP, remote, local)?;
        Ok(found
            .filter(|it| it.ports.0 == local.port())
            .map(|it| it.number))
    }

    /// Returns the number of the network's file, such as `/proc/self/ns/net` (`SIOCGSKNS` of
    /// linux/sockios.h).
    pub(super) fn network(&self) -> io::Result<u64> {
        const NAMESPACE_OF_SOCKET: libc::Ioctl = 0x894c;
        // SAFETY: the call takes no pointers.
        let opened = unsafe { libc::ioctl(self.netlink.as_raw_fd(), NAMESPACE_OF_SOCKET) };
        let descriptor = sys::check(opened)?;
        // SAFETY: the descriptor is new, so nothing else owns it.
        processes::number(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn ask(
        &self,
        protocol: i32,
        first: SocketAddr,
        second: SocketAddr,
    ) -> io::Result<Option<Found>> {
        let mut sequence = self.sequence.lock().expect("no panic under this lock");
        *sequence = sequence.wrapping_add(1);
        let request = request(*sequence, protocol, first, second);
        (&self.netlink).write_all(&request)?;
        // The kernel has answered before the call returns.
        for _ in 0..MOST_LATE {
            let mut message = [0; 1024];
            let received = (&self.netlink).read(&mut message)?;
            if let Some(answer) = answer(&message[..received], *sequence) {
                return answer;
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// A socket of the table.
struct Found {
    number: u32,
    /// The ports of this end and of the other one.
    ports: (u16, u16),
}

fn request(sequence: u32, protocol: i32, first: SocketAddr, second: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + REQUEST);
    out.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    out.extend(BY_FAMILY.to_ne_bytes());
    out.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend(0_u32.to_ne_bytes());
    let family = match first {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    out.extend([family as u8, protocol as u8, 0, 0]);
    // Any state.
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(first.port().to_be_bytes());
    out.extend(second.port().to_be_bytes());
    out.extend(octets(first.ip()));
    out.extend(octets(second.ip()));
    // Any interface, and no cookie (INET_DIAG_NOCOOKIE).
    out.extend(0_u32.to_ne_bytes());
    out.extend([0xff; 8]);
    out
}

fn octets(address: IpAddr) -> [u8; 16] {
    let mut octets = [0; 16];
    match address {
        IpAddr::V4(address) => octets[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => octets = address.octets(),
    }
    octets
}

/// Reads an answer. `None` for one to another request.
fn answer(message: &[u8], sequence: u32) -> Option<io::Result<Option<Found>>> {
    let (header, body) = message.split_at_checked(HEADER)?;
    if header[8..12] != sequence.to_ne_bytes() {
        return None;
    }
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    if i32::from(kind) == libc::NLMSG_ERROR {
        let code = i32::from_ne_bytes(body.first_chunk().copied()?);
        return Some(match -code {
            libc::ENOENT => Ok(None),
            code => Err(io::Error::from_raw_os_error(code)),
        });
    }
    let body = body.get(..ANSWER)?;
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let number = u32::from_ne_bytes(body[68..].first_chunk().copied()?);
    Some(Ok(Some(Found {
        number,
        ports: (port(4), port(6)),
    })))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    fn number_of(socket: &impl AsFd) -> u32 {
        let file = std::fs::File::from(socket.as_fd().try_clone_to_owned().unwrap());
        std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap()) as u32
    }

    #[test]
    fn both_ends_of_a_connection_are_found_and_no_listener() {
        let table = SocketTable::open().unwrap();
        for (listen, host) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
        ] {
            let listener = TcpListener::bind(listen).unwrap();
            let to = SocketAddr::new(host.parse().unwrap(), listener.local_addr().unwrap().port());
            let client = TcpStream::connect(to).unwrap();
            let (server, _) = listener.accept().unwrap();
            let from = client.local_addr().unwrap();
            assert_eq!(table.stream(from, to).unwrap(), Some(number_of(&client)));
            assert_eq!(table.stream(to, from).unwrap(), Some(number_of(&server)));
            let nobody = SocketAddr::new(from.ip(), 1);
            assert_eq!(table.stream(to, nobody).unwrap(), None);
        }
    }

    #[test]
    fn sockets_for_datagrams_are_found_by_their_own_end() {
        let table = SocketTable::open().unwrap();
        for (bound, own, other) in [
            ("0.0.0.0:0", "127.0.0.1", "192.0.2.1:53"),
            ("[::]:0", "127.0.0.1", "192.0.2.1:53"),
            ("[::1]:0", "::1", "[2001:db8::1]:53"),
        ] {
            let socket = UdpSocket::bind(bound).unwrap();
            let port = socket.local_addr().unwrap().port();
            let own = SocketAddr::new(own.parse().unwrap(), port);
            let other = other.parse().unwrap();
            assert_eq!(
                table.datagrams(own, other).unwrap(),
                Some(number_of(&socket))
            );
            drop(socket);
            assert_eq!(table.datagrams(own, other).unwrap(), None);
        }
    }
}
