//! The module's end for a blocking guest, which asks again when it is woken, and whose bytes move
//! between the queues and its own memory. `water` uses it.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;

use super::{GuestStream, Locked, Shared, State, StreamFlow, wake};
use crate::ErrorCode;
use crate::ready::register;

/// The bytes that are read from an upstream when a guest asks for readiness.
const AHEAD: usize = 64 << 10;

impl StreamFlow {
    /// Reads into the caller's memory, as [`poll_read_some`](StreamFlow::poll_read_some).
    pub(super) fn poll_read_into(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), ErrorCode>> {
        let mut state = self.shared.lock();
        if state.app_read_closed {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &state.read_error {
            return Poll::Ready(Err(error.clone()));
        }
        if !state.inbound.is_empty() {
            let count = state.inbound.read(buffer.initialize_unfilled());
            buffer.advance(count);
            let notify = state.write_armed && state.inbound.len() <= self.shared.capacity / 2;
            if notify {
                state.write_armed = false;
            }
            drop(state);
            if notify {
                self.shared.token.wake_by_ref();
            }
            return Poll::Ready(Ok(()));
        }
        if state.guest_finished {
            return Poll::Ready(state.end.clone().map_or(Ok(()), Err));
        }
        register(&mut state.reader, cx);
        Poll::Pending
    }
}

impl GuestStream {
    /// Moves what the application wrote into `buffer`, and returns the number of bytes. 0 is the
    /// end. `None`: there is nothing, and the flow's waker is called when there is.
    #[doc(hidden)]
    pub fn read_into(&self, buffer: &mut [u8]) -> Result<Option<usize>, ErrorCode> {
        let mut state = self.shared.lock();
        if let Some(reason) = &state.abort {
            return Err(reason.clone());
        }
        if let Err(reason) = state.read_ahead(buffer.len(), &self.shared.token) {
            return Err(told(state, reason));
        }
        if state.outbound.is_empty() && !state.guest_read_closed {
            if !state.app_finished {
                state.read_armed = true;
                return Ok(None);
            }
            state.guest_saw_end = true;
            let writer = state.writer.take();
            drop(state);
            wake([writer, None]);
            return Ok(Some(0));
        }
        let count = state.outbound.read(buffer);
        let writer = if state.paused && state.outbound.len() <= self.shared.low_water {
            state.paused = false;
            state.writer.take()
        } else {
            None
        };
        drop(state);
        wake([writer, None]);
        Ok(Some(count))
    }

    /// Gives as much of `data` to the application as its queue has room for, and returns the number
    /// of bytes. 0: the queue is full, and the flow's waker is called when there is room.
    #[doc(hidden)]
    pub fn write_from(&self, data: &[IoSlice<'_>]) -> Result<usize, ErrorCode> {
        let mut state = self.shared.lock();
        state.check_guest_write()?;
        let (mut count, mut queued) = (0, 0);
        for slice in data {
            let written = match state.write_upstream(slice) {
                Ok(written) => written,
                Err(reason) => return Err(told(state, reason)),
            };
            let room = state.room(&state.inbound, self.shared.capacity);
            let step = room.min(slice.len() - written);
            state.inbound.push(&slice[written..written + step]);
            queued += step;
            count += written + step;
        }
        state.count_received(queued);
        let offered = data.iter().any(|slice| !slice.is_empty());
        state.write_armed = count == 0 && offered;
        let reader = match queued {
            0 => None,
            _ => state.reader.take(),
        };
        drop(state);
        wake([reader, None]);
        Ok(count)
    }

    /// Returns the number of bytes that [`read_into`](GuestStream::read_into) would move now, and
    /// true if they are the last. `None`: it would move none, and the flow's waker is called when
    /// that changes.
    #[doc(hidden)]
    pub fn readable(&self) -> Result<Option<(usize, bool)>, ErrorCode> {
        let mut state = self.shared.lock();
        if let Some(reason) = &state.abort {
            return Err(reason.clone());
        }
        if let Err(reason) = state.read_ahead(AHEAD, &self.shared.token) {
            return Err(told(state, reason));
        }
        let last = state.app_finished || state.guest_read_closed;
        if state.outbound.is_empty() && !last {
            state.read_armed = true;
            return Ok(None);
        }
        Ok(Some((state.outbound.len(), last)))
    }

    /// Returns the number of bytes that [`write_from`](GuestStream::write_from) would take now. 0:
    /// none, and the flow's waker is called when that changes.
    #[doc(hidden)]
    pub fn writable(&self) -> Result<usize, ErrorCode> {
        let mut state = self.shared.lock();
        state.check_guest_write()?;
        let room = state.room(&state.inbound, self.shared.capacity);
        state.write_armed = room == 0;
        Ok(room)
    }

    /// Shuts directions, as `byte-stream.shutdown`, and wakes the application at once.
    #[doc(hidden)]
    pub fn shutdown_now(&self, read: bool, write: bool) {
        let mut wakers = crate::ready::WakeBatch::default();
        self.shutdown(read, write, &mut wakers);
        wakers.fire();
    }

    /// Ends both directions. The application reads `reason` after all that was written to it, in
    /// place of the end; `None` is the end.
    #[doc(hidden)]
    pub fn finish(&self, reason: Option<ErrorCode>) {
        let mut state = self.shared.lock();
        if !state.guest_finished {
            state.end.clone_from(&reason);
        }
        state.guest_finished = true;
        if !state.guest_read_closed {
            state.close_read();
        }
        state.guest_drained &= reason.is_none();
        if !state.guest_saw_end || reason.is_some() {
            let reason = reason.unwrap_or(ErrorCode::ConnectionAborted);
            state.write_error.get_or_insert(reason);
        }
        let wakers = state.take_wakers();
        drop(state);
        wake(wakers);
    }

    /// Returns true if the application has aborted the flow.
    #[doc(hidden)]
    pub fn is_aborted(&self) -> bool {
        self.shared.lock().abort.is_some()
    }

    /// Returns a watch that reports when the application drops the flow.
    #[doc(hidden)]
    pub fn watch(&self) -> CloseWatch {
        CloseWatch {
            shared: self.shared.clone(),
        }
    }
}

/// Wakes the waiting tasks after the failure of an upstream.
fn told(mut state: Locked<'_, State>, reason: ErrorCode) -> ErrorCode {
    let wakers = state.take_wakers();
    drop(state);
    wake(wakers);
    reason
}

/// A watch on the application's end, apart from the guest's calls.
pub struct CloseWatch {
    shared: Arc<Shared>,
}

impl CloseWatch {
    /// Returns ready once the application has closed, dropped or aborted the flow. Has one waiter.
    #[doc(hidden)]
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.lock();
        if state.is_abandoned() {
            return Poll::Ready(());
        }
        register(&mut state.closer, cx);
        Poll::Pending
    }

    /// Returns ready once the guest has read all that the application wrote, or never will. Called
    /// after [`poll_closed`](CloseWatch::poll_closed), by one waiter.
    #[doc(hidden)]
    pub fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.lock();
        let dead = state.abort.is_some() || state.guest_read_closed;
        if dead || state.guest_saw_end || state.outbound.is_empty() {
            return Poll::Ready(());
        }
        // The application has dropped the flow, so nobody else waits here.
        register(&mut state.writer, cx);
        Poll::Pending
    }
}

impl State {
    fn is_abandoned(&self) -> bool {
        self.abort.is_some() || (self.app_finished && self.app_read_closed)
    }

    /// Queues up to `max` bytes of an upstream, if the queue is empty, or learns of its end.
    fn read_ahead(&mut self, max: usize, token: &Waker) -> Result<(), ErrorCode> {
        if !self.guest_read_closed && self.reads_upstream() {
            let data = self.read_upstream(max, token)?;
            self.outbound.push_vec(data.unwrap_or_default());
        }
        Ok(())
    }

    fn check_guest_write(&self) -> Result<(), ErrorCode> {
        if let Some(reason) = &self.abort {
            return Err(reason.clone());
        }
        if self.guest_finished {
            return Err(ErrorCode::InvalidState);
        }
        if self.app_read_closed {
            return Err(ErrorCode::ConnectionAborted);
        }
        Ok(())
    }
}
