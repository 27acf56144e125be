//! Makes the device in a network namespace, with its addresses and routes. `helper` calls it.
//!
//! The requests are those of netdevice(7), rtnetlink's older form: they are few, and need no sockets
//! of netlink.

use std::fs::{self, OpenOptions};
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::{c_char, c_int};

use super::namespaces::explain;
use super::sys::{Errno, check};
use crate::Plan;

/// The file that makes devices.
const MAKER: &str = "/dev/net/tun";

/// The name of the device.
const NAME: &str = "watm0";

/// A request about an address of IPv6 (`struct in6_ifreq`).
#[repr(C)]
struct AddressOfIpv6 {
    address: libc::in6_addr,
    prefix: u32,
    index: c_int,
}

/// A request about a route of IPv6 (`struct in6_rtmsg`).
#[repr(C)]
struct RouteOfIpv6 {
    destination: libc::in6_addr,
    source: libc::in6_addr,
    gateway: libc::in6_addr,
    kind: u32,
    destination_prefix: u16,
    source_prefix: u16,
    metric: u32,
    info: libc::c_ulong,
    flags: u32,
    index: c_int,
}

/// Makes the device in a new namespace, and brings it and the loopback up.
pub fn make(plan: &Plan) -> Result<OwnedFd, String> {
    permit_pings();
    let ipv4 = control(libc::AF_INET).map_err(failed("a socket"))?;
    up(&ipv4, "lo").map_err(failed("the loopback"))?;
    add(plan)
}

/// Makes the device in this namespace, with its addresses and routes.
pub fn add(plan: &Plan) -> Result<OwnedFd, String> {
    let device = open()?;
    attach(&device).map_err(|error| match error.0 {
        libc::EBUSY => {
            format!("the namespace has a device {NAME} already; end the program that uses it")
        }
        _ => explain("the device for packets", error),
    })?;
    let ipv4 = control(libc::AF_INET).map_err(failed("a socket"))?;
    set_mtu(&ipv4, plan.mtu).map_err(failed("the MTU of the device"))?;
    let step = failed("the addresses of the device");
    for address in &plan.addresses {
        if let IpAddr::V4(address) = address {
            set_ipv4(&ipv4, *address).map_err(step)?;
        }
    }
    up(&ipv4, NAME).map_err(failed("the device"))?;
    let step = failed("the routes");
    if plan.addresses.iter().any(IpAddr::is_ipv4) {
        let routes = routes(plan);
        for first in routes.firsts {
            // The highest bit alone is in the mask of a half.
            let mask = routes.prefix << 7;
            route_ipv4(&ipv4, *first, mask).map_err(step)?;
        }
    }
    for address in &plan.addresses {
        if let IpAddr::V6(address) = address {
            // A kernel without IPv6 has no such sockets, and a container may have it off.
            match set_ipv6(*address, routes(plan)) {
                Ok(()) | Err(Errno(libc::EAFNOSUPPORT)) => {}
                Err(Errno(libc::EACCES)) if plan.namespace.is_some() => {}
                Err(error) => return Err(step(error)),
            }
        }
    }
    Ok(device)
}

fn failed(step: &'static str) -> impl Fn(Errno) -> String + Copy {
    move |error| explain(step, error)
}

fn open() -> Result<OwnedFd, String> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let opened = options.custom_flags(libc::O_NONBLOCK).open(MAKER);
    opened.map(OwnedFd::from).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => {
                "load the kernel's module (`modprobe tun`), or give the device to the container \
                 (`--device /dev/net/tun`)"
            }
            io::ErrorKind::PermissionDenied => {
                "run as root, or let your user read and write it (most systems have mode 0666)"
            }
            _ => "the kernel may lack the module tun",
        };
        format!("cannot open {MAKER}: {error}; {advice}")
    })
}

fn attach(device: &OwnedFd) -> Result<(), Errno> {
    let attach = |flags: c_int| {
        let mut request = named(NAME);
        request.ifr_ifru.ifru_flags = flags as i16;
        ioctl(device, libc::TUNSETIFF as _, &mut request)
    };
    let plain = libc::IFF_TUN | libc::IFF_NO_PI;
    // With headers, checksums and long segments are left to the kernel. gVisor has none.
    match attach(plain | libc::IFF_VNET_HDR) {
        Err(Errno(libc::EINVAL)) => attach(plain),
        done => done,
    }
}

/// Lets the program send echo requests without further rights, as distributions do.
fn permit_pings() {
    // SAFETY: the call takes no pointers, and cannot fail.
    let group = unsafe { libc::getegid() };
    // Containers may have these files read-only; then pings need rights, and IPv6 stays as it is.
    let _ = fs::write(
        "/proc/sys/net/ipv4/ping_group_range",
        format!("{group} {group}"),
    );
    let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0");
}

fn control(family: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes no pointers.
    let made = check(unsafe { libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the system has just made the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

fn set_mtu(socket: &OwnedFd, mtu: u32) -> Result<(), Errno> {
    let mut request = named(NAME);
    request.ifr_ifru.ifru_mtu = mtu as c_int;
    ioctl(socket, libc::SIOCSIFMTU as _, &mut request)
}

fn up(socket: &OwnedFd, name: &str) -> Result<(), Errno> {
    let mut request = named(name);
    ioctl(socket, libc::SIOCGIFFLAGS as _, &mut request)?;
    // SAFETY: the system has filled in the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    request.ifr_ifru.ifru_flags = flags | (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    ioctl(socket, libc::SIOCSIFFLAGS as _, &mut request)
}

fn set_ipv4(socket: &OwnedFd, address: Ipv4Addr) -> Result<(), Errno> {
    let mut request = named(NAME);
    request.ifr_ifru.ifru_addr = address_of_ipv4(address);
    ioctl(socket, libc::SIOCSIFADDR as _, &mut request)?;
    request.ifr_ifru.ifru_netmask = address_of_ipv4(Ipv4Addr::BROADCAST);
    ioctl(socket, libc::SIOCSIFNETMASK as _, &mut request)
}

/// The networks that are routed into the device.
#[derive(Clone, Copy)]
struct Routes {
    /// The first octet of each.
    firsts: &'static [u8],
    /// The bits of that octet that count.
    prefix: u8,
}

/// Returns one default route, or two halves of all addresses, which come before a default route that is
/// there.
fn routes(plan: &Plan) -> Routes {
    match plan.namespace {
        None => Routes {
            firsts: &[0],
            prefix: 0,
        },
        Some(_) => Routes {
            firsts: &[0, 128],
            prefix: 1,
        },
    }
}

fn route_ipv4(socket: &OwnedFd, first: u8, mask: u8) -> Result<(), Errno> {
    let mut name = [0 as c_char; libc::IFNAMSIZ];
    fill(&mut name, NAME);
    // SAFETY: a route of zeros is valid.
    let mut route: libc::rtentry = unsafe { zeroed() };
    route.rt_dst = address_of_ipv4(Ipv4Addr::new(first, 0, 0, 0));
    route.rt_genmask = address_of_ipv4(Ipv4Addr::new(mask, 0, 0, 0));
    route.rt_flags = libc::RTF_UP;
    route.rt_dev = name.as_mut_ptr();
    ioctl(socket, libc::SIOCADDRT as _, &mut route)
}

fn set_ipv6(address: Ipv6Addr, routes: Routes) -> Result<(), Errno> {
    let socket = control(libc::AF_INET6)?;
    let mut request = named(NAME);
    ioctl(&socket, libc::SIOCGIFINDEX as _, &mut request)?;
    // SAFETY: the system has filled in the index.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    let mut request = AddressOfIpv6 {
        address: address_of_ipv6(address),
        prefix: 128,
        index,
    };
    ioctl(&socket, libc::SIOCSIFADDR as _, &mut request)?;
    let nothing = address_of_ipv6(Ipv6Addr::UNSPECIFIED);
    for first in routes.firsts {
        let mut route = RouteOfIpv6 {
            destination: address_of_ipv6(Ipv6Addr::from(u128::from(*first) << 120)),
            source: nothing,
            gateway: nothing,
            kind: 0,
            destination_prefix: routes.prefix.into(),
            source_prefix: 0,
            metric: 1,
            info: 0,
            flags: u32::from(libc::RTF_UP),
            index,
        };
        ioctl(&socket, libc::SIOCADDRT as _, &mut route)?;
    }
    Ok(())
}

fn address_of_ipv4(address: Ipv4Addr) -> libc::sockaddr {
    let [a, b, c, d] = address.octets().map(|octet| octet as c_char);
    // SAFETY: an address of zeros is valid.
    let mut out: libc::sockaddr = unsafe { zeroed() };
    out.sa_family = libc::AF_INET as libc::sa_family_t;
    // After the port, which is 0 (`struct sockaddr_in`).
    out.sa_data[2..6].copy_from_slice(&[a, b, c, d]);
    out
}

fn address_of_ipv6(address: Ipv6Addr) -> libc::in6_addr {
    libc::in6_addr {
        s6_addr: address.octets(),
    }
}

fn named(name: &str) -> libc::ifreq {
    // SAFETY: a request of zeros is valid, and has an empty name.
    let mut request: libc::ifreq = unsafe { zeroed() };
    fill(&mut request.ifr_name, name);
    request
}

fn fill(to: &mut [c_char], name: &str) {
    for (to, from) in to.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
}

fn ioctl<T>(descriptor: &OwnedFd, number: libc::Ioctl, request: &mut T) -> Result<(), Errno> {
    // SAFETY: each caller passes the type that the request takes, whole and alive.
    let done = unsafe { libc::ioctl(descriptor.as_raw_fd(), number, request) };
    check(done).map(drop)
}
