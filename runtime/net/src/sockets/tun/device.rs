//! Devices of Linux, and what they do for packets. `port` reads and writes.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::entry::Offloads;
use super::header;

/// The file that makes devices.
const MAKER: &str = "/dev/net/tun";

/// The flags of a device for plain packets of IP, without and with a header before each.
const PLAIN: libc::c_int = libc::IFF_TUN | libc::IFF_NO_PI;
const HEADED: libc::c_int = PLAIN | libc::IFF_VNET_HDR;

/// Offloads of the driver (`linux/if_tun.h`).
const CHECKSUM: u32 = 0x01;
const TCP_SEGMENTS: u32 = 0x02 | 0x04;
const UDP_SEGMENTS: u32 = 0x20 | 0x40;

/// A device that the user gives to a module.
#[derive(Debug)]
pub struct PacketDevice {
    pub(super) descriptor: OwnedFd,
    mtu: u32,
    /// True if a header comes before each packet.
    pub(super) headed: bool,
    /// The offloads that it has.
    pub(super) offloads: Offloads,
}

impl PacketDevice {
    /// Takes the descriptor of a device of this MTU: one of a TUN driver for plain IP packets
    /// (`IFF_TUN | IFF_NO_PI`). Fails with `InvalidInput` for any other. A device with
    /// `IFF_VNET_HDR` has [offloads](Offloads).
    pub fn given(descriptor: OwnedFd, mtu: u32) -> io::Result<PacketDevice> {
        let has = request(&descriptor, libc::TUNGETIFF as _, "", 0)?;
        if has & (PLAIN | libc::IFF_TAP) != PLAIN {
            let reason = "is not a device for plain IP packets (IFF_TUN | IFF_NO_PI)";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        PacketDevice::new(descriptor, mtu, has & HEADED == HEADED)
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
        let headed = attach(&descriptor, name)?;
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        let mut request = named(name)?;
        // SAFETY: the request is a whole `ifreq`, in which the system writes the MTU.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request) };
        check(done)?;
        // SAFETY: the system has filled it in.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        PacketDevice::new(descriptor, u32::try_from(mtu).unwrap_or_default(), headed)
    }

    /// Asks a device with headers for its offloads, and sets none.
    fn new(descriptor: OwnedFd, mtu: u32, headed: bool) -> io::Result<PacketDevice> {
        let mut offloads = Offloads::default();
        if headed {
            let length = header::LEN as libc::c_int;
            // SAFETY: the call reads a number, which lives until it returns.
            let done =
                unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &length) };
            check(done)?;
            let all = Offloads {
                checksum: true,
                tcp_segments: true,
                udp_segments: true,
            };
            // Linux before 6.2 refuses those of UDP.
            let without_udp = Offloads {
                udp_segments: false,
                ..all
            };
            let has = [all, without_udp].into_iter();
            let mut has = has.filter(|wanted| set_offloads(&descriptor, *wanted).is_ok());
            if let Some(has) = has.next() {
                offloads = has;
                set_offloads(&descriptor, Offloads::default())?;
            }
        }
        Ok(PacketDevice {
            descriptor,
            mtu,
            headed,
            offloads,
        })
    }

    /// Returns the MTU.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }
}

/// Attaches the descriptor to the device of this name. Returns true if it has headers, which gVisor
/// lacks.
fn attach(descriptor: &OwnedFd, name: &str) -> io::Result<bool> {
    match request(descriptor, libc::TUNSETIFF as _, name, HEADED) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            request(descriptor, libc::TUNSETIFF as _, name, PLAIN).map(|_| false)
        }
        done => done.map(|_| true),
    }
}

/// Makes a request of the driver with this name and these flags. Returns the flags that the device
/// has.
fn request(
    descriptor: &OwnedFd,
    number: libc::Ioctl,
    name: &str,
    flags: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut request = named(name)?;
    request.ifr_ifru.ifru_flags = flags as i16;
    // SAFETY: the requests take a whole `ifreq`, which lives until the call returns.
    let done = unsafe { libc::ioctl(descriptor.as_raw_fd(), number, &mut request) };
    check(done)?;
    // SAFETY: the system has filled in the flags.
    Ok(unsafe { request.ifr_ifru.ifru_flags }.into())
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

/// Sets the offloads that packets into the device may use.
pub(super) fn set_offloads(descriptor: &OwnedFd, offloads: Offloads) -> io::Result<()> {
    let mut flags = 0;
    for (set, flag) in [
        (offloads.checksum, CHECKSUM),
        (offloads.tcp_segments, TCP_SEGMENTS),
        (offloads.udp_segments, UDP_SEGMENTS),
    ] {
        flags |= if set { flag } else { 0 };
    }
    // SAFETY: the call takes no pointers.
    let done = unsafe {
        libc::ioctl(
            descriptor.as_raw_fd(),
            libc::TUNSETOFFLOAD as _,
            libc::c_ulong::from(flags),
        )
    };
    check(done)
}
