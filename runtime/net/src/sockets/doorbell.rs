//! Wakes an event loop that is not tokio's, such as Python's, from another thread. Used by the
//! Python host.

use std::io;

/// A wake-up for an event loop, which watches it as it watches its sockets: another thread has
/// something for it.
pub struct Doorbell(system::Bell);

impl Doorbell {
    /// Makes a doorbell.
    pub fn new() -> io::Result<Doorbell> {
        system::Bell::new().map(Doorbell)
    }

    /// Returns what the loop watches for reading: a file descriptor, on Windows the handle of a
    /// socket. It belongs to this doorbell, which closes it when it is dropped.
    pub fn descriptor(&self) -> u64 {
        self.0.descriptor()
    }

    /// Makes the descriptor readable. Never blocks.
    pub fn ring(&self) {
        // An error means a full buffer, so the descriptor is readable already.
        while self
            .0
            .send()
            .is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
        {}
    }

    /// Clears the rings so far, and returns true if there were any. The next `ring` makes the
    /// descriptor readable again. After more than 64 rings it may stay readable until the next
    /// call, except on Linux.
    pub fn clear(&self) -> bool {
        self.0.receive()
    }
}

/// A counter of rings (eventfd(2)). A ring and its clearing take a quarter of the time that a pair of
/// sockets takes.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::fs::File;
    use std::io::{self, Read, Write};
    use std::os::fd::{AsRawFd, FromRawFd};

    pub(super) struct Bell(File);

    impl Bell {
        pub(super) fn new() -> io::Result<Bell> {
            // SAFETY: the call takes no pointers.
            let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the descriptor is new, so nothing else owns it.
            Ok(Bell(unsafe { File::from_raw_fd(descriptor) }))
        }

        pub(super) fn descriptor(&self) -> u64 {
            // An open descriptor is not negative.
            u64::from(self.0.as_raw_fd().unsigned_abs())
        }

        pub(super) fn send(&self) -> io::Result<()> {
            (&self.0).write(&1_u64.to_ne_bytes()).map(drop)
        }

        pub(super) fn receive(&self) -> bool {
            (&self.0).read(&mut [0; 8]).is_ok()
        }
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
mod system {
    use std::io::{self, Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    pub(super) struct Bell {
        sender: UnixStream,
        receiver: UnixStream,
    }

    impl Bell {
        pub(super) fn new() -> io::Result<Bell> {
            let (sender, receiver) = UnixStream::pair()?;
            sender.set_nonblocking(true)?;
            receiver.set_nonblocking(true)?;
            Ok(Bell { sender, receiver })
        }

        pub(super) fn descriptor(&self) -> u64 {
            // An open descriptor is not negative.
            u64::from(self.receiver.as_raw_fd().unsigned_abs())
        }

        pub(super) fn send(&self) -> io::Result<()> {
            (&self.sender).write(&[0]).map(drop)
        }

        pub(super) fn receive(&self) -> bool {
            (&self.receiver)
                .read(&mut [0; 64])
                .is_ok_and(|count| count > 0)
        }
    }
}

/// Python's and other loops wait only for sockets here, and there are no socket pairs, so this is a
/// socket that sends to itself. It is connected, so it receives from nobody else.
#[cfg(windows)]
mod system {
    use std::io;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::windows::io::AsRawSocket;

    pub(super) struct Bell(UdpSocket);

    impl Bell {
        pub(super) fn new() -> io::Result<Bell> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(socket.local_addr()?)?;
            socket.set_nonblocking(true)?;
            Ok(Bell(socket))
        }

        pub(super) fn descriptor(&self) -> u64 {
            self.0.as_raw_socket()
        }

        pub(super) fn send(&self) -> io::Result<()> {
            self.0.send(&[0]).map(drop)
        }

        pub(super) fn receive(&self) -> bool {
            let mut buffer = [0; 1];
            let received = (0..64).take_while(|_| self.0.recv(&mut buffer).is_ok());
            received.count() > 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Doorbell;

    #[test]
    fn it_rings_until_it_is_cleared_and_never_waits() {
        let bell = Doorbell::new().expect("a bell");
        let other = Doorbell::new().expect("a bell");
        assert!(!bell.clear());
        bell.ring();
        assert!(bell.clear());
        assert!(!bell.clear());
        // More rings than any buffer holds.
        for _ in 0..50_000 {
            bell.ring();
        }
        let clears = (0..50_000).take_while(|_| bell.clear()).count();
        assert!((1..50_000).contains(&clears));
        assert!(!other.clear());
    }
}
