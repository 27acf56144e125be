//! The addresses that a program may listen on. The application grants them, and `tcp` and `network`
//! ask for them.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpListener;
use watm_net::sockets::Admission;

/// The addresses that are granted to a program. They outlive its instances, so that clients wait in
/// the kernel while it starts again.
#[derive(Default)]
pub struct Ports {
    tcp: Vec<Arc<Listening>>,
    udp: Vec<SocketAddr>,
    /// True once clients are to wait in the kernel, until the listeners are closed.
    stopped: Arc<AtomicBool>,
}

/// A listener of the host's, which one socket of the program has at a time.
pub(crate) struct Listening {
    pub(crate) listener: TcpListener,
    /// The address that it is bound to.
    pub(crate) local: SocketAddr,
    lent: AtomicBool,
    stopped: Arc<AtomicBool>,
    /// The application's decision about connections, if it has one.
    pub(crate) admission: Option<Arc<dyn Admission>>,
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
    /// Grants a TCP address, by a listener that was bound to it. `admission` decides which
    /// connections are taken. Fails if the listener cannot be registered with the tokio runtime that
    /// this is called in.
    pub fn grant_tcp(
        &mut self,
        listener: StdListener,
        admission: Option<Arc<dyn Admission>>,
    ) -> std::io::Result<()> {
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?;
        self.tcp.push(Arc::new(Listening {
            listener: TcpListener::from_std(listener)?,
            local,
            lent: AtomicBool::new(false),
            stopped: self.stopped.clone(),
            admission,
        }));
        Ok(())
    }

    /// Stops accepting. Clients wait in the kernel until the program ends.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Returns true if the program listens on one of its addresses.
    pub fn is_in_use(&self) -> bool {
        self.tcp.iter().any(|it| it.lent.load(Ordering::Acquire))
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

    /// Lends the listener for an address that the program binds. The unspecified address stands for a
    /// granted one of its family, and port 0 for a granted port: programs often bind these.
    pub(crate) fn lend(&self, address: SocketAddr) -> Result<Lent, NotLent> {
        let fits = |listening: &&Arc<Listening>| {
            let local = listening.local;
            let any_ip = address.ip().is_unspecified() && address.is_ipv4() == local.is_ipv4();
            let any_port = address.port() == 0;
            (any_ip || address.ip() == local.ip()) && (any_port || address.port() == local.port())
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

impl Listening {
    /// Returns true if nothing is accepted any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
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
        let listener = StdListener::bind("127.0.0.1:0").expect("a port");
        let local = listener.local_addr().expect("an address");
        ports.grant_tcp(listener, None).expect("a runtime");
        let lend = |address| ports.lend(address).map(|lent| lent.local);
        let port = local.port();
        let granted = [
            "127.0.0.1:0".to_owned(),
            "0.0.0.0:0".to_owned(),
            format!("0.0.0.0:{port}"),
        ];
        for granted in granted
            .map(|text| address(&text))
            .into_iter()
            .chain([local])
        {
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
        assert_eq!(lend(address("0.0.0.0:0")), Err(NotLent::InUse));
        drop(held);
        assert_eq!(lend(local), Ok(local));
    }
}
