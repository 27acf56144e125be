//! Datagram flows: queues of whole datagrams between a module and the application. `component` holds
//! the module's end.

mod joined;

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use joined::Joined;

use super::KEPT_CAPACITY;
use super::locked::{FlowState, Locked};
use crate::account::Charge;
use crate::counters::Counters;
use crate::quota::Permit;
use crate::ready::{Token, WakeBatch, register};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{ErrorCode, FlowInfo, Limits};

/// The longest datagram, in bytes: the most that fits an IPv6 packet without extension (RFC 8200
/// section 3) and a UDP length field (RFC 768).
const MAX_DATAGRAM: usize = 65_527;

/// The bytes that may wait in each direction of a flow that carries a tunnel, and the usual bytes of a
/// datagram in it.
const TUNNEL_BYTES: usize = 4 << 20;
const FULL_PACKET: usize = 1024;

/// The application's end of a datagram flow. Dropping it closes it.
///
/// All methods take `&self` and may be called from any thread. One waker is kept for
/// receiving and one for sending: the last poll's.
pub struct DatagramFlow {
    shared: Arc<Shared>,
    /// A resource that must live as long as the flow.
    held: Option<Arc<dyn Any + Send + Sync>>,
}

/// The module's end of a datagram flow.
pub struct GuestDatagrams {
    shared: Arc<Shared>,
    /// True once the instance has failed, so that dropping this is no regular end.
    failed: Arc<AtomicBool>,
}

struct Shared {
    info: FlowInfo,
    token: Arc<Token>,
    counters: Arc<Counters>,
    state: Mutex<State>,
    _permit: Permit,
}

/// The memory of both ends of a flow, in bytes, without its contents and its names.
pub(super) const FLOW_BYTES: usize = 1024;

struct State {
    /// The memory charged: the queues' contents, and `base`.
    charge: Charge,
    base: usize,
    /// The most datagrams that wait in each direction, and their bytes.
    max_datagrams: usize,
    max_bytes: usize,
    /// From the module to the application.
    inbound: Queue,
    /// From the application to the module.
    outbound: Queue,
    guest_ended: bool,
    app_closed: bool,
    /// The error of the application's calls.
    error: Option<ErrorCode>,
    /// True if the module's last receive fell short; `write_armed` for its last send.
    read_armed: bool,
    write_armed: bool,
    /// The longest datagram that the application should send, in bytes, if known.
    longest: Option<usize>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The application's socket, if it is one.
    joined: Option<Box<Joined>>,
}

#[derive(Default)]
struct Queue {
    datagrams: VecDeque<Vec<u8>>,
    bytes: usize,
}

/// Makes both ends of a flow. `charge` is the result of [`charge`](super::charge()). `failed` is set before a
/// failed instance is dropped.
pub fn pair(
    info: FlowInfo,
    token: Arc<Token>,
    limits: &Limits,
    permit: Permit,
    counters: Arc<Counters>,
    failed: Arc<AtomicBool>,
    charge: Charge,
) -> (GuestDatagrams, DatagramFlow) {
    let shared = Arc::new(Shared {
        info,
        token,
        counters,
        state: Mutex::new(State {
            max_datagrams: limits.datagram_queue,
            max_bytes: limits.datagram_queue_bytes,
            base: charge.bytes(),
            charge,
            inbound: Queue::default(),
            outbound: Queue::default(),
            guest_ended: false,
            app_closed: false,
            error: None,
            read_armed: true,
            write_armed: false,
            longest: None,
            reader: None,
            writer: None,
            joined: None,
        }),
        _permit: permit,
    });
    let guest = GuestDatagrams {
        shared: shared.clone(),
        failed,
    };
    (guest, DatagramFlow { shared, held: None })
}

impl DatagramFlow {
    /// Returns what is known of the flow.
    pub fn info(&self) -> &FlowInfo {
        &self.shared.info
    }

    /// Widens the queues to those of a system's socket, for a flow that carries a tunnel: a tunnel
    /// sends and receives in bursts. Never narrows them.
    pub(crate) fn carry_tunnel(&self) {
        let mut state = self.shared.lock();
        state.max_datagrams = state.max_datagrams.max(TUNNEL_BYTES / FULL_PACKET);
        state.max_bytes = state.max_bytes.max(TUNNEL_BYTES);
    }

    /// Takes one datagram, whole; it may be empty. Returns `None` once the flow has ended. Wakes
    /// when the module sends, and when it ends the flow.
    pub fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, ErrorCode>> {
        let mut state = self.shared.lock();
        if let Some(datagram) = state.inbound.pop() {
            let notify =
                state.write_armed && state.inbound.datagrams.len() <= state.max_datagrams / 2;
            if notify {
                state.write_armed = false;
            }
            drop(state);
            if notify {
                self.shared.token.notify();
            }
            return Poll::Ready(Ok(Some(datagram)));
        }
        if let Some(error) = &state.error {
            return Poll::Ready(Err(error.clone()));
        }
        if state.guest_ended || state.app_closed {
            return Poll::Ready(Ok(None));
        }
        register(&mut state.reader, cx);
        Poll::Pending
    }

    /// Queues one datagram for the module. Returns false if the queue is full: the datagram is
    /// dropped and counted as `host.dropped.flow_to_module`.
    ///
    /// Fails with [`ErrorCode::DatagramTooLarge`] above 65527 bytes, with
    /// [`ErrorCode::InvalidState`] after `close`, and with
    /// [`ErrorCode::ConnectionAborted`] when the module has ended the flow.
    pub fn send(&self, datagram: &[u8]) -> Result<bool, ErrorCode> {
        if datagram.len() > MAX_DATAGRAM {
            return Err(ErrorCode::DatagramTooLarge);
        }
        let mut state = self.shared.lock();
        state.check_send()?;
        if !state.has_room(&state.outbound, datagram.len()) {
            drop(state);
            self.shared.counters.dropped_to_module.add(1);
            return Ok(false);
        }
        state.outbound.push(datagram.to_vec());
        let notify = std::mem::take(&mut state.read_armed);
        drop(state);
        if notify {
            self.shared.token.notify();
        }
        Ok(true)
    }

    /// Returns ready when the queue to the module has room for a datagram of any size that a network
    /// carries unfragmented. Fails if the flow is dead. Wakes when the module receives.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<Result<(), ErrorCode>> {
        /// The longest unfragmented datagram that is common, in bytes: jumbo frames included.
        const USUAL: usize = 9000;
        let mut state = self.shared.lock();
        if let Err(error) = state.check_send() {
            return Poll::Ready(Err(error));
        }
        // An empty queue always has room, because nothing would report room later.
        if state.outbound.datagrams.is_empty() || state.has_room(&state.outbound, USUAL) {
            return Poll::Ready(Ok(()));
        }
        register(&mut state.writer, cx);
        Poll::Pending
    }

    /// Returns the longest datagram that is carried whole, in bytes, as the module last reported it;
    /// `None` if it has not. Longer ones are carried in fragments, or dropped.
    pub fn longest(&self) -> Option<usize> {
        self.shared.lock().longest
    }

    /// Receives, as [`poll_receive`](DatagramFlow::poll_receive). Dropping the future loses nothing.
    pub async fn receive(&self) -> Result<Option<Vec<u8>>, ErrorCode> {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// Waits for room, as [`poll_writable`](DatagramFlow::poll_writable).
    pub async fn writable(&self) -> Result<(), ErrorCode> {
        poll_fn(|cx| self.poll_writable(cx)).await
    }

    /// Keeps `needed` for as long as the flow exists.
    #[doc(hidden)]
    pub fn holding(mut self, needed: Arc<dyn Any + Send + Sync>) -> DatagramFlow {
        self.held = Some(needed);
        self
    }

    /// Ends the flow: queued datagrams are still delivered to the module, those that arrive are
    /// discarded, and a pending receive gets `None`. Idempotent.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        if state.app_closed {
            return;
        }
        state.app_closed = true;
        state.inbound.clear();
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        self.shared.token.notify();
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Drop for DatagramFlow {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for DatagramFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramFlow")
            .field("info", &self.shared.info)
            .finish_non_exhaustive()
    }
}

impl GuestDatagrams {
    /// Receives, as `datagram-flow.receive`. Returns the payload and the lengths.
    #[doc(hidden)]
    pub fn receive(
        &self,
        max_datagrams: usize,
        max_bytes: usize,
        wakers: &mut WakeBatch,
    ) -> Option<(Vec<u8>, Vec<u32>)> {
        let mut taken = Taken {
            max_datagrams,
            max_bytes,
            payload: Vec::new(),
            lengths: Vec::new(),
        };
        let mut state = self.shared.lock();
        if state.outbound.datagrams.is_empty() && state.app_closed {
            return None;
        }
        while let Some(next) = state.outbound.datagrams.front() {
            if next.len() > max_bytes {
                // The datagram can never fit; holding it back would block those behind it.
                self.shared.counters.dropped_to_module.add(1);
            } else if !taken.take(next) {
                break;
            }
            state.outbound.pop();
        }
        self.shared.receive_upstream(&mut state, &mut taken);
        let short = !taken.is_full();
        state.read_armed = short;
        wakers.add(state.writer.take());
        let notify = short && (!state.outbound.datagrams.is_empty() || state.app_closed);
        drop(state);
        if notify {
            self.shared.token.notify();
        }
        Some((taken.payload, taken.lengths))
    }

    /// Sends, as `datagram-flow.send`.
    #[doc(hidden)]
    pub fn send(
        &self,
        payload: &[u8],
        lengths: &[u32],
        wakers: &mut WakeBatch,
    ) -> Result<usize, ErrorCode> {
        let total: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
        if total != payload.len() as u64 {
            return Err(ErrorCode::InvalidArgument);
        }
        if lengths.iter().any(|length| *length as usize > MAX_DATAGRAM) {
            return Err(ErrorCode::DatagramTooLarge);
        }
        let mut rest = payload;
        let mut count = 0;
        let mut state = self.shared.lock();
        if state.app_closed {
            return Err(ErrorCode::ConnectionAborted);
        }
        for length in lengths {
            let (datagram, tail) = rest.split_at(*length as usize);
            if !state.send_upstream(datagram) {
                if state.has_room(&state.inbound, datagram.len()) {
                    state.inbound.push(datagram.to_vec());
                } else if state.inbound.datagrams.is_empty() {
                    // The host has no room at all, and nothing would report room later.
                    self.shared.counters.dropped_to_application.add(1);
                } else {
                    break;
                }
            }
            rest = tail;
            count += 1;
        }
        state.write_armed = count < lengths.len();
        if !state.inbound.datagrams.is_empty() {
            wakers.add(state.reader.take());
        }
        Ok(count)
    }

    /// Sets the longest datagram, as `datagram-flow.set-longest`.
    #[doc(hidden)]
    pub fn set_longest(&self, bytes: usize) {
        self.shared.lock().longest = Some(bytes);
    }
}

/// The datagrams that the module gets at once.
struct Taken {
    max_datagrams: usize,
    max_bytes: usize,
    payload: Vec<u8>,
    lengths: Vec<u32>,
}

impl Taken {
    fn is_full(&self) -> bool {
        self.lengths.len() >= self.max_datagrams
    }

    /// Takes a datagram. Returns false if there is no room.
    fn take(&mut self, datagram: &[u8]) -> bool {
        let room = self.max_bytes - self.payload.len();
        if self.is_full() || datagram.len() > room {
            return false;
        }
        self.payload.extend_from_slice(datagram);
        self.lengths
            .push(u32::try_from(datagram.len()).unwrap_or(u32::MAX));
        true
    }
}

/// Ends the flow, or resets it if the instance failed.
impl Drop for GuestDatagrams {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.guest_ended = true;
        state.outbound.clear();
        if self.failed.load(Ordering::Relaxed) {
            state.inbound.clear();
            state.error = Some(ErrorCode::ConnectionReset);
        }
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Shared {
    fn lock(&self) -> Locked<'_, State> {
        Locked(self.state.lock().expect("no panic under this lock"))
    }
}

impl FlowState for State {
    fn waiting(&self) -> (usize, bool) {
        let bytes = self.inbound.memory() + self.outbound.memory();
        let waits = self.inbound.bytes + self.outbound.bytes > 0;
        (bytes, waits)
    }

    fn charge(&mut self) -> (&mut Charge, usize) {
        (&mut self.charge, self.base)
    }
}

impl State {
    /// Returns true if there is room. An empty queue takes a datagram of any size, unless too little
    /// memory is left for the module.
    fn has_room(&self, queue: &Queue, bytes: usize) -> bool {
        let most = match queue.datagrams.is_empty() {
            true => MAX_DATAGRAM,
            false => self.max_bytes,
        };
        queue.datagrams.len() < self.max_datagrams && queue.bytes + bytes <= self.charge.share(most)
    }

    fn check_send(&self) -> Result<(), ErrorCode> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if self.app_closed {
            return Err(ErrorCode::InvalidState);
        }
        if self.guest_ended {
            return Err(ErrorCode::ConnectionAborted);
        }
        Ok(())
    }
}

impl Queue {
    fn push(&mut self, datagram: Vec<u8>) {
        self.bytes += datagram.len();
        self.datagrams.push_back(datagram);
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let datagram = self.datagrams.pop_front()?;
        self.bytes -= datagram.len();
        if self.datagrams.is_empty() && self.datagrams.capacity() > KEPT_CAPACITY {
            self.datagrams = VecDeque::new();
        }
        Some(datagram)
    }

    fn clear(&mut self) {
        *self = Queue::default();
    }

    /// Returns the memory that it uses, in bytes.
    fn memory(&self) -> usize {
        /// The bytes that the allocator adds to each datagram.
        const BESIDE: usize = 16;
        let entries = self.datagrams.capacity() * size_of::<Vec<u8>>();
        self.bytes + self.datagrams.len() * BESIDE + entries
    }
}
