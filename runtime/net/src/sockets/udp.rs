//! UDP sockets of the system, with trains of datagrams (GSO, GRO). `datagrams::DatagramPort` wraps
//! them.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::task::{Context, Poll, Wake, Waker};

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

use super::options;
use super::watched::Watched;
use crate::counters::Counters;

/// The size of a receive buffer: the most that the kernel coalesces (GRO), and more than any single
/// datagram. Pages that no datagram has reached cost nothing.
const BUFFER_BYTES: usize = 1 << 16;

/// The most bytes of one send (GSO): an IPv4 packet less its headers.
const MAX_SEND_BYTES: usize = 65_507;

/// The most that one receive returns, whatever the caller asks for: as much as the kernel keeps for
/// a socket (see `bind`). Bounds a call during a flood.
const MAX_RECEIVE_BYTES: usize = 4 << 20;
const MAX_RECEIVE_ENTRIES: usize = 4096;

/// The most receive errors in a row (usually an ICMP answer to something sent) before the socket is
/// left alone until the next call.
const MAX_RECEIVE_ERRORS: usize = 16;

/// The most generations that wait for room at once: more than a server has. One more wakes the
/// first, which asks again.
const MAX_WAITING: usize = 64;

/// The most unreachable hosts that are reported at once.
const MAX_UNREACHABLE: usize = 16;

/// The most ICMP errors that one call takes: more than fit the kernel's receive buffer.
const MAX_ERRORS: usize = 1 << 16;

/// The most link-local addresses whose interface is remembered; more than one link has.
const MAX_SCOPES: usize = 256;

/// The outcome of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The number of entries that were sent or dropped; the others are the caller's to keep.
    pub accepted: usize,
    /// True if some of those were dropped because they exceed the path's MTU.
    pub too_long: bool,
}

/// The outcome for datagrams that leave together.
pub(crate) enum SendOutcome {
    /// Not sent: there is no room now.
    Blocked,
    /// Sent, as far as the network takes them.
    Sent,
    /// Dropped, at least some of them for their length.
    TooLong,
}

/// A bound UDP socket. It outlives the instances of the module that use it.
pub struct UdpPort {
    socket: Watched,
    state: RwLock<UdpSocketState>,
    local: SocketAddr,
    received: Mutex<Received>,
    /// Generations of the module that found no room to send.
    waiting: Arc<Waiting>,
    /// The interfaces that link-local senders were heard on. The addresses mean nothing without
    /// them (RFC 4007 section 6).
    scopes: Mutex<BTreeMap<Ipv6Addr, u32>>,
    /// True to drop datagrams that do not fit the path.
    dont_fragment: AtomicBool,
    /// True if the kernel keeps ICMP errors.
    collects_errors: AtomicBool,
    /// The hosts that have reported datagrams as unreachable since the last call of `take_unreachable`.
    unreachable: Mutex<Vec<IpAddr>>,
    /// A source address that is no longer this machine's.
    lost_source: Mutex<Option<IpAddr>>,
    counters: Arc<Counters>,
}

/// The wakers of all generations that wait for room. A socket wakes one waiter a direction, and
/// more than one generation may want to send.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    pub(crate) fn add(&self, waker: &Waker) {
        let mut waiting = self.0.lock().expect("no panic under this lock");
        if waiting.iter().any(|known| known.will_wake(waker)) {
            return;
        }
        // A task that joins the socket again and again has a new waker each time.
        let first = (waiting.len() >= MAX_WAITING).then(|| waiting.remove(0));
        waiting.push(waker.clone());
        drop(waiting);
        first.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let waiting = std::mem::take(&mut *self.0.lock().expect("no panic under this lock"));
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// A batch from the kernel, of which a part may have been handed on.
struct Received {
    buffers: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    /// The buffers `next..filled` hold datagrams; `offset` bytes of the first are gone.
    next: usize,
    filled: usize,
    offset: usize,
}

/// A datagram, or a train of them from or to one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The length of its payload, in bytes.
    pub len: usize,
    /// The size of a train's datagrams, the last of which may be shorter. `None` for a single
    /// datagram.
    pub segment_size: Option<u16>,
    /// The address of the other end.
    pub remote: SocketAddr,
    /// The address of this machine that it came to or leaves from, if known.
    pub local: Option<IpAddr>,
    /// The ECN bits of its IP header (RFC 3168).
    pub ecn: Option<EcnCodepoint>,
}

impl UdpPort {
    /// Registers a socket. Needs the context of a tokio runtime.
    pub fn new(
        socket: UdpSocket,
        local: SocketAddr,
        counters: Arc<Counters>,
    ) -> io::Result<UdpPort> {
        let state = UdpSocketState::new((&socket).into())?;
        options::set_dont_fragment(&socket, false);
        Ok(UdpPort {
            socket: Watched::new(socket)?,
            state: RwLock::new(state),
            local: SocketAddr::new(local.ip().to_canonical(), local.port()),
            received: Mutex::new(Received {
                buffers: vec![0; BUFFER_BYTES * BATCH_SIZE],
                metas: [RecvMeta::default(); BATCH_SIZE],
                next: 0,
                filled: 0,
                offset: 0,
            }),
            waiting: Arc::default(),
            scopes: Mutex::default(),
            dont_fragment: AtomicBool::new(false),
            collects_errors: AtomicBool::new(false),
            unreachable: Mutex::default(),
            lost_source: Mutex::default(),
            counters,
        })
    }

    /// Returns the address that it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Receives up to both limits. If that fell short of `max_entries`, `cx` is woken when there is
    /// more.
    pub fn receive(
        &self,
        max_entries: usize,
        max_bytes: usize,
        cx: &mut Context<'_>,
    ) -> (Vec<u8>, Vec<Entry>) {
        let mut payload = Vec::new();
        let mut entries = Vec::new();
        if max_bytes == 0 {
            return (payload, entries);
        }
        let max_bytes = max_bytes.min(MAX_RECEIVE_BYTES);
        let mut received = self.received.lock().expect("no panic under this lock");
        while entries.len() < max_entries {
            if entries.len() == MAX_RECEIVE_ENTRIES {
                cx.waker().wake_by_ref();
                break;
            }
            if received.next == received.filled && !self.fill(&mut received, cx) {
                break;
            }
            let room = max_bytes - payload.len();
            match received.take(room, &mut payload) {
                Taken::Entry(entry) => entries.push(entry),
                Taken::NoRoom if payload.is_empty() => {
                    received.skip_datagram();
                    self.counters.dropped_receive_limit.add(1);
                }
                Taken::NoRoom => {
                    // There may be more, which another call can receive at once.
                    cx.waker().wake_by_ref();
                    break;
                }
            }
        }
        let datagrams: usize = entries.iter().map(Entry::datagrams).sum();
        self.counters.datagrams_received.add(datagrams as u64);
        self.counters.bytes_received.add(payload.len() as u64);
        (payload, entries)
    }

    /// Sends the entries that are laid end to end in `payload`; their lengths add up to its length.
    /// If not all are accepted, `cx` is woken when there is room.
    ///
    /// Single datagrams in a row to one address leave in one system call.
    pub fn send(&self, payload: &[u8], entries: &[Entry], cx: &mut Context<'_>) -> Sent {
        let mut rest = payload;
        let mut accepted = 0;
        let mut too_long = false;
        let room = self.waiting.clone().into();
        let mut for_all = Context::from_waker(&room);
        while accepted < entries.len() {
            let run = Run::gather(&entries[accepted..], self.max_segments());
            let (contents, tail) = rest.split_at(run.bytes.min(rest.len()));
            match self.send_run(&entries[accepted], &run, contents, &mut for_all) {
                SendOutcome::Blocked => {
                    self.waiting.add(cx.waker());
                    break;
                }
                SendOutcome::Sent => {}
                SendOutcome::TooLong => too_long = true,
            }
            rest = tail;
            accepted += run.entries;
        }
        Sent { accepted, too_long }
    }

    /// See [`DatagramPort::longest`](crate::ports::DatagramPort::longest).
    pub fn longest(&self, remote: SocketAddr) -> Option<usize> {
        /// The header bytes of UDP and IP, without options or extensions: for IPv4 and for IPv6.
        const HEADERS: (usize, usize) = (8 + 20, 8 + 40);
        let remote = match self.outer(remote)? {
            // This form names the interface.
            SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_none() => v6.into(),
            _ => remote,
        };
        let headers = match remote.is_ipv4() {
            true => HEADERS.0,
            false => HEADERS.1,
        };
        let path = usize::try_from(options::path_mtu(remote)?).ok()?;
        Some(path.checked_sub(headers)?.min(MAX_SEND_BYTES))
    }

    /// See [`DatagramPort::set_dont_fragment`](crate::ports::DatagramPort::set_dont_fragment).
    pub fn set_dont_fragment(&self, on: bool) {
        if self.dont_fragment.swap(on, Ordering::Relaxed) != on {
            options::set_dont_fragment(&self.socket, on);
        }
    }

    /// Discards what has arrived, while there is no module to receive it. Takes one batch at most.
    pub fn discard(&self) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut received = self.received.lock().expect("no panic under this lock");
        if received.next == received.filled && !self.fill(&mut received, &mut cx) {
            return;
        }
        while received.next < received.filled {
            received.skip_datagram();
            self.counters.dropped_restarting.add(1);
        }
    }

    /// Reads a batch from the kernel. Returns false if there is nothing.
    fn fill(&self, received: &mut Received, cx: &mut Context<'_>) -> bool {
        for _ in 0..MAX_RECEIVE_ERRORS {
            let mut count = 0;
            let result = self.socket.poll_read(cx, || {
                if count > 0 {
                    return Ok(());
                }
                let mut buffers = received.buffers.chunks_exact_mut(BUFFER_BYTES);
                let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
                    std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
                self.counters.receive_calls.add(1);
                count =
                    self.state()
                        .recv((&self.socket).into(), &mut slices, &mut received.metas)?;
                // A short batch means that the next read would block, so it is not made. Where a
                // batch is one datagram, it cannot be short.
                if count < BATCH_SIZE {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(())
            });
            if count > 0 {
                self.learn_scopes(&received.metas[..count]);
                received.next = 0;
                received.offset = 0;
                received.filled = count;
                return true;
            }
            match result {
                Poll::Pending => return false,
                Poll::Ready(Err(error)) => {
                    tracing::trace!(target: "watm::server", "udp {}: receive: {error}", self.local);
                    self.collect_errors();
                }
                Poll::Ready(Ok(())) => {}
            }
        }
        cx.waker().wake_by_ref();
        false
    }

    fn send_run(
        &self,
        entry: &Entry,
        run: &Run,
        contents: &[u8],
        cx: &mut Context<'_>,
    ) -> SendOutcome {
        let Some(destination) = self.outer(entry.remote) else {
            self.counters
                .dropped_send_unreachable
                .add(run.segments as u64);
            return SendOutcome::Sent;
        };
        let lost = *self.lost_source.lock().expect("no panic under this lock");
        let source = entry.local.filter(|_| lost != entry.local);
        let mut src_ip = source.and_then(|local| self.outer_ip(local));
        let size = run.segment_size.max(1);
        let mut rest = contents;
        let mut gone = SendOutcome::Sent;
        // The kernel does not fragment the datagrams of a train.
        let mut one_by_one = false;
        loop {
            let limit = match one_by_one {
                true => 1,
                false => self.max_segments().min(MAX_SEND_BYTES / size),
            };
            let limit = limit.max(1);
            let (now, later) = rest.split_at(rest.len().min(size.saturating_mul(limit)));
            let segments = now.len().div_ceil(size).max(1);
            let transmit = Transmit {
                destination,
                ecn: entry.ecn,
                contents: now,
                segment_size: (segments > 1).then_some(size),
                src_ip,
            };
            match self.transmit(&transmit, cx) {
                Poll::Ready(Ok(())) => {
                    self.counters.datagrams_sent.add(segments as u64);
                    self.counters.bytes_sent.add(now.len() as u64);
                }
                Poll::Pending => {
                    if rest.len() == contents.len() {
                        return SendOutcome::Blocked;
                    }
                    // The head of the train is gone; the tail is dropped, or the head would be sent
                    // twice.
                    let lost = rest.len().div_ceil(size);
                    self.counters.dropped_send_buffer.add(lost as u64);
                    return gone;
                }
                // This call has found that segmentation does not work; the loop sends them one by
                // one.
                Poll::Ready(Err(_)) if segments > self.max_segments() => continue,
                // The address was this machine's when it was heard on.
                Poll::Ready(Err(error)) if src_ip.is_some() && options::is_lost_source(&error) => {
                    self.lose_source(entry.local);
                    src_ip = None;
                    continue;
                }
                Poll::Ready(Err(error)) if options::is_too_large(&error) => {
                    if self.dont_fragment.load(Ordering::Relaxed) {
                        gone = SendOutcome::TooLong;
                    } else if segments > 1 {
                        one_by_one = true;
                        continue;
                    }
                    self.count_lost(&error, segments as u64);
                }
                Poll::Ready(Err(error)) => self.count_lost(&error, segments as u64),
            }
            if later.is_empty() {
                return gone;
            }
            rest = later;
        }
    }

    /// Sends. If there is no room, `cx` is woken when there is.
    fn transmit(&self, transmit: &Transmit<'_>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write(cx, || {
            self.counters.send_calls.add(1);
            let sent = self.state().try_send((&self.socket).into(), transmit);
            match sent {
                // The error may be the ICMP answer to an earlier datagram, reported once.
                Err(error)
                    if error.kind() != io::ErrorKind::WouldBlock
                        && self.collects_errors.load(Ordering::Relaxed) =>
                {
                    self.collect_errors();
                    self.state().try_send((&self.socket).into(), transmit)
                }
                sent => sent,
            }
        })
    }

    /// Sends from any address in place of this one, until the network changes.
    fn lose_source(&self, source: Option<IpAddr>) {
        *self.lost_source.lock().expect("no panic under this lock") = source;
        // quinn-udp has taken the error for one that forbids trains, so it starts anew.
        if let Ok(state) = UdpSocketState::new((&self.socket).into()) {
            *self.state.write().expect("no panic under this lock") = state;
            options::set_dont_fragment(&self.socket, self.dont_fragment.load(Ordering::Relaxed));
        }
    }

    /// See [`DatagramPort::take_unreachable`](crate::ports::DatagramPort::take_unreachable). The first
    /// call starts to listen for ICMP errors.
    pub fn take_unreachable(&self) -> Vec<IpAddr> {
        if !self.collects_errors.swap(true, Ordering::Relaxed) {
            options::collect_errors(&self.state(), (&self.socket).into());
        }
        self.collect_errors();
        std::mem::take(&mut *self.unreachable.lock().expect("no panic under this lock"))
    }

    /// Takes the ICMP errors from the kernel.
    fn collect_errors(&self) {
        if !self.collects_errors.load(Ordering::Relaxed) {
            return;
        }
        let state = self.state();
        let mut unreachable = self.unreachable.lock().expect("no panic under this lock");
        for from in options::unreachable(&state, &self.socket, MAX_ERRORS) {
            if unreachable.len() < MAX_UNREACHABLE && !unreachable.contains(&from) {
                unreachable.push(from);
            }
        }
    }

    /// Notes that the machine's addresses may have changed.
    pub fn network_changed(&self) {
        *self.lost_source.lock().expect("no panic under this lock") = None;
    }

    fn state(&self) -> RwLockReadGuard<'_, UdpSocketState> {
        self.state.read().expect("no panic under this lock")
    }

    /// Returns the most datagrams of a train.
    fn max_segments(&self) -> usize {
        self.state().max_gso_segments()
    }

    fn count_lost(&self, error: &io::Error, datagrams: u64) {
        let counter = match error.kind() {
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::ConnectionRefused => &self.counters.dropped_send_unreachable,
            _ if options::is_too_large(error) => &self.counters.dropped_send_too_large,
            _ => &self.counters.dropped_send_other,
        };
        counter.add(datagrams);
        tracing::trace!(target: "watm::server", "udp {}: send: {error}", self.local);
    }

    fn learn_scopes(&self, metas: &[RecvMeta]) {
        for meta in metas {
            if let SocketAddr::V6(remote) = meta.addr
                && remote.scope_id() != 0
            {
                let mut scopes = self.scopes.lock().expect("no panic under this lock");
                if scopes.len() >= MAX_SCOPES {
                    scopes.clear();
                }
                scopes.insert(*remote.ip(), remote.scope_id());
            }
        }
    }

    /// Returns the address in this socket's family; `None` if it cannot be reached.
    fn outer(&self, remote: SocketAddr) -> Option<SocketAddr> {
        if remote.port() == 0 {
            return None;
        }
        match self.outer_ip(remote.ip())? {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                let scopes = self.scopes.lock().expect("no panic under this lock");
                let scope = *scopes.get(&ip)?;
                Some(SocketAddrV6::new(ip, remote.port(), 0, scope).into())
            }
            ip => Some(SocketAddr::new(ip, remote.port())),
        }
    }

    fn outer_ip(&self, ip: IpAddr) -> Option<IpAddr> {
        match (self.local.is_ipv6(), ip) {
            (true, IpAddr::V4(ip)) => Some(ip.to_ipv6_mapped().into()),
            (false, IpAddr::V6(_)) => None,
            _ => Some(ip),
        }
    }
}

impl Entry {
    /// Returns the number of datagrams.
    pub fn datagrams(&self) -> usize {
        match self.segment_size {
            Some(size) if size > 0 => self.len.div_ceil(usize::from(size)).max(1),
            _ => 1,
        }
    }
}

enum Taken {
    Entry(Entry),
    NoRoom,
}

impl Received {
    /// Moves the next buffer to `payload`, or as many of its whole datagrams as there is room for.
    fn take(&mut self, room: usize, payload: &mut Vec<u8>) -> Taken {
        let meta = self.metas[self.next];
        let left = meta.len - self.offset;
        let len = if left <= room {
            left
        } else {
            let whole = room - room % meta.stride.max(1);
            if whole == 0 || meta.stride == 0 {
                return Taken::NoRoom;
            }
            whole
        };
        let start = self.next * BUFFER_BYTES + self.offset;
        payload.extend_from_slice(&self.buffers[start..start + len]);
        self.advance(len);
        Taken::Entry(Entry {
            len,
            segment_size: (len > meta.stride)
                .then(|| u16::try_from(meta.stride).ok())
                .flatten(),
            remote: SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port()),
            local: meta.dst_ip.map(|ip| ip.to_canonical()),
            ecn: meta.ecn,
        })
    }

    fn skip_datagram(&mut self) {
        let meta = self.metas[self.next];
        self.advance(meta.stride.max(1));
    }

    fn advance(&mut self, bytes: usize) {
        self.offset += bytes;
        if self.offset >= self.metas[self.next].len {
            self.next += 1;
            self.offset = 0;
        }
    }
}

/// Entries that leave together.
struct Run {
    entries: usize,
    bytes: usize,
    segment_size: usize,
    segments: usize,
}

impl Run {
    /// Returns the longest run that begins with the first entry. A train is a run of its own. So
    /// are single datagrams of one size to one address, the last of which may be shorter.
    fn gather(entries: &[Entry], max_segments: usize) -> Run {
        let first = &entries[0];
        let mut run = Run {
            entries: 1,
            bytes: first.len,
            segment_size: first.segment_size.map_or(first.len, usize::from),
            segments: first.datagrams(),
        };
        if run.segments > 1 || first.len == 0 {
            return run;
        }
        run.segment_size = first.len;
        for next in &entries[1..] {
            let same = next.remote == first.remote
                && next.local == first.local
                && next.ecn == first.ecn
                && next.datagrams() == 1
                && (1..=first.len).contains(&next.len);
            if !same || run.segments == max_segments || run.bytes + next.len > MAX_SEND_BYTES {
                break;
            }
            run.entries += 1;
            run.segments += 1;
            run.bytes += next.len;
            if next.len < first.len {
                break;
            }
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready::{ReadyList, Token};

    #[test]
    fn waiters_beyond_what_a_server_has_ask_again() {
        let (waiting, list) = (Arc::<Waiting>::default(), Arc::<ReadyList>::default());
        let many = MAX_WAITING as u64 + 10;
        for token in 0..many {
            waiting.add(&Token::new(token, &list).into());
        }
        let mut listed = Vec::new();
        list.take(&mut listed);
        assert_eq!(listed, (0..10).collect::<Vec<u64>>());
        waiting.wake();
        list.take(&mut listed);
        assert_eq!(listed.len() as u64, many);
    }
}
