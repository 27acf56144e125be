//! The place of a datagram socket among those that share its address, and what they pass to each
//! other. `share` makes places, and `ports::DatagramPort` uses them.

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};

use super::udp::Entry;
use crate::account::{Account, Charge};
use crate::ready::register;

/// The most datagrams, or trains of them, that wait for one socket.
const MOST: usize = 1024;

/// The most bytes of them: more handshakes than a server answers in a tenth of a second.
const MOST_BYTES: usize = 256 << 10;

/// Bytes of an entry in the queue, beside its datagrams.
const ENTRY_BYTES: usize = 128;

/// A bound datagram socket, with its place among those of its address.
pub struct DatagramSocket {
    pub(super) socket: UdpSocket,
    pub(super) place: Place,
}

impl DatagramSocket {
    /// Returns the socket of the system.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

impl From<UdpSocket> for DatagramSocket {
    /// Takes a socket that has its address alone.
    fn from(socket: UdpSocket) -> DatagramSocket {
        DatagramSocket {
            socket,
            place: Place::default(),
        }
    }
}

/// The place of a socket among those that share its address.
pub struct Place {
    number: usize,
    group: Arc<Group>,
}

/// The sockets of one address.
struct Group {
    inboxes: Vec<Mutex<Inbox>>,
    /// The sockets, until the last of them is dropped: without one, the kernel would give its
    /// datagrams and those of another one to others.
    _held: Vec<UdpSocket>,
}

/// The datagrams that were passed to a socket.
#[derive(Default)]
struct Inbox {
    waiting: VecDeque<(Entry, Box<[u8]>)>,
    bytes: usize,
    charge: Option<Charge>,
    reader: Option<Waker>,
}

impl Default for Place {
    /// Returns the place of a socket that has its address alone.
    fn default() -> Place {
        Place {
            number: 0,
            group: Arc::new(Group {
                inboxes: vec![Mutex::default()],
                _held: Vec::new(),
            }),
        }
    }
}

impl Place {
    /// Returns the places of these sockets, in their order.
    pub(super) fn of(sockets: &[UdpSocket]) -> std::io::Result<Vec<Place>> {
        let held: std::io::Result<_> = sockets.iter().map(UdpSocket::try_clone).collect();
        let group = Arc::new(Group {
            inboxes: sockets.iter().map(|_| Mutex::default()).collect(),
            _held: held?,
        });
        let place = |number| Place {
            number,
            group: group.clone(),
        };
        Ok((0..sockets.len()).map(place).collect())
    }

    /// Returns the number of the socket, and how many there are.
    pub fn number_of(&self) -> (usize, usize) {
        (self.number, self.group.inboxes.len())
    }

    /// Charges what waits for this socket to an account.
    pub fn charge_to(&self, account: &Arc<Account>) {
        if let Some(mut inbox) = self.inbox(self.number) {
            inbox.charge = Some(Charge::new(account));
        }
    }

    /// Leaves an entry for the socket with this number. Returns false if there is none, or no room.
    pub fn pass(&self, number: usize, entry: Entry, payload: &[u8]) -> bool {
        let Some(mut inbox) = self.inbox(number) else {
            return false;
        };
        let bytes = inbox.bytes + payload.len() + ENTRY_BYTES;
        if inbox.waiting.len() >= MOST || bytes > MOST_BYTES {
            return false;
        }
        inbox.waiting.push_back((entry, payload.into()));
        inbox.keep(bytes);
        let reader = inbox.reader.take();
        drop(inbox);
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }

    /// Takes what was passed to this socket, up to both limits. If that falls short of
    /// `max_entries`, `cx` is woken when there is more.
    pub fn passed(
        &self,
        max_entries: usize,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> (Vec<u8>, Vec<Entry>) {
        let (mut payload, mut entries) = (Vec::new(), Vec::new());
        let Some(mut inbox) = self.inbox(self.number) else {
            return (payload, entries);
        };
        let mut left = inbox.bytes;
        while entries.len() < max_entries
            && let Some((_, datagram)) = inbox.waiting.front()
        {
            let fits = datagram.len() <= max_bytes - payload.len();
            // One that is longer than the limit of an empty batch would never leave.
            if !fits && !payload.is_empty() {
                break;
            }
            left -= datagram.len() + ENTRY_BYTES;
            if let Some((entry, datagram)) = inbox.waiting.pop_front()
                && fits
            {
                payload.extend_from_slice(&datagram);
                entries.push(entry);
            }
        }
        inbox.keep(left);
        if entries.len() < max_entries {
            match inbox.waiting.is_empty() {
                true => register(&mut inbox.reader, cx),
                false => cx.waker().wake_by_ref(),
            }
        }
        (payload, entries)
    }

    /// Discards what was passed to this socket.
    pub fn discard(&self) {
        if let Some(mut inbox) = self.inbox(self.number) {
            inbox.waiting.clear();
            inbox.keep(0);
        }
    }

    fn inbox(&self, number: usize) -> Option<MutexGuard<'_, Inbox>> {
        let inbox = self.group.inboxes.get(number)?;
        Some(inbox.lock().expect("no panic under this lock"))
    }
}

impl Inbox {
    fn keep(&mut self, bytes: usize) {
        self.bytes = bytes;
        if let Some(charge) = &mut self.charge {
            charge.set(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready::{ReadyList, Token};

    fn places(count: usize) -> Vec<Place> {
        let bind = |_| UdpSocket::bind("127.0.0.1:0").expect("a port");
        let sockets: Vec<UdpSocket> = (0..count).map(bind).collect();
        Place::of(&sockets).expect("places")
    }

    fn entry(len: usize) -> Entry {
        Entry {
            len,
            segment_size: None,
            remote: "192.0.2.1:7".parse().expect("an address"),
            local: None,
            ecn: None,
        }
    }

    fn listed(list: &ReadyList) -> Vec<u64> {
        let mut tokens = Vec::new();
        list.take(&mut tokens);
        tokens
    }

    #[test]
    fn what_is_passed_comes_to_the_named_socket_in_order_and_wakes_it_once() {
        let all = places(2);
        let list = Arc::<ReadyList>::default();
        let waker: Waker = Token::new(7, &list).into();
        let mut cx = Context::from_waker(&waker);
        assert_eq!((all[0].number_of(), all[1].number_of()), ((0, 2), (1, 2)));
        assert!(all[1].passed(9, 99, &mut cx).1.is_empty());
        assert!(all[0].pass(1, entry(3), b"one"));
        assert!(all[0].pass(1, entry(5), b"three"));
        assert!(!all[0].pass(2, entry(3), b"two"));
        assert_eq!(listed(&list), [7]);
        assert!(all[0].passed(9, 99, &mut cx).1.is_empty());
        // The limits hold, and what is left is announced.
        assert_eq!(all[1].passed(9, 4, &mut cx).0, b"one");
        assert_eq!(listed(&list), [7]);
        assert_eq!(
            all[1].passed(1, 99, &mut cx),
            (b"three".to_vec(), vec![entry(5)])
        );
        assert!(listed(&list).is_empty());
        // A datagram longer than a whole batch does not stay for ever.
        assert!(all[0].pass(1, entry(5), b"three") && all[0].pass(1, entry(3), b"one"));
        assert_eq!(all[1].passed(9, 4, &mut cx).0, b"one");
    }

    #[test]
    fn what_waits_is_bounded_and_charged_and_can_be_discarded() {
        let all = places(2);
        let account = Arc::<Account>::default();
        all[1].charge_to(&account);
        for payload in [vec![0; 148], vec![0; 60_000]] {
            while all[0].pass(1, entry(payload.len()), &payload) {}
            let full = MOST_BYTES - payload.len() - ENTRY_BYTES..=MOST_BYTES;
            assert!(full.contains(&account.kept()));
            // The other socket has its own room.
            assert!(all[1].pass(0, entry(1), b"x"));
            all[1].discard();
            assert_eq!(account.kept(), 0);
        }
        let mut cx = Context::from_waker(Waker::noop());
        assert!(all[0].pass(1, entry(1), b"x"));
        assert_eq!(account.kept(), 1 + ENTRY_BYTES);
        assert_eq!(all[1].passed(9, 9, &mut cx).0, b"x");
        assert_eq!(account.kept(), 0);
    }
}
