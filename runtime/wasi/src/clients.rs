//! The clients of a program whose connections it has not yet passed on to the application. `tcp` notes
//! them, and `network` takes them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// A client's address, and the one that it has connected to.
pub(crate) type Client = (SocketAddr, SocketAddr);

/// The clients that wait, the first one in front.
#[derive(Default)]
pub(crate) struct Clients(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    clients: VecDeque<(u64, Client)>,
    next: u64,
}

/// A client's place, until its connection is closed.
pub(crate) struct Place {
    clients: Arc<Clients>,
    number: u64,
}

impl Clients {
    /// Notes that the program has accepted a client's connection.
    pub(crate) fn add(self: &Arc<Self>, client: Client) -> Place {
        let mut waiting = self.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.clients.push_back((number, client));
        Place {
            clients: self.clone(),
            number,
        }
    }

    /// Takes the client that has waited for the longest time.
    pub(crate) fn take(&self) -> Option<Client> {
        self.lock().clients.pop_front().map(|(_, client)| client)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("no panic under this lock")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.clients.lock();
        waiting.clients.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_taken_in_their_order_while_they_are_connected() {
        let clients = Arc::<Clients>::default();
        let local = SocketAddr::from(([127, 0, 0, 1], 80));
        let client = |port| (SocketAddr::from(([192, 0, 2, 1], port)), local);
        let [_one, two, three] = [1, 2, 3].map(|port| clients.add(client(port)));
        drop(two);
        assert_eq!(clients.take(), Some(client(1)));
        assert_eq!(clients.take(), Some(client(3)));
        drop(three);
        assert_eq!(clients.take(), None);
    }
}
