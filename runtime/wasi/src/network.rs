//! The network as a program may use it. `tcp`, `names` and `udp` ask it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use watm_net::connect::{WireKind, datagrams};
use watm_net::counters::Counters;
use watm_net::flow::GuestIo;
use watm_net::ports::Remotes;
use watm_policy::access::Access;
use watm_policy::reach::Verdict;
use watm_types::{Destination, Error, ErrorCode, FlowInfo, Network as Protocol, Target};

use crate::clients::Clients;
use crate::connection::Kind;
use crate::ports::Ports;

/// The most addresses that are remembered with their names: more than a program has servers.
const MOST_FOUND: usize = 1024;

/// The name that stands for the application, and the address that it has. Nobody can own either:
/// `internal` is a domain for private use, and the address belongs to a block without a purpose
/// (RFC 1112).
pub const APPLICATION: &str = "application.internal";
const APPLICATION_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(240, 0, 0, 1));

/// Makes a flow of the application, and returns the program's end of it.
pub type Application = Arc<dyn Fn(FlowInfo) -> Result<GuestIo, ErrorCode> + Send + Sync>;

/// A connection that was made for a program.
pub(crate) struct Made {
    pub(crate) kind: Kind,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// The network access of a program.
pub(crate) struct Network {
    pub(crate) access: Arc<Access>,
    /// The destination that the application gives.
    own: Option<Destination>,
    pub(crate) ports: Arc<Ports>,
    application: Option<Application>,
    pub(crate) clients: Arc<Clients>,
    found: Mutex<Found>,
    /// The addresses that datagrams came from.
    heard: Remotes,
}

/// The addresses that the program has looked up, each with its name, the latest last.
#[derive(Default)]
struct Found(VecDeque<(IpAddr, String)>);

impl Network {
    pub(crate) fn new(
        access: Arc<Access>,
        own: Option<Destination>,
        ports: Arc<Ports>,
        application: Option<Application>,
        counters: &Arc<Counters>,
    ) -> Network {
        Network {
            access,
            own,
            ports,
            application,
            clients: Arc::default(),
            found: Mutex::default(),
            heard: Remotes::new(&counters.account),
        }
    }

    /// Connects to an address, if the program may.
    pub(crate) async fn connect(&self, remote: SocketAddr) -> Result<Made, Error> {
        if let Some(application) = &self.application
            && remote.ip() == APPLICATION_ADDRESS
        {
            return self.open_flow(application, remote);
        }
        let target = Target::tcp(Destination::Address(remote));
        let named = self.is_named(Protocol::Tcp, remote);
        let wire = self.access.connect(&target, named).await?;
        let kind = match wire.kind {
            WireKind::Tcp(stream) => Kind::Tcp(stream),
            WireKind::Other(stream) => Kind::Other(stream),
            WireKind::Udp(_) | WireKind::Datagrams(_) => {
                return Err(self.access.failed(&target, datagrams()));
            }
        };
        Ok(Made {
            kind,
            local: wire.local,
            peer: wire.peer,
        })
    }

    /// Makes a flow of the application, for the client that waits.
    fn open_flow(&self, application: &Application, remote: SocketAddr) -> Result<Made, Error> {
        let client = self.clients.take();
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let (source, listener) = client.unwrap_or((nobody, nobody));
        let info = FlowInfo {
            source,
            destination: Destination::Address(listener),
            peer: None,
            underlay: client,
            attributes: Vec::new(),
        };
        let stream = application(info).map_err(|code| Error::Refused {
            module: self.access.name.clone(),
            code,
        })?;
        Ok(Made {
            kind: Kind::Flow(stream),
            local: None,
            peer: Some(remote),
        })
    }

    /// Returns the addresses of a name, if the program may reach it at some port.
    pub(crate) async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, Error> {
        if self.application.is_some() && same_name(name, APPLICATION) {
            return Ok(vec![APPLICATION_ADDRESS]);
        }
        let own = matches!(&self.own, Some(Destination::Name(own, _)) if same_name(own, name));
        let found = self.access.look_up(name, own).await?;
        let mut known = self.found();
        for ip in &found {
            known.add(*ip, name);
        }
        Ok(found)
    }

    /// Returns true if the program may bind a UDP socket to this address. A socket that only asks
    /// others has a port that the system chooses.
    pub(crate) fn may_bind(&self, address: SocketAddr) -> bool {
        let any = [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        self.ports.udp().contains(&address) || any.contains(&address.ip()) && address.port() == 0
    }

    /// Returns true if the program may send a datagram to this address.
    pub(crate) fn may_send(&self, remote: SocketAddr) -> bool {
        let may = self.is_named(Protocol::Udp, remote)
            || self.access.admits_datagrams(remote, None)
            || self.heard.lock().answers(remote, Instant::now());
        if !may {
            self.access.refuse_datagrams(remote);
        }
        may
    }

    /// Returns true if the program may receive a datagram from this address. Everyone may send to an
    /// address that is granted. Without one, only those are heard that the program may ask.
    pub(crate) fn may_receive(&self, remote: SocketAddr) -> bool {
        if self.ports.udp().is_empty() {
            return self.is_named(Protocol::Udp, remote)
                || self.access.admits_datagrams(remote, None);
        }
        self.heard.lock().heard(remote, Instant::now());
        true
    }

    /// Returns true if the address is the application's destination, or has a name that the program
    /// may reach at this port.
    fn is_named(&self, network: Protocol, remote: SocketAddr) -> bool {
        if self.own == Some(Destination::Address(remote)) {
            return true;
        }
        let found = self.found();
        found.names(remote.ip()).any(|name| {
            let own = matches!(&self.own, Some(Destination::Name(own, port))
                if same_name(own, name) && *port == remote.port());
            let target = Target {
                network,
                ..Target::tcp(Destination::Name(name.to_owned(), remote.port()))
            };
            own || self.access.reach.judge(&target) == Verdict::Allowed
        })
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().expect("no panic under this lock")
    }
}

impl Found {
    fn add(&mut self, ip: IpAddr, name: &str) {
        self.0.retain(|(known, of)| *known != ip || of != name);
        if self.0.len() >= MOST_FOUND {
            self.0.pop_front();
        }
        self.0.push_back((ip, name.to_owned()));
    }

    fn names(&self, ip: IpAddr) -> impl Iterator<Item = &str> {
        let of = self.0.iter().filter(move |(known, _)| *known == ip);
        of.map(|(_, name)| name.as_str())
    }
}

fn same_name(one: &str, other: &str) -> bool {
    let plain = |name: &'_ str| name.strip_suffix('.').unwrap_or(name).len();
    let (one, other) = (&one[..plain(one)], &other[..plain(other)]);
    one.eq_ignore_ascii_case(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_all_names_that_it_was_found_by() {
        let mut found = Found::default();
        let ip = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        found.add(ip(1), "one.example");
        found.add(ip(1), "other.example");
        found.add(ip(1), "one.example");
        assert_eq!(
            found.names(ip(1)).collect::<Vec<_>>(),
            ["other.example", "one.example"]
        );
        assert_eq!(found.names(ip(2)).count(), 0);
        for number in 0..MOST_FOUND {
            found.add(ip(2), &format!("{number}.example"));
        }
        assert_eq!(found.0.len(), MOST_FOUND);
        assert_eq!(found.names(ip(1)).count(), 0);
    }

    #[test]
    fn names_are_compared_without_case_and_final_dot() {
        assert!(same_name("Example.COM.", "example.com"));
        assert!(!same_name("example.com", "example.org"));
        assert!(!same_name("a.example.com", "example.com"));
    }
}
