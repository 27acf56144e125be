//! The addresses that a program may listen on. The application grants them, and `tcp` and `network`
//! ask for them.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpListener;

/// The addresses that are granted to a program. They outlive its instances, so that clients wait in
/// the kernel while it starts again.
#[derive(Default)]
pub struct Ports {
    tcp: Vec<Arc<Listening>>,
    udp: Vec<SocketAddr>,
}

/// A listener of the host's, which one socket of the program has at a time.
pub(crate) struct Listening {
    pub(crate) listener: TcpListener,
    /// The address that was asked for. Its port may be 0.
    asked: SocketAddr,
    /// The address that it is bound to.
    pub(crate) local: SocketAddr,
    lent: AtomicBool,
}

/// A listener while a socket of the program has it.
pub(crate) struct Lent(Arc<Listening>);

/// The reason why a program does not get an address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotLent {
    /// It is not granted.
    Denied,
    /// Another socket of the program has it.
    InUse,
}

impl Ports {
    /// Grants a TCP address, by a listener that was bound to it. Fails if the listener cannot be
    /// registered with the tokio runtime that this is called in.
    pub fn grant_tcp(&mut self, asked: SocketAddr, listener: StdListener) -> std::io::Result<()> {
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?;
        self.tcp.push(Arc::new(Listening {
            listener: TcpListener::from_std(listener)?,
            asked,
            local,
            lent: AtomicBool::new(false),
        }));
        Ok(())
    }

    /// Grants a UDP address. The program binds it.
    pub fn grant_udp(&mut self, address: SocketAddr) {
        self.udp.push(address);
    }

    /// Returns the TCP addresses that are bound.
    pub fn tcp(&self) -> impl Iterator<Item = SocketAddr> {
        self.tcp.iter().map(|listening| listening.local)
    }

    /// Returns the UDP addresses that are granted.
    pub fn udp(&self) -> &[SocketAddr] {
        &self.udp
    }

    /// Lends the listener for an address that the program binds. The unspecified address stands for
    /// the granted one of its family with that port: programs often bind it.
    pub(crate) fn lend(&self, address: SocketAddr) -> Result<Lent, NotLent> {
        let fits = |listening: &&Arc<Listening>| {
            let granted = [listening.asked, listening.local];
            let same_family = address.is_ipv4() == listening.local.is_ipv4();
            granted.iter().any(|granted| {
                *granted == address
                    || address.ip().is_unspecified()
                        && same_family
                        && granted.port() == address.port()
            })
        };
        let mut free = NotLent::Denied;
        for listening in self.tcp.iter().filter(fits) {
            if !listening.lent.swap(true, Ordering::AcqRel) {
                return Ok(Lent(listening.clone()));
            }
            free = NotLent::InUse;
        }
        Err(free)
    }
}

impl std::ops::Deref for Lent {
    type Target = Listening;

    fn deref(&self) -> &Listening {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.lent.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[tokio::test]
    async fn only_granted_addresses_are_lent_and_each_once() {
        let mut ports = Ports::default();
        let asked = address("127.0.0.1:0");
        let listener = StdListener::bind(asked).expect("a port");
        let local = listener.local_addr().expect("an address");
        ports.grant_tcp(asked, listener).expect("a runtime");
        let lend = |address| ports.lend(address).map(|lent| lent.local);
        for granted in [
            asked,
            local,
            SocketAddr::new(address("0.0.0.0:0").ip(), local.port()),
        ] {
            assert_eq!(lend(granted), Ok(local), "{granted}");
        }
        for other in [
            "127.0.0.1:1",
            "127.0.0.2:0",
            "0.0.0.0:1",
            "[::1]:0",
            "[::]:0",
        ] {
            assert_eq!(lend(address(other)), Err(NotLent::Denied), "{other}");
        }
        let held = ports.lend(local);
        assert_eq!(lend(asked), Err(NotLent::InUse));
        drop(held);
        assert_eq!(lend(asked), Ok(local));
    }
}
