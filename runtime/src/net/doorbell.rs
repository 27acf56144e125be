use std::io;

/// Tells an event loop, which watches it as it watches its sockets, that another thread
/// has something for it.
pub struct Doorbell(system::Pair);

impl Doorbell {
    /// A bell of its own, which rings for nobody else.
    pub fn new() -> io::Result<Doorbell> {
        system::Pair::new().map(Doorbell)
    }

    /// What the loop watches for reading: a file descriptor, on Windows the handle of a
    /// socket. It belongs to this bell, which closes it when it is dropped.
    pub fn descriptor(&self) -> u64 {
        self.0.descriptor()
    }

    /// Make the descriptor readable. Never waits.
    pub fn ring(&self) {
        // If it fails the buffer is full, so the descriptor is readable already.
        while self
            .0
            .send()
            .is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
        {}
    }

    /// Take back what rang so far, and say whether anything did: the descriptor is readable
    /// again with the next `ring`. After more than 64 it may stay readable, until it is
    /// called again.
    pub fn clear(&self) -> bool {
        self.0.receive()
    }
}

#[cfg(unix)]
mod system {
    use std::io::{self, Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    pub(super) struct Pair {
        sender: UnixStream,
        receiver: UnixStream,
    }

    impl Pair {
        pub(super) fn new() -> io::Result<Pair> {
            let (sender, receiver) = UnixStream::pair()?;
            sender.set_nonblocking(true)?;
            receiver.set_nonblocking(true)?;
            Ok(Pair { sender, receiver })
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

/// Python's and other loops wait for sockets alone here, and there are no pairs of them;
/// so it is one that sends to itself. Connected, it takes nothing from others.
#[cfg(windows)]
mod system {
    use std::io;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::windows::io::AsRawSocket;

    pub(super) struct Pair(UdpSocket);

    impl Pair {
        pub(super) fn new() -> io::Result<Pair> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(socket.local_addr()?)?;
            socket.set_nonblocking(true)?;
            Ok(Pair(socket))
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
        // More than any buffer holds.
        for _ in 0..50_000 {
            bell.ring();
        }
        let clears = (0..50_000).take_while(|_| bell.clear()).count();
        assert!((1..50_000).contains(&clears));
        assert!(!other.clear());
    }
}
