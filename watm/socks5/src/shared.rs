//! The state that the codecs of connections share with `datagrams`: associations of clients, and those made at the proxy.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use watm_core::Destination;

/// The most associations of clients at a time.
const MAX_ASSOCIATIONS: usize = 4096;

/// The shared state.
#[derive(Default)]
pub struct Shared {
    /// The address of the datagram socket. `None` without one: then there are no associations.
    pub socket: Cell<Option<SocketAddr>>,
    /// The associations of clients.
    pub clients: RefCell<Associations>,
    events: RefCell<Vec<(u64, Event)>>,
}

/// News of an association at the proxy.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The proxy takes datagrams there.
    Ready(Relay),
    /// The proxy has refused it, or broke the protocol.
    Refused(String),
    /// Its connection has ended.
    Ended,
}

/// The place to which a proxy wants datagrams to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relay {
    /// Another address, or a name.
    At(Destination),
    /// This port of the proxy itself.
    Own(u16),
}

impl Shared {
    /// Takes the news since the last call, each with the number of its [`Made`].
    pub fn take_events(&self) -> Vec<(u64, Event)> {
        self.events.take()
    }

    /// Begins an association of a client at this address, with the port that it announced if it is not 0. Returns `None` if
    /// there are too many.
    pub fn associate(
        self: &Rc<Shared>,
        client: IpAddr,
        port: u16,
        user: Option<String>,
    ) -> Option<Association> {
        let number = self.clients.borrow_mut().begin(client, port, user)?;
        Some(Association {
            shared: Rc::clone(self),
            number,
        })
    }
}

/// A client's association, which ends when this is dropped: with the codec of its connection.
pub struct Association {
    shared: Rc<Shared>,
    number: u64,
}

impl Drop for Association {
    fn drop(&mut self) {
        self.shared.clients.borrow_mut().end(self.number);
    }
}

/// An association that the module makes at its proxy. Dropping it reports its end.
pub struct Made {
    shared: Rc<Shared>,
    number: u64,
}

impl Made {
    /// Makes one that reports under this number.
    pub fn new(shared: &Rc<Shared>, number: u64) -> Made {
        let shared = Rc::clone(shared);
        Made { shared, number }
    }

    /// Reports news.
    pub fn report(&self, event: Event) {
        self.shared.events.borrow_mut().push((self.number, event));
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.report(Event::Ended);
    }
}

/// The associations of clients.
#[derive(Default)]
pub struct Associations {
    open: BTreeMap<u64, Member>,
    by_source: BTreeMap<SocketAddr, u64>,
    /// Those without a source so far, by their client's address.
    waiting: BTreeMap<IpAddr, BTreeSet<u64>>,
    last: u64,
    ended: Vec<u64>,
}

struct Member {
    ip: IpAddr,
    /// The port that the client announced, or that its datagrams come from.
    port: Option<u16>,
    user: Option<String>,
}

impl Associations {
    fn begin(&mut self, client: IpAddr, port: u16, user: Option<String>) -> Option<u64> {
        if self.open.len() >= MAX_ASSOCIATIONS {
            return None;
        }
        self.last += 1;
        let ip = client.to_canonical();
        let port = Some(port).filter(|port| *port != 0);
        self.open.insert(self.last, Member { ip, port, user });
        self.waiting.entry(ip).or_default().insert(self.last);
        Some(self.last)
    }

    fn end(&mut self, number: u64) {
        let Some(Member { ip, port, .. }) = self.open.remove(&number) else {
            return;
        };
        if let Some(waiting) = self.waiting.get_mut(&ip) {
            waiting.remove(&number);
            if waiting.is_empty() {
                self.waiting.remove(&ip);
            }
        }
        if let Some(source) = port.map(|port| SocketAddr::new(ip, port))
            && self.by_source.get(&source) == Some(&number)
        {
            self.by_source.remove(&source);
        }
        self.ended.push(number);
    }

    /// The association of a datagram from this address, which is canonical. A source without one gets the first that waits
    /// for this port, or else for any port of this address.
    pub fn find(&mut self, source: SocketAddr) -> Option<u64> {
        if let Some(&number) = self.by_source.get(&source) {
            return Some(number);
        }
        let waiting = self.waiting.get_mut(&source.ip())?;
        let open = &mut self.open;
        let first = |port: Option<u16>| {
            let is = |number: &&u64| open.get(*number).is_some_and(|one| one.port == port);
            waiting.iter().find(is).copied()
        };
        let number = first(Some(source.port())).or_else(|| first(None))?;
        waiting.remove(&number);
        if waiting.is_empty() {
            self.waiting.remove(&source.ip());
        }
        open.get_mut(&number)?.port = Some(source.port());
        self.by_source.insert(source, number);
        Some(number)
    }

    /// The user of an association.
    pub fn user(&self, number: u64) -> Option<&String> {
        self.open.get(&number)?.user.as_ref()
    }

    /// The number of associations.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Takes the associations that have ended since the last call.
    pub fn take_ended(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn begin(shared: &Rc<Shared>, ip: &str, port: u16) -> Association {
        shared.associate(ip.parse().unwrap(), port, None).unwrap()
    }

    fn find(shared: &Shared, from: &str) -> Option<u64> {
        shared.clients.borrow_mut().find(source(from))
    }

    #[test]
    fn an_association_is_its_clients_alone() {
        let shared = Rc::new(Shared::default());
        let one = begin(&shared, "192.0.2.1", 0);
        let announced = begin(&shared, "192.0.2.1", 700);
        assert_eq!(find(&shared, "192.0.2.2:600"), None);
        assert_eq!(find(&shared, "192.0.2.1:700"), Some(announced.number));
        assert_eq!(find(&shared, "192.0.2.1:600"), Some(one.number));
        // The first port is the only one.
        assert_eq!(find(&shared, "192.0.2.1:601"), None);
        assert_eq!(find(&shared, "192.0.2.1:600"), Some(one.number));
    }

    #[test]
    fn ipv4_within_ipv6_is_the_same_client() {
        let shared = Rc::new(Shared::default());
        let one = begin(&shared, "::ffff:192.0.2.1", 0);
        assert_eq!(find(&shared, "192.0.2.1:600"), Some(one.number));
    }

    #[test]
    fn a_port_goes_to_the_next_association_after_the_end_of_the_first() {
        let shared = Rc::new(Shared::default());
        let first = begin(&shared, "192.0.2.1", 700);
        assert_eq!(find(&shared, "192.0.2.1:700"), Some(first.number));
        let second = begin(&shared, "192.0.2.1", 700);
        assert_eq!(find(&shared, "192.0.2.1:700"), Some(first.number));
        let number = first.number;
        drop(first);
        assert_eq!(shared.clients.borrow_mut().take_ended(), [number]);
        assert_eq!(find(&shared, "192.0.2.1:700"), Some(second.number));
        drop(second);
        let clients = shared.clients.borrow();
        assert!(clients.by_source.is_empty() && clients.waiting.is_empty() && clients.len() == 0);
    }

    #[test]
    fn there_are_not_too_many() {
        let shared = Rc::new(Shared::default());
        let client = "192.0.2.1".parse().unwrap();
        let all: Vec<_> = (0..MAX_ASSOCIATIONS)
            .map(|_| shared.associate(client, 0, None).unwrap())
            .collect();
        assert!(shared.associate(client, 0, None).is_none());
        drop(all);
        assert!(shared.associate(client, 0, None).is_some());
    }
}
