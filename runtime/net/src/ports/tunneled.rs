//! A datagram socket without a system socket: a connector carries its datagrams, in one flow for
//! each remote address. `datagrams::DatagramPort` wraps it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::account::Charge;
use crate::connect::{Connect, Wire, WireKind};
use crate::counters::Counters;
use crate::flow::DatagramFlow;
use crate::ready::register;
use crate::sockets::{Entry, NO_ADDRESS, SendOutcome, Sent, Waiting};
use crate::{Destination, Network, Target};

/// The most addresses with a flow: more than a client has peers. Beyond it, the least recently used
/// one is evicted.
const MAX_LINKS: usize = 256;

/// The most datagrams to one address that wait for its flow: a handshake, and the packets of a few
/// connections that begin before it is done.
const MAX_WAITING: usize = 64;

/// The most bytes of them.
const MAX_WAITING_BYTES: usize = 64 << 10;

/// The pause after a failed attempt to open a flow. A protocol repeats what matters.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest train in bytes: the most that the kernel puts together.
const MAX_TRAIN: usize = 1 << 16;

/// The longest datagram that is taken to arrive whole while no flow says more, in bytes: the
/// minimum MTU of IPv6 (RFC 8200 section 5), less its header and that of UDP.
const SHORTEST: usize = 1280 - 48;

/// A datagram socket over a connector. The datagrams to and from one address are one flow, which is
/// opened by the first datagram that is sent, and again after it has ended.
pub struct CarriedPort {
    connector: Arc<dyn Connect>,
    /// The runtime of the connector.
    home: Handle,
    connect_timeout: Duration,
    shared: Arc<Shared>,
    /// Generations of the module that found no room to send.
    waiting: Arc<Waiting>,
    /// True to drop datagrams that are longer than their flow carries whole.
    dont_fragment: AtomicBool,
}

struct Shared {
    links: Mutex<Links>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Links {
    by_remote: BTreeMap<SocketAddr, Link>,
    /// The address of the flow that was read last, so that the next one has its turn.
    last: Option<SocketAddr>,
    /// A datagram that was read from a flow, and did not fit.
    left: Option<(SocketAddr, Vec<u8>)>,
    reader: Option<Waker>,
}

struct Link {
    state: State,
    used: Instant,
}

enum State {
    Opening {
        waiting: Vec<Vec<u8>>,
        charge: Charge,
        _task: AbortOnDrop,
    },
    Open(DatagramFlow),
    /// The attempt to open the flow failed.
    Resting {
        until: Instant,
    },
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl CarriedPort {
    /// Makes a port. `connect_timeout` bounds an attempt to open a flow.
    pub fn new(
        connector: Arc<dyn Connect>,
        home: Handle,
        connect_timeout: Duration,
        counters: Arc<Counters>,
    ) -> CarriedPort {
        CarriedPort {
            connector,
            home,
            connect_timeout,
            shared: Arc::new(Shared {
                links: Mutex::default(),
                counters,
            }),
            waiting: Arc::default(),
            dont_fragment: AtomicBool::new(false),
        }
    }

    /// Returns no address: only the carrier knows the address that the other ends see.
    pub fn local_addr(&self) -> SocketAddr {
        NO_ADDRESS
    }

    /// Receives, as [`UdpPort::receive`](crate::sockets::UdpPort::receive).
    pub fn receive(
        &self,
        max_entries: usize,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> (Vec<u8>, Vec<Entry>) {
        let mut batch = Batch {
            payload: Vec::new(),
            entries: Vec::new(),
            max_entries,
            max_bytes,
        };
        let mut datagrams = 0;
        let mut links = self.shared.lock();
        register(&mut links.reader, cx);
        if let Some((remote, datagram)) = links.left.take() {
            match batch.add(remote, &datagram) {
                true => datagrams += 1,
                // The datagram alone is longer than the limit.
                false => self.shared.counters.dropped_receive_limit.add(1),
            }
        }
        let order = links.order();
        'full: for remote in order {
            while let Some(received) = links.receive_from(&remote, cx) {
                if !batch.add(remote, &received) {
                    links.left = Some((remote, received));
                    cx.waker().wake_by_ref();
                    break 'full;
                }
                datagrams += 1;
            }
        }
        drop(links);
        let counters = &self.shared.counters;
        counters.datagrams_received.add(datagrams);
        counters.bytes_received.add(batch.payload.len() as u64);
        (batch.payload, batch.entries)
    }

    /// Sends, as [`UdpPort::send`](crate::sockets::UdpPort::send).
    pub fn send(&self, payload: &[u8], entries: &[Entry], cx: &mut Context<'_>) -> Sent {
        let room = self.waiting.clone().into();
        let mut for_all = Context::from_waker(&room);
        let mut links = self.shared.lock();
        let mut rest = payload;
        let mut sent = Sent {
            accepted: 0,
            too_long: false,
        };
        for entry in entries {
            let (contents, tail) = rest.split_at(entry.len.min(rest.len()));
            match self.send_entry(&mut links, entry, contents, &mut for_all) {
                SendOutcome::Blocked => {
                    self.waiting.add(cx.waker());
                    break;
                }
                SendOutcome::Sent => {}
                SendOutcome::TooLong => sent.too_long = true,
            }
            rest = tail;
            sent.accepted += 1;
        }
        sent
    }

    /// See [`DatagramPort::longest`](super::DatagramPort::longest).
    pub fn longest(&self, remote: SocketAddr) -> Option<usize> {
        match self.shared.lock().by_remote.get(&remote) {
            Some(Link {
                state: State::Open(flow),
                ..
            }) => flow.longest(),
            _ => Some(SHORTEST),
        }
    }

    /// See [`DatagramPort::set_dont_fragment`](super::DatagramPort::set_dont_fragment).
    pub fn set_dont_fragment(&self, on: bool) {
        self.dont_fragment.store(on, Ordering::Relaxed);
    }

    /// Discards, as [`UdpPort::discard`](crate::sockets::UdpPort::discard).
    pub fn discard(&self) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut links = self.shared.lock();
        links.left = None;
        for remote in links.order() {
            while links.receive_from(&remote, &mut cx).is_some() {
                self.shared.counters.dropped_restarting.add(1);
            }
        }
    }

    fn send_entry(
        &self,
        links: &mut Links,
        entry: &Entry,
        contents: &[u8],
        cx: &mut Context<'_>,
    ) -> SendOutcome {
        let counters = &self.shared.counters;
        let size = entry.segment_size.map_or(contents.len(), usize::from);
        let link = self.link(links, entry.remote);
        let mut datagrams = Datagrams::new(contents, size);
        let mut sent = 0;
        let mut gone = SendOutcome::Sent;
        if let State::Open(flow) = &link.state {
            let strict = self.dont_fragment.load(Ordering::Relaxed);
            let longest = flow.longest().filter(|_| strict).unwrap_or(usize::MAX);
            while let Some(datagram) = datagrams.next {
                if datagram.len() > longest {
                    counters.dropped_send_too_large.add(1);
                    gone = SendOutcome::TooLong;
                    sent += 1;
                    datagrams.advance();
                    continue;
                }
                match flow.poll_writable(cx) {
                    Poll::Pending if sent == 0 => return SendOutcome::Blocked,
                    // The rest of the train is dropped; otherwise its head would be sent twice.
                    Poll::Pending => {
                        counters.dropped_send_buffer.add(datagrams.count() as u64);
                        return gone;
                    }
                    Poll::Ready(Err(_)) => break,
                    Poll::Ready(Ok(())) => {}
                }
                match flow.send(datagram) {
                    Ok(true) => {
                        counters.datagrams_sent.add(1);
                        counters.bytes_sent.add(datagram.len() as u64);
                    }
                    // The flow counts it.
                    Ok(false) => {}
                    Err(crate::ErrorCode::DatagramTooLarge) => {
                        counters.dropped_send_too_large.add(1);
                    }
                    Err(_) => break,
                }
                sent += 1;
                datagrams.advance();
            }
            if datagrams.next.is_none() {
                return gone;
            }
            // The flow has ended, as idle flows do.
            link.state = self.open(entry.remote);
        }
        match &mut link.state {
            State::Opening {
                waiting, charge, ..
            } => {
                let mut bytes: usize = waiting.iter().map(Vec::len).sum();
                for datagram in datagrams {
                    bytes += datagram.len();
                    let room = bytes <= charge.share(MAX_WAITING_BYTES);
                    match waiting.len() < MAX_WAITING && room {
                        true => waiting.push(datagram.to_vec()),
                        false => counters.dropped_send_buffer.add(1),
                    }
                }
                charge.set(waiting.iter().map(Vec::len).sum());
            }
            _ => {
                let lost = datagrams.count();
                counters.dropped_send_unreachable.add(lost as u64);
            }
        }
        gone
    }

    fn link<'a>(&self, links: &'a mut Links, remote: SocketAddr) -> &'a mut Link {
        let now = Instant::now();
        if links.by_remote.len() >= MAX_LINKS && !links.by_remote.contains_key(&remote) {
            links.evict();
        }
        let link = links.by_remote.entry(remote).or_insert_with(|| Link {
            state: State::Resting { until: now },
            used: now,
        });
        link.used = now;
        if matches!(link.state, State::Resting { until } if until <= now) {
            link.state = self.open(remote);
        }
        link
    }

    /// Begins to open a flow to this address. The caller has the lock.
    fn open(&self, remote: SocketAddr) -> State {
        let attempt = Attempt {
            shared: Arc::downgrade(&self.shared),
            remote,
            made: None,
        };
        let (connector, limit) = (self.connector.clone(), self.connect_timeout);
        let task = self.home.spawn(async move {
            // The attempt reports its outcome when it is dropped, whatever ends the task.
            let mut attempt = attempt;
            let target = Target {
                network: Network::Udp,
                ..Target::tcp(Destination::Address(remote))
            };
            match timeout(limit, connector.connect(target)).await {
                Ok(Ok(Wire {
                    kind: WireKind::Datagrams(flow),
                    ..
                })) => attempt.made = Some(flow),
                Ok(Ok(_)) => tracing::debug!(
                    target: "watm::server",
                    "datagrams to {remote}: the connector returned a stream; must be \
                     `Wire::datagrams`"
                ),
                Ok(Err(error)) => tracing::debug!(target: "watm::server", "datagrams to {remote}: {error}"),
                Err(_) => tracing::debug!(target: "watm::server", "datagrams to {remote}: no flow within {limit:?}"),
            }
        });
        State::Opening {
            waiting: Vec::new(),
            charge: Charge::new(&self.shared.counters.account),
            _task: AbortOnDrop(task.abort_handle()),
        }
    }
}

/// An attempt to open a flow. Reports its outcome when it is dropped.
struct Attempt {
    shared: Weak<Shared>,
    remote: SocketAddr,
    made: Option<DatagramFlow>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.settle(self.remote, self.made.take());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().expect("no panic under this lock")
    }

    fn settle(&self, remote: SocketAddr, made: Option<DatagramFlow>) {
        let mut links = self.lock();
        let Some(link) = links.by_remote.get_mut(&remote) else {
            return;
        };
        let State::Opening { waiting, .. } = &mut link.state else {
            return;
        };
        let waiting = std::mem::take(waiting);
        match made {
            Some(flow) => {
                for datagram in waiting {
                    if let Ok(true) = flow.send(&datagram) {
                        self.counters.datagrams_sent.add(1);
                        self.counters.bytes_sent.add(datagram.len() as u64);
                    }
                }
                link.state = State::Open(flow);
            }
            None => {
                self.counters
                    .dropped_send_unreachable
                    .add(waiting.len() as u64);
                let until = Instant::now() + PAUSE;
                link.state = State::Resting { until };
            }
        }
        // The reader must poll the new flow.
        let reader = links.reader.take();
        drop(links);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Links {
    /// Returns the addresses of the flows, from the one after the one that was read last.
    fn order(&self) -> Vec<SocketAddr> {
        let after = |last: &SocketAddr| {
            let later = (std::ops::Bound::Excluded(*last), std::ops::Bound::Unbounded);
            let first = self.by_remote.range(later).map(|(remote, _)| *remote);
            let rest = self.by_remote.range(..=*last).map(|(remote, _)| *remote);
            first.chain(rest).collect()
        };
        match &self.last {
            Some(last) => after(last),
            None => self.by_remote.keys().copied().collect(),
        }
    }

    /// Returns the next datagram of this flow, if there is one now. Removes a flow that has ended.
    fn receive_from(&mut self, remote: &SocketAddr, cx: &mut Context<'_>) -> Option<Vec<u8>> {
        let State::Open(flow) = &self.by_remote.get(remote)?.state else {
            return None;
        };
        match flow.poll_receive(cx) {
            Poll::Pending => None,
            Poll::Ready(Ok(Some(datagram))) => {
                self.last = Some(*remote);
                Some(datagram)
            }
            Poll::Ready(Ok(None) | Err(_)) => {
                self.by_remote.remove(remote);
                None
            }
        }
    }

    fn evict(&mut self) {
        let oldest = self.by_remote.iter().min_by_key(|(_, link)| link.used);
        if let Some((&remote, _)) = oldest {
            self.by_remote.remove(&remote);
        }
    }
}

/// A batch of received datagrams, joined to trains.
struct Batch {
    payload: Vec<u8>,
    entries: Vec<Entry>,
    max_entries: usize,
    max_bytes: usize,
}

impl Batch {
    /// Adds a datagram. Returns false if there is no room.
    fn add(&mut self, remote: SocketAddr, datagram: &[u8]) -> bool {
        if self.payload.len() + datagram.len() > self.max_bytes {
            return false;
        }
        let joined = self.entries.last_mut().is_some_and(|last| {
            let size = last.segment_size.map_or(last.len, usize::from);
            let joins = last.remote == remote
                && (1..=size).contains(&datagram.len())
                // Only the last datagram of a train may be shorter.
                && last.len.is_multiple_of(size)
                && last.len + datagram.len() <= MAX_TRAIN;
            let Ok(size) = u16::try_from(size) else {
                return false;
            };
            if joins {
                last.segment_size = Some(size);
                last.len += datagram.len();
            }
            joins
        });
        if !joined {
            if self.entries.len() == self.max_entries {
                return false;
            }
            self.entries.push(Entry {
                len: datagram.len(),
                segment_size: None,
                remote,
                local: None,
                ecn: None,
            });
        }
        self.payload.extend_from_slice(datagram);
        true
    }
}

/// The datagrams of a train. An empty train is one empty datagram.
struct Datagrams<'a> {
    next: Option<&'a [u8]>,
    rest: &'a [u8],
    size: usize,
}

impl<'a> Datagrams<'a> {
    fn new(contents: &'a [u8], size: usize) -> Datagrams<'a> {
        let size = size.max(1);
        let (first, rest) = contents.split_at(contents.len().min(size));
        Datagrams {
            next: Some(first),
            rest,
            size,
        }
    }

    fn advance(&mut self) {
        let (next, rest) = self.rest.split_at(self.rest.len().min(self.size));
        self.next = (!next.is_empty()).then_some(next);
        self.rest = rest;
    }
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let datagram = self.next?;
        self.advance();
        Some(datagram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(contents: &[u8], size: usize) -> Vec<usize> {
        Datagrams::new(contents, size).map(<[u8]>::len).collect()
    }

    #[test]
    fn trains_are_taken_apart_and_put_together() {
        assert_eq!(sizes(&[], 0), [0]);
        assert_eq!(sizes(&[0; 9], 9), [9]);
        assert_eq!(sizes(&[0; 10], 4), [4, 4, 2]);
        let mut batch = Batch {
            payload: Vec::new(),
            entries: Vec::new(),
            max_entries: 3,
            max_bytes: 100,
        };
        let [one, other] = ["192.0.2.1:1", "192.0.2.2:1"].map(|text| text.parse().expect(text));
        for (remote, length, taken) in [
            (one, 10, true),
            (one, 10, true),
            (one, 3, true),
            // The train has ended with a shorter datagram.
            (one, 10, true),
            (other, 10, true),
            (one, 10, false),
            (other, 60, false),
        ] {
            assert_eq!(
                batch.add(remote, &vec![0; length]),
                taken,
                "{remote} {length}"
            );
        }
        let trains = batch
            .entries
            .iter()
            .map(|entry| (entry.len, entry.segment_size));
        assert_eq!(
            trains.collect::<Vec<_>>(),
            [(23, Some(10)), (10, None), (10, None)]
        );
    }
}
