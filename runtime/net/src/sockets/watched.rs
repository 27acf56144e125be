//! Readiness of a datagram socket, to read and to write. Used by `udp`.
//!
//! Linux reports room on such a socket each time that a datagram has left it, so a listener for
//! that would wake once for each. This one listens only while there is no room.

pub(super) use system::Watched;

#[cfg(unix)]
mod system {
    use std::io;
    use std::net::UdpSocket;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Mutex;
    use std::task::{Context, Poll, ready};

    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A non-blocking socket.
    pub struct Watched {
        reading: AsyncFd<UdpSocket>,
        /// The same socket, while it has no room.
        writing: Mutex<Option<AsyncFd<UdpSocket>>>,
    }

    impl Watched {
        /// Registers a socket. Needs the context of a tokio runtime.
        pub fn new(socket: UdpSocket) -> io::Result<Watched> {
            socket.set_nonblocking(true)?;
            Ok(Watched {
                reading: listen(socket, Interest::READABLE)?,
                writing: Mutex::default(),
            })
        }

        /// Calls `read` once the socket is readable. If it would block, `cx` is woken when it no
        /// longer does.
        pub fn poll_read<T>(
            &self,
            cx: &mut Context<'_>,
            mut read: impl FnMut() -> io::Result<T>,
        ) -> Poll<io::Result<T>> {
            loop {
                let mut guard = ready!(self.reading.poll_read_ready(cx))?;
                if let Ok(result) = guard.try_io(|_| read()) {
                    return Poll::Ready(result);
                }
            }
        }

        /// Calls `write`, as [`poll_read`](Self::poll_read) calls `read`.
        pub fn poll_write<T>(
            &self,
            cx: &mut Context<'_>,
            mut write: impl FnMut() -> io::Result<T>,
        ) -> Poll<io::Result<T>> {
            let mut writing = self.writing.lock().expect("no panic under this lock");
            loop {
                if let Some(full) = &*writing {
                    drop(ready!(full.poll_write_ready(cx))?);
                    *writing = None;
                }
                match write() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let same = self.reading.get_ref().try_clone()?;
                        *writing = Some(listen(same, Interest::WRITABLE)?);
                    }
                    result => return Poll::Ready(result),
                }
            }
        }
    }

    fn listen(socket: UdpSocket, interest: Interest) -> io::Result<AsyncFd<UdpSocket>> {
        // SAFETY: a socket of the standard library owns its descriptor, which stays the same and
        // open until the socket is dropped.
        let listened = unsafe { AsyncFd::register_with_interest(socket, interest) };
        listened.map_err(|failed| failed.into_parts().1)
    }

    impl AsFd for Watched {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.reading.as_fd()
        }
    }
}

#[cfg(windows)]
mod system {
    use std::io;
    use std::os::windows::io::{AsSocket, BorrowedSocket};
    use std::task::{Context, Poll, ready};

    use tokio::io::Interest;
    use tokio::net::UdpSocket;

    pub struct Watched(UdpSocket);

    impl Watched {
        pub fn new(socket: std::net::UdpSocket) -> io::Result<Watched> {
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(socket).map(Watched)
        }

        pub fn poll_read<T>(
            &self,
            cx: &mut Context<'_>,
            mut read: impl FnMut() -> io::Result<T>,
        ) -> Poll<io::Result<T>> {
            loop {
                ready!(self.0.poll_recv_ready(cx))?;
                match self.0.try_io(Interest::READABLE, &mut read) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return Poll::Ready(result),
                }
            }
        }

        pub fn poll_write<T>(
            &self,
            cx: &mut Context<'_>,
            mut write: impl FnMut() -> io::Result<T>,
        ) -> Poll<io::Result<T>> {
            loop {
                ready!(self.0.poll_send_ready(cx))?;
                match self.0.try_io(Interest::WRITABLE, &mut write) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return Poll::Ready(result),
                }
            }
        }
    }

    impl AsSocket for Watched {
        fn as_socket(&self) -> BorrowedSocket<'_> {
            self.0.as_socket()
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::future::poll_fn;
    use std::io;
    use std::net::UdpSocket;
    use std::os::fd::{AsFd, AsRawFd};

    use super::Watched;

    /// Returns the events that `epoll` listens for on this socket's files (proc(5)): EPOLLIN and
    /// EPOLLOUT.
    fn listened_for(watched: &Watched) -> Vec<(bool, bool)> {
        let target = |number: &str| fs::read_link(format!("/proc/self/fd/{number}")).ok();
        let socket = target(&watched.as_fd().as_raw_fd().to_string()).expect("open");
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc/self/fdinfo").expect("Linux") {
            let info = fs::read_to_string(entry.expect("an entry").path());
            for line in info.unwrap_or_default().lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                if let ["tfd:", number, "events:", events, ..] = words[..]
                    && target(number).as_ref() == Some(&socket)
                {
                    let events = u32::from_str_radix(events, 16).expect("a mask");
                    found.push((events & 1 != 0, events & 4 != 0));
                }
            }
        }
        found.sort_unstable();
        // Tokio has two descriptors for its event queue.
        found.dedup();
        found
    }

    #[tokio::test]
    async fn room_is_listened_for_only_while_there_is_none() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let here = socket.local_addr().expect("bound");
        let same = socket.try_clone().expect("another descriptor");
        let watched = Watched::new(socket).expect("watched");
        assert_eq!(listened_for(&watched), [(true, false)]);

        // The socket is full until the second try.
        let mut tries = 0;
        let sent = poll_fn(|cx| {
            watched.poll_write(cx, || {
                tries += 1;
                match tries {
                    1 => Err(io::ErrorKind::WouldBlock.into()),
                    _ => {
                        assert_eq!(listened_for(&watched), [(true, false)]);
                        same.send_to(b"hello", here)
                    }
                }
            })
        });
        let mut sent = std::pin::pin!(sent);
        let noop = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(sent.as_mut().poll(noop).is_pending());
        assert_eq!(listened_for(&watched), [(false, true), (true, false)]);
        assert_eq!(sent.await.expect("sent"), 5);

        let mut buffer = [0; 9];
        let received = poll_fn(|cx| watched.poll_read(cx, || same.recv(&mut buffer)));
        assert_eq!(received.await.expect("received"), 5);
    }
}
