//! Changes of this machine's addresses and routes, which the driver reports to modules.

use std::task::{Context, Poll};

/// Reports changes of the addresses or routes of this machine, or rather of its network namespace.
///
/// Systems other than Linux report nothing.
pub struct NetworkChanges(imp::Changes);

impl NetworkChanges {
    /// Starts to listen. Needs the context of a tokio runtime. `None` if the system does not report
    /// changes.
    pub fn new() -> Option<NetworkChanges> {
        imp::Changes::new().map(NetworkChanges)
    }

    /// Returns ready if there was a change since the last time. Several in a row are one.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll(cx)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod imp {
    use std::future::Future;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use rustix::net::netlink::SocketAddrNetlink;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use tokio::time::{Instant, Sleep, sleep};

    /// The delay between a first change and its report, which covers those that follow: a move to
    /// another address is several changes.
    const TOGETHER: Duration = Duration::from_millis(200);

    /// The groups of rtnetlink(7) to listen to.
    const GROUPS: libc::c_int = libc::RTMGRP_IPV4_IFADDR
        | libc::RTMGRP_IPV4_ROUTE
        | libc::RTMGRP_IPV6_IFADDR
        | libc::RTMGRP_IPV6_ROUTE;

    pub(super) struct Changes {
        socket: AsyncFd<OwnedFd>,
        timer: Pin<Box<Sleep>>,
        /// True if there was a change, and `timer` runs.
        pending: bool,
    }

    impl Changes {
        pub(super) fn new() -> Option<Changes> {
            let socket = socket_with(
                AddressFamily::NETLINK,
                SocketType::RAW,
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                // The default protocol is rtnetlink.
                None,
            )
            .ok()?;
            bind(&socket, &SocketAddrNetlink::new(0, GROUPS.cast_unsigned())).ok()?;
            // SAFETY: an `OwnedFd` owns one descriptor, which is open until it is dropped.
            let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
            Some(Changes {
                socket: socket.ok()?,
                timer: Box::pin(sleep(Duration::ZERO)),
                pending: false,
            })
        }

        pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
            while let Poll::Ready(Ok(mut guard)) = self.socket.poll_read_ready(cx) {
                let mut messages = [0; 16 << 10];
                let received = guard.try_io(|socket| {
                    let (length, _) = recv(socket, &mut messages[..], RecvFlags::TRUNC)?;
                    Ok(length.min(messages.len()))
                });
                let matters = match received {
                    // The socket is no longer ready.
                    Err(_) => continue,
                    Ok(Ok(length)) => matters(&messages[..length]),
                    // Messages were lost: there were more than the socket holds.
                    Ok(Err(error)) if error.kind() == io::ErrorKind::OutOfMemory => true,
                    Ok(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => true,
                    Ok(Err(_)) => break,
                };
                if matters && !self.pending {
                    self.pending = true;
                    self.timer.as_mut().reset(Instant::now() + TOGETHER);
                }
            }
            if !self.pending {
                return Poll::Pending;
            }
            ready!(self.timer.as_mut().poll(cx));
            self.pending = false;
            Poll::Ready(())
        }
    }

    /// Returns true if one of these messages reports a change after which packets take another
    /// route. A new address alone does not: a new route follows when it is used. Routers renew the
    /// addresses of IPv6 every few minutes.
    fn matters(mut messages: &[u8]) -> bool {
        /// The bytes of a message's header, of which the length and the type are read
        /// (`struct nlmsghdr`).
        const HEADER: usize = 16;
        while let Some((header, _)) = messages.split_first_chunk::<HEADER>() {
            let [a, b, c, d, low, high, ..] = *header;
            let kind = u16::from_ne_bytes([low, high]);
            if [libc::RTM_DELADDR, libc::RTM_NEWROUTE, libc::RTM_DELROUTE].contains(&kind) {
                return true;
            }
            let length = u32::from_ne_bytes([a, b, c, d]) as usize;
            // Each message begins at a multiple of four bytes.
            let whole = length.max(HEADER).next_multiple_of(4);
            messages = messages.get(whole..).unwrap_or_default();
        }
        false
    }

    #[cfg(test)]
    mod tests {
        use super::matters;

        fn message(kind: u16, body: usize) -> Vec<u8> {
            let length = 16 + body;
            let mut message = (length as u32).to_ne_bytes().to_vec();
            message.extend(kind.to_ne_bytes());
            message.resize(length.next_multiple_of(4), 0);
            message
        }

        #[test]
        fn routes_and_addresses_that_go_matter() {
            let (new_address, new_route) = (message(20, 33), message(24, 8));
            assert!(!matters(&new_address));
            assert!(matters(&new_route));
            assert!(matters(&message(21, 0)));
            assert!(matters(&[new_address.clone(), new_route].concat()));
            assert!(!matters(&[new_address, vec![0; 40]].concat()));
            assert!(!matters(&[24; 15]));
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod imp {
    use std::task::{Context, Poll};

    /// Nothing to listen to on this system.
    pub(super) enum Changes {}

    impl Changes {
        pub(super) fn new() -> Option<Changes> {
            None
        }

        pub(super) fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
            match *self {}
        }
    }
}
