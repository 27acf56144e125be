//! Devices for IP packets, which Linux calls TUN. `server::builder` takes them, and
//! `component::packets` gives them to the module.

pub use system::{PacketDevice, PacketPort};

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};

    use rustix::buffer::spare_capacity;
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use crate::ErrorCode;
    use crate::counters::Counters;

    /// The file that makes devices.
    const MAKER: &str = "/dev/net/tun";

    /// The longest packet of IP.
    const LONGEST: usize = 65_535;

    /// The most that one receive returns, whatever the caller asks for, as for datagrams.
    const MAX_RECEIVE_BYTES: usize = 4 << 20;
    const MAX_RECEIVE_PACKETS: usize = 4096;

    /// The room that one receive begins with.
    const FIRST_BYTES: usize = 128 << 10;

    /// A device that the user gives to a module.
    #[derive(Debug)]
    pub struct PacketDevice {
        descriptor: OwnedFd,
        mtu: u32,
    }

    impl PacketDevice {
        /// Takes the descriptor of a device of this MTU: one of a TUN driver, without a header
        /// before each packet (`IFF_TUN | IFF_NO_PI`). Fails with `InvalidInput` for any other.
        pub fn given(descriptor: OwnedFd, mtu: u32) -> io::Result<PacketDevice> {
            let request = request(&descriptor, None)?;
            let wanted = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
            let known =
                (libc::IFF_TUN | libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
            // SAFETY: the system has filled in the flags.
            let flags = unsafe { request.ifr_ifru.ifru_flags };
            if flags & known != wanted {
                let reason = "is not a device for plain IP packets (IFF_TUN | IFF_NO_PI)";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
            let flags = rustix::fs::fcntl_getfl(&descriptor)?;
            rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
            Ok(PacketDevice { descriptor, mtu })
        }

        /// Opens the device of this name, or makes it. It exists as long as it is open, unless it is
        /// persistent. The error names the file that makes devices.
        pub fn open(name: &str) -> io::Result<PacketDevice> {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let opened = rustix::fs::open(MAKER, flags, Mode::empty());
            let descriptor = opened.map_err(|error| {
                let error = io::Error::from(error);
                io::Error::new(error.kind(), format!("{MAKER}: {error}"))
            })?;
            request(&descriptor, Some(name))?;
            let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
            let mut request = named(name)?;
            // SAFETY: the request is a whole `ifreq`, in which the system writes the MTU.
            let done =
                unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request) };
            check(done)?;
            // SAFETY: the system has filled it in.
            let mtu = unsafe { request.ifr_ifru.ifru_mtu };
            Ok(PacketDevice {
                descriptor,
                mtu: u32::try_from(mtu).unwrap_or_default(),
            })
        }

        /// Returns the MTU.
        pub fn mtu(&self) -> u32 {
            self.mtu
        }
    }

    /// Attaches the descriptor to the device of this name; without one, asks for what it is.
    fn request(descriptor: &OwnedFd, name: Option<&str>) -> io::Result<libc::ifreq> {
        let mut request = named(name.unwrap_or_default())?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        let number = match name {
            Some(_) => libc::TUNSETIFF,
            None => libc::TUNGETIFF,
        };
        // SAFETY: both take a whole `ifreq`, which lives until the call returns.
        let done = unsafe { libc::ioctl(descriptor.as_raw_fd(), number as _, &mut request) };
        check(done)?;
        Ok(request)
    }

    fn named(name: &str) -> io::Result<libc::ifreq> {
        // SAFETY: a request of zeros is valid, and has an empty name.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() || name.contains('\0') {
            let reason = format!("{name:?} is not a name of a device; must have at most 15 bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        Ok(request)
    }

    fn check(done: libc::c_int) -> io::Result<()> {
        match done {
            ..0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn listen(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
        // SAFETY: an owned descriptor stays the same, and open until it is dropped.
        let listened = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        listened.map_err(|failed| failed.into_parts().1)
    }

    /// A device, registered with an executor. It outlives the instances of the module that use it,
    /// and keeps no packets itself.
    pub struct PacketPort {
        device: AsyncFd<OwnedFd>,
        mtu: u32,
        counters: Arc<Counters>,
        gone: AtomicBool,
    }

    impl PacketPort {
        /// Registers a device. Needs the context of a tokio runtime.
        pub fn new(device: PacketDevice, counters: Arc<Counters>) -> io::Result<PacketPort> {
            Ok(PacketPort {
                device: listen(device.descriptor)?,
                mtu: device.mtu,
                counters,
                gone: AtomicBool::new(false),
            })
        }

        /// Returns the MTU.
        pub fn mtu(&self) -> u32 {
            self.mtu
        }

        /// Receives packets, laid end to end, and their lengths, until one of the limits is reached.
        /// If there are fewer, `cx` is woken when there are more.
        pub fn receive(
            &self,
            max_packets: usize,
            max_bytes: usize,
            cx: &mut Context<'_>,
        ) -> Result<(Vec<u8>, Vec<u32>), ErrorCode> {
            self.counters.receive_calls.add(1);
            let (mut payload, mut lengths) = (Vec::new(), Vec::new());
            let max_bytes = max_bytes.min(MAX_RECEIVE_BYTES);
            while lengths.len() < max_packets.min(MAX_RECEIVE_PACKETS) && payload.len() < max_bytes
            {
                if payload.capacity() - payload.len() < LONGEST {
                    payload.reserve(FIRST_BYTES.max(LONGEST));
                }
                match self.poll_read(&mut payload, cx) {
                    Poll::Pending => break,
                    // An end of the file, which devices do not have.
                    Poll::Ready(Ok(0)) => break,
                    // A packet of IP is shorter than 64 KiB.
                    Poll::Ready(Ok(length)) => lengths.push(length as u32),
                    Poll::Ready(Err(_)) if !lengths.is_empty() => break,
                    Poll::Ready(Err(_)) => return Err(ErrorCode::ConnectionAborted),
                }
            }
            self.counters.packets_received.add(lengths.len() as u64);
            self.counters.bytes_received.add(payload.len() as u64);
            Ok((payload, lengths))
        }

        /// Appends one packet to the buffer.
        fn poll_read(&self, buffer: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
            if self.gone.load(Ordering::Relaxed) {
                return Poll::Ready(Err(Errno::BADFD.into()));
            }
            loop {
                let mut guard = match self.device.poll_read_ready(cx) {
                    Poll::Ready(guard) => guard?,
                    Poll::Pending if self.reports_error(cx) => {
                        let read = rustix::io::read(&self.device, spare_capacity(buffer));
                        return match read {
                            Err(Errno::AGAIN) => Poll::Pending,
                            read => Poll::Ready(read.map_err(|error| self.end(error.into()))),
                        };
                    }
                    Poll::Pending => return Poll::Pending,
                };
                let read = guard.try_io(|device| {
                    rustix::io::read(device, spare_capacity(buffer)).map_err(io::Error::from)
                });
                if let Ok(result) = read {
                    return Poll::Ready(result.map_err(|error| self.end(error)));
                }
            }
        }

        /// Returns true if the system reports an error of the device, as it does once the device is
        /// deleted. Otherwise `cx` is woken for that. The executor takes an error alone for the end of
        /// the write direction, which wakes no reader.
        fn reports_error(&self, cx: &mut Context<'_>) -> bool {
            self.device.poll_write_ready(cx).is_ready()
        }

        /// Notes that the device is gone.
        fn end(&self, error: io::Error) -> io::Error {
            self.gone.store(true, Ordering::Relaxed);
            tracing::debug!(target: "watm::server", "device for packets: {error}");
            error
        }

        /// Gives the packets that are laid end to end in `payload` to the system. Those that it
        /// refuses are lost, and counted.
        pub fn send(&self, payload: &[u8], lengths: impl Iterator<Item = usize>) {
            self.counters.send_calls.add(1);
            let mut rest = payload;
            for length in lengths {
                let (packet, tail) = rest.split_at(length.min(rest.len()));
                rest = tail;
                match rustix::io::write(self.device.get_ref(), packet) {
                    Ok(_) => {
                        self.counters.packets_sent.add(1);
                        self.counters.bytes_sent.add(packet.len() as u64);
                    }
                    Err(Errno::AGAIN | Errno::NOBUFS) => self.counters.dropped_send_buffer.add(1),
                    // The interface is down, or gone.
                    Err(Errno::IO | Errno::BADFD) => self.counters.dropped_send_unreachable.add(1),
                    Err(_) => self.counters.dropped_send_other.add(1),
                }
            }
        }

        /// Discards what has arrived, while there is no module to receive it.
        pub fn discard(&self) {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let mut buffer = Vec::with_capacity(LONGEST);
            for _ in 0..MAX_RECEIVE_PACKETS {
                buffer.clear();
                match self.poll_read(&mut buffer, &mut cx) {
                    Poll::Ready(Ok(1..)) => self.counters.dropped_restarting.add(1),
                    _ => return,
                }
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::io;
    use std::sync::Arc;
    use std::task::Context;

    use crate::ErrorCode;
    use crate::counters::Counters;

    /// A device that the user gives to a module. There is none on this system.
    #[derive(Debug)]
    pub enum PacketDevice {}

    impl PacketDevice {
        /// Takes a device, of which there is none.
        pub fn given(descriptor: std::convert::Infallible, _: u32) -> io::Result<PacketDevice> {
            match descriptor {}
        }

        /// Fails: only Linux has such devices here.
        pub fn open(_: &str) -> io::Result<PacketDevice> {
            let reason = "devices for packets are available on Linux only";
            Err(io::Error::new(io::ErrorKind::Unsupported, reason))
        }

        /// Returns the MTU.
        pub fn mtu(&self) -> u32 {
            match *self {}
        }
    }

    /// A device, registered with an executor.
    pub enum PacketPort {}

    impl PacketPort {
        pub fn new(device: PacketDevice, _: Arc<Counters>) -> io::Result<PacketPort> {
            match device {}
        }

        pub fn mtu(&self) -> u32 {
            match *self {}
        }

        pub fn receive(
            &self,
            _: usize,
            _: usize,
            _: &mut Context<'_>,
        ) -> Result<(Vec<u8>, Vec<u32>), ErrorCode> {
            match *self {}
        }

        pub fn send(&self, _: &[u8], _: impl Iterator<Item = usize>) {
            match *self {}
        }

        pub fn discard(&self) {
            match *self {}
        }
    }
}
