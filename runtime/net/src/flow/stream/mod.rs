//! Stream flows: two byte queues between a module and the application. `component` and `water` hold
//! the module's end.

mod direct;
mod guest_io;
mod joined;

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

pub use direct::CloseWatch;
pub use guest_io::GuestIo;
use joined::Joined;

use super::KeepAlive;
use super::chunks::Chunks;
use super::locked::{FlowState, Locked};
use crate::account::{Account, Charge, LEAST};
use crate::quota::Permit;
use crate::ready::{WakeBatch, register};
use crate::sync::{Mutex, MutexGuard};
use crate::{ErrorCode, FlowInfo, Limits};

/// The application's end of a stream flow. Dropping it closes it.
///
/// All methods take `&self` and may be called from any thread. One waker is kept for
/// reading and one for writing: the last poll's.
pub struct StreamFlow {
    shared: Arc<Shared>,
    /// Resources that are kept until the application drops the flow.
    held: Mutex<Option<KeepAlive>>,
}

/// The module's end of a stream flow.
pub struct GuestStream {
    shared: Arc<Shared>,
}

struct Shared {
    info: FlowInfo,
    /// The module's waker: a token of its instance, or the task that waits in it.
    token: Waker,
    capacity: usize,
    high_water: usize,
    low_water: usize,
    state: Mutex<State>,
    _permit: Option<Permit>,
}

/// The memory of both ends of a flow, in bytes, without its contents and its names.
pub(super) const FLOW_BYTES: usize = 1536;

/// Charges for a flow that another limit bounds; never fails.
pub fn charge_anyway(info: &FlowInfo, account: &Arc<Account>) -> Charge {
    account.charge_anyway(FLOW_BYTES + info.kept_bytes())
}

struct State {
    /// The memory charged: the queues' contents, and `base`.
    charge: Charge,
    base: usize,
    /// From the module to the application.
    inbound: Chunks,
    /// From the application to the module.
    outbound: Chunks,
    /// True if the module has stopped writing.
    guest_finished: bool,
    /// True if the module has stopped reading.
    guest_read_closed: bool,
    /// True if the module has dropped its end.
    guest_gone: bool,
    /// True if the module has read the end.
    guest_saw_end: bool,
    /// True if the module had all that the application wrote when it stopped reading, and has not
    /// failed since.
    guest_drained: bool,
    /// The errors of the application's reads and writes.
    read_error: Option<ErrorCode>,
    write_error: Option<ErrorCode>,
    /// True if the application has stopped writing.
    app_finished: bool,
    /// True if the application has stopped reading.
    app_read_closed: bool,
    /// The error of the module's calls, after the application aborted.
    abort: Option<ErrorCode>,
    /// True if the module's last read fell short; `write_armed` for its last write.
    read_armed: bool,
    write_armed: bool,
    /// True from when the application's writes went above the high-water mark until they are at or
    /// below the low one.
    paused: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The error that the application reads after all that the module wrote, in place of the end.
    end: Option<ErrorCode>,
    /// The waker of the task that waits for the application to drop the flow.
    closer: Option<Waker>,
    /// The waker of the task that waits for the module to drop it.
    survivor: Option<Waker>,
    /// The application's socket, if it is one.
    joined: Option<Box<Joined>>,
}

/// Makes both ends of a flow, which is counted if there is a permit. `charge` is the result of
/// [`charge`](super::charge()).
pub fn pair(
    info: FlowInfo,
    token: impl Into<Waker>,
    limits: &Limits,
    permit: impl Into<Option<Permit>>,
    charge: Charge,
) -> (GuestStream, StreamFlow) {
    let shared = Arc::new(Shared {
        info,
        token: token.into(),
        capacity: limits.stream_buffer_bytes,
        high_water: limits.write_high_water,
        low_water: limits.write_low_water,
        state: Mutex::new(State::new(charge)),
        _permit: permit.into(),
    });
    let guest = GuestStream {
        shared: shared.clone(),
    };
    let held = Mutex::default();
    (guest, StreamFlow { shared, held })
}

impl StreamFlow {
    /// Returns what is known of the flow.
    pub fn info(&self) -> &FlowInfo {
        &self.shared.info
    }

    /// Takes what has arrived, up to `max` bytes. Empty at the end of the stream, each time, and
    /// after [`close`](StreamFlow::close). Wakes when the module writes, finishes or resets.
    pub fn poll_read_some(
        &self,
        cx: &mut Context<'_>,
        max: usize,
    ) -> Poll<Result<Vec<u8>, ErrorCode>> {
        let mut state = self.shared.lock();
        if state.app_read_closed {
            return Poll::Ready(Ok(Vec::new()));
        }
        if let Some(error) = &state.read_error {
            return Poll::Ready(Err(error.clone()));
        }
        if !state.inbound.is_empty() {
            let data = state.inbound.take(max);
            // Half of the queue is free: enough to be worth a call of the module.
            let notify = state.write_armed && state.inbound.len() <= self.shared.capacity / 2;
            if notify {
                state.write_armed = false;
            }
            drop(state);
            if notify {
                self.shared.token.wake_by_ref();
            }
            return Poll::Ready(Ok(data.into_vec()));
        }
        if state.guest_finished {
            return Poll::Ready(state.end.clone().map_or(Ok(Vec::new()), Err));
        }
        register(&mut state.reader, cx);
        Poll::Pending
    }

    /// Queues all of `data` for the module, even above the high-water mark: a caller with more to
    /// write waits for [`poll_drained`](StreamFlow::poll_drained) first.
    ///
    /// Fails with [`ErrorCode::InvalidState`] after `shutdown_write` or `close`, with
    /// [`ErrorCode::ConnectionReset`] or a similar code once the flow is dead.
    pub fn queue_write(&self, data: &[u8]) -> Result<(), ErrorCode> {
        let state = self.shared.lock();
        state.check_write()?;
        self.shared.queue(state, data);
        Ok(())
    }

    /// Returns ready, unless writes went above the high-water mark and the module has not yet
    /// brought them down to the low one. Fails if the flow is dead. Wakes when the module reads or
    /// resets.
    pub fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<Result<(), ErrorCode>> {
        let mut state = self.shared.lock();
        if let Some(error) = &state.write_error {
            return Poll::Ready(Err(error.clone()));
        }
        if !state.paused || state.guest_read_closed {
            return Poll::Ready(Ok(()));
        }
        register(&mut state.writer, cx);
        Poll::Pending
    }

    /// Returns ready once the module has taken all that was queued before
    /// [`shutdown_write`](StreamFlow::shutdown_write) or [`close`](StreamFlow::close). Fails if the
    /// flow died before. Shares its waker with [`poll_drained`](StreamFlow::poll_drained). Wakes
    /// when the module reads or resets.
    pub fn poll_flushed(&self, cx: &mut Context<'_>) -> Poll<Result<(), ErrorCode>> {
        let mut state = self.shared.lock();
        match &state.write_error {
            Some(error) if !state.guest_drained => return Poll::Ready(Err(error.clone())),
            _ => {}
        }
        if state.guest_read_closed || state.guest_saw_end {
            return Poll::Ready(Ok(()));
        }
        register(&mut state.writer, cx);
        Poll::Pending
    }

    /// Ends the writing half: the module sees the end after what is queued. Idempotent. Fails if
    /// the flow is dead, unless the module has only stopped reading after it got everything that
    /// was written.
    pub fn shutdown_write(&self) -> Result<(), ErrorCode> {
        let mut state = self.shared.lock();
        match &state.write_error {
            Some(error) if !state.guest_drained => return Err(error.clone()),
            _ => {}
        }
        state.app_finished = true;
        let notify = std::mem::take(&mut state.read_armed);
        drop(state);
        if notify {
            self.shared.token.wake_by_ref();
        }
        Ok(())
    }

    /// Closes the flow gracefully: queued bytes are still delivered, then the end. Bytes that arrive
    /// are discarded, and a pending read gets the end. Idempotent.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        if state.app_finished && state.app_read_closed {
            return;
        }
        state.app_finished = true;
        state.app_read_closed = true;
        state.inbound.clear();
        let wakers = state.take_wakers();
        let closer = state.closer.take();
        drop(state);
        self.shared.token.wake_by_ref();
        wake(wakers);
        closer.into_iter().for_each(Waker::wake);
        self.release();
    }

    /// Returns the reason why the module broke the flow off, if it did:
    /// [`ErrorCode::ConnectionReset`] if its own other end did so.
    pub fn broken_off(&self) -> Option<ErrorCode> {
        self.shared.lock().end.clone()
    }

    /// Ends the flow at once: the module's calls and the application's fail with `reason`. Does
    /// nothing to a flow that is closed or dead.
    pub fn abort(&self, reason: ErrorCode) {
        let mut state = self.shared.lock();
        if state.abort.is_some() || state.write_error.is_some() {
            return;
        }
        state.fail(&reason);
        state.abort = Some(reason);
        let wakers = state.take_wakers();
        let closer = state.closer.take();
        drop(state);
        self.shared.token.wake_by_ref();
        wake(wakers);
        closer.into_iter().for_each(Waker::wake);
        self.release();
    }

    /// Keeps `held` until the flow is gone: until the application and the module have dropped it, or
    /// the module's time to do so is over.
    #[doc(hidden)]
    pub fn hold(&self, held: KeepAlive) {
        *self.held() = Some(held);
    }

    /// Closes the flow, and waits until the held resources are released.
    #[doc(hidden)]
    pub async fn close_and_release(self) {
        let held = self.held().take();
        self.close();
        if let Some(held) = held {
            self.shared.outlast(held).await;
        }
    }

    /// Returns the time that the module has to pass on what was written, if a resource is held for
    /// that.
    #[doc(hidden)]
    pub fn grace(&self) -> Option<Duration> {
        self.held().as_ref().map(|held| held.grace)
    }

    /// Releases the held resources, when it is time.
    fn release(&self) {
        let held = self.held().take();
        if let Some(held) = held {
            let shared = self.shared.clone();
            let runtime = held.runtime.clone();
            runtime.spawn(async move { shared.outlast(held).await });
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<KeepAlive>> {
        self.held.lock().expect("no panic under this lock")
    }

    /// Returns the number of bytes written and not yet taken by the module.
    pub fn buffered_write(&self) -> usize {
        self.shared.lock().outbound.len()
    }
}

impl Drop for StreamFlow {
    fn drop(&mut self) {
        self.close();
        self.release();
    }
}

impl fmt::Debug for StreamFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamFlow")
            .field("info", &self.shared.info)
            .finish_non_exhaustive()
    }
}

impl AsyncRead for StreamFlow {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_read_into(cx, buffer).map_err(io::Error::from)
    }
}

impl AsyncWrite for StreamFlow {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.shared.lock();
        state.check_write()?;
        // Writes stop at the mark, so that the module can take all of it at once.
        let room = state.room(&state.outbound, self.shared.high_water.max(1));
        state.paused |= room == 0;
        if state.paused && !state.guest_read_closed {
            register(&mut state.writer, cx);
            return Poll::Pending;
        }
        let count = data.len().min(room);
        self.shared.queue(state, &data[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_write().map_err(io::Error::from))
    }
}

impl GuestStream {
    /// Reads, as `byte-stream.read`.
    #[doc(hidden)]
    pub fn read(&self, max: usize, wakers: &mut WakeBatch) -> Result<Option<Vec<u8>>, ErrorCode> {
        let mut state = self.shared.lock();
        if let Some(reason) = &state.abort {
            return Err(reason.clone());
        }
        if state.guest_read_closed {
            return Ok(None);
        }
        if state.reads_upstream() {
            let read = state.read_upstream(max, &self.shared.token);
            if !matches!(read, Ok(None)) {
                wakers.add(read.is_err().then(|| state.reader.take()).flatten());
                return read;
            }
        }
        if state.outbound.is_empty() && state.app_finished {
            state.guest_saw_end = true;
            wakers.add(state.writer.take());
            return Ok(None);
        }
        let data = state.outbound.take(max);
        let short = data.len() < max;
        state.read_armed = short;
        if state.paused && state.outbound.len() <= self.shared.low_water {
            state.paused = false;
            wakers.add(state.writer.take());
        }
        // The end can be read already.
        let notify = short && state.app_finished;
        drop(state);
        if notify {
            self.shared.token.wake_by_ref();
        }
        Ok(Some(data.into_vec()))
    }

    /// Writes, as `byte-stream.write`.
    #[doc(hidden)]
    pub fn write(&self, data: Vec<u8>, wakers: &mut WakeBatch) -> Result<usize, ErrorCode> {
        let mut state = self.shared.lock();
        if let Some(reason) = &state.abort {
            return Err(reason.clone());
        }
        if state.guest_finished {
            return Err(ErrorCode::InvalidState);
        }
        if state.app_read_closed {
            return Err(ErrorCode::ConnectionAborted);
        }
        let written = state.write_upstream(&data);
        let written = written.inspect_err(|_| wakers.add(state.reader.take()))?;
        let rest = data.len() - written;
        let room = state.room(&state.inbound, self.shared.capacity);
        let queued = rest.min(room);
        state.write_armed = queued < rest;
        if queued > 0 {
            match queued == data.len() {
                true => state.inbound.push_vec(data),
                // A copy of the rest does not keep the memory of the whole.
                false => state.inbound.push(&data[written..written + queued]),
            }
            state.count_received(queued);
            wakers.add(state.reader.take());
        }
        Ok(written + queued)
    }

    /// Shuts directions, as `byte-stream.shutdown`.
    #[doc(hidden)]
    pub fn shutdown(&self, read: bool, write: bool, wakers: &mut WakeBatch) {
        let mut state = self.shared.lock();
        if write && !state.guest_finished {
            state.guest_finished = true;
            wakers.add(state.reader.take());
        }
        if read && !state.guest_read_closed {
            state.close_read();
            if !state.guest_saw_end {
                state
                    .write_error
                    .get_or_insert(ErrorCode::ConnectionAborted);
            }
            wakers.add(state.writer.take());
        }
    }

    /// Resets, as `byte-stream.reset`. The application reads what was written before, and then the
    /// reason; its writes fail at once.
    #[doc(hidden)]
    pub fn reset(&self, reason: &ErrorCode, wakers: &mut WakeBatch) {
        let mut state = self.shared.lock();
        state.break_off(reason);
        state.guest_finished = true;
        state.guest_read_closed = true;
        state.guest_drained = false;
        let [reader, writer] = state.take_wakers();
        drop(state);
        wakers.add(reader);
        wakers.add(writer);
    }

    /// Returns the address that the flow comes from.
    #[doc(hidden)]
    pub fn source(&self) -> std::net::SocketAddr {
        self.shared.info.source
    }
}

/// Resets a flow that is not finished.
impl Drop for GuestStream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let reset = ErrorCode::ConnectionReset;
        if !state.guest_finished {
            state.break_off(&reset);
        } else if !state.guest_read_closed && !state.guest_saw_end {
            state.write_error.get_or_insert(reset);
        }
        state.guest_finished = true;
        state.guest_read_closed = true;
        state.guest_gone = true;
        state.outbound.clear();
        let wakers = state.take_wakers();
        let survivor = state.survivor.take();
        drop(state);
        wake(wakers);
        survivor.into_iter().for_each(Waker::wake);
    }
}

impl Shared {
    fn lock(&self) -> Locked<'_, State> {
        Locked(self.state.lock().expect("no panic under this lock"))
    }

    /// Keeps `held` until the module has dropped its end, or its time to do so is over. Bytes that
    /// have not left by then are lost.
    async fn outlast(&self, held: KeepAlive) {
        let gone = poll_fn(|cx| self.poll_guest_gone(cx));
        let _ = timeout(held.grace * 2, gone).await;
        drop(held);
    }

    /// Returns ready once the module has dropped its end. Has one waiter.
    fn poll_guest_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.guest_gone {
            return Poll::Ready(());
        }
        register(&mut state.survivor, cx);
        Poll::Pending
    }

    /// Queues what the application writes, and wakes the module.
    fn queue(&self, mut state: Locked<'_, State>, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        state.outbound.push(data);
        state.paused |= state.outbound.len() > state.charge.share(self.high_water);
        let notify = std::mem::take(&mut state.read_armed);
        drop(state);
        if notify {
            self.token.wake_by_ref();
        }
    }
}

impl FlowState for State {
    fn waiting(&self) -> (usize, bool) {
        let bytes = self.inbound.memory() + self.outbound.memory();
        let waits = !self.inbound.is_empty() || !self.outbound.is_empty();
        (bytes, waits)
    }

    fn charge(&mut self) -> (&mut Charge, usize) {
        (&mut self.charge, self.base)
    }
}

impl State {
    fn new(charge: Charge) -> State {
        State {
            base: charge.bytes(),
            charge,
            inbound: Chunks::default(),
            outbound: Chunks::default(),
            guest_finished: false,
            guest_read_closed: false,
            guest_gone: false,
            guest_saw_end: false,
            guest_drained: false,
            read_error: None,
            write_error: None,
            app_finished: false,
            app_read_closed: false,
            abort: None,
            read_armed: true,
            write_armed: false,
            paused: false,
            reader: None,
            writer: None,
            end: None,
            closer: None,
            survivor: None,
            joined: None,
        }
    }

    /// Returns the bytes that one of the queues takes, which holds `most` bytes at most.
    fn room(&self, queue: &Chunks, most: usize) -> usize {
        let share = self.charge.share(most);
        match queue.is_empty() {
            true => share.max(LEAST.min(most)),
            false => share.saturating_sub(queue.len()),
        }
    }

    fn check_write(&self) -> Result<(), ErrorCode> {
        if self.app_finished {
            return Err(ErrorCode::InvalidState);
        }
        match &self.write_error {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Notes that the module has stopped reading.
    fn close_read(&mut self) {
        self.guest_read_closed = true;
        self.guest_drained = self.outbound.is_empty() && self.write_error.is_none();
        self.outbound.clear();
    }

    /// Makes the application's writes fail from now on, and its reads after what is queued for it.
    fn break_off(&mut self, reason: &ErrorCode) {
        self.end.get_or_insert_with(|| reason.clone());
        self.write_error.get_or_insert_with(|| reason.clone());
        self.outbound.clear();
    }

    /// Makes the application's calls fail from now on, and drops what is queued.
    fn fail(&mut self, reason: &ErrorCode) {
        self.read_error.get_or_insert_with(|| reason.clone());
        self.write_error.get_or_insert_with(|| reason.clone());
        self.inbound.clear();
        self.outbound.clear();
    }

    fn take_wakers(&mut self) -> [Option<Waker>; 2] {
        [self.reader.take(), self.writer.take()]
    }
}

fn wake(wakers: [Option<Waker>; 2]) {
    for waker in wakers.into_iter().flatten() {
        waker.wake();
    }
}
