//! Destinations in the form of SOCKS5, for `server`, `client` and `datagrams`.

use std::net::SocketAddr;

use watm_core::Destination;
use watm_socks_wire::{Address, Host};

/// The destination that an address names. An IP address written as a name becomes an address. `None` if the port is 0, or
/// the name has other characters than letters, digits, `-`, `.` and `_`.
pub fn of(address: Address<'_>) -> Option<Destination> {
    let Address { host, port } = address;
    let ip = match host {
        Host::Ip(ip) => ip,
        Host::Name(name) => {
            let name = std::str::from_utf8(name).ok()?;
            match name.parse() {
                Ok(ip) => ip,
                Err(_) => return format!("{name}:{port}").parse().ok(),
            }
        }
    };
    (port != 0).then(|| SocketAddr::new(ip, port).into())
}

/// The address of a destination.
pub fn address(destination: &Destination) -> Address<'_> {
    match destination {
        Destination::Address(address) => (*address).into(),
        Destination::Name(name, port) => Address {
            host: Host::Name(name.as_bytes()),
            port: *port,
        },
    }
}
