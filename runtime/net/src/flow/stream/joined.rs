//! Stream flows whose application is a socket: the module's writes go into it at once, and its
//! reads come out of it, so that no byte waits for a task to run. `watm serve` joins its flows.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::{Shared, State, StreamFlow};
use crate::ErrorCode;
use crate::flow::join::{JoinError, Meter};
use crate::ready::register;
use crate::sockets::{Inlet, UpstreamStream};

/// The time that an upstream has to take what a client sent before it was gone.
const PASSING_ON: Duration = Duration::from_secs(2);

pub(super) struct Joined {
    upstream: Box<dyn UpstreamStream>,
    meter: Arc<dyn Meter>,
    inlet: Inlet,
    /// True if the end was passed on to the upstream.
    finished: bool,
    failed: bool,
}

impl StreamFlow {
    /// Makes `upstream` the application, until both directions have ended, each of which is passed
    /// on, or until one side fails, which resets the upstream. Dropping the future resets it too,
    /// and leaves the flow open. The flow's other calls must not be used meanwhile;
    /// [`abort`](StreamFlow::abort) may be used after that.
    ///
    /// The module's thread reads and writes the upstream. Bytes that it has no room for wait,
    /// within [`Limits::stream_buffer_bytes`](crate::Limits); beyond it the module waits.
    pub async fn join(
        &self,
        upstream: Box<dyn UpstreamStream>,
        meter: Arc<dyn Meter>,
    ) -> Result<(), JoinError> {
        self.shared.begin_join(upstream, meter);
        let mut joint = Joint {
            shared: &self.shared,
            whole: false,
        };
        let result = poll_fn(|cx| self.shared.poll_joined(cx)).await;
        if result == Err(JoinError::Flow) {
            let passed_on = poll_fn(|cx| self.shared.poll_passed_on(cx));
            // The bytes are here already, and no task waits for more.
            let _ = timeout(PASSING_ON, passed_on).await;
        }
        joint.whole = result.is_ok();
        result
    }
}

/// Detaches the upstream when it is dropped.
struct Joint<'a> {
    shared: &'a Shared,
    whole: bool,
}

impl Drop for Joint<'_> {
    fn drop(&mut self) {
        let joined = self.shared.lock().joined.take();
        if let Some(joined) = joined
            && !self.whole
        {
            // A join that is cut short must not look like an end.
            joined.upstream.reset();
        }
        // The module reads from the queue again.
        self.shared.token.wake_by_ref();
    }
}

impl Shared {
    fn begin_join(&self, upstream: Box<dyn UpstreamStream>, meter: Arc<dyn Meter>) {
        let mut state = self.lock();
        state.joined = Some(Box::new(Joined {
            upstream,
            meter,
            inlet: Inlet::default(),
            finished: false,
            failed: false,
        }));
        state.count_received(state.inbound.len());
        let notify = std::mem::take(&mut state.read_armed);
        drop(state);
        if notify {
            self.token.wake_by_ref();
        }
    }

    fn poll_joined(&self, cx: &mut Context<'_>) -> Poll<Result<(), JoinError>> {
        let ended = self.poll_ended(cx);
        if let Poll::Ready(Err(JoinError::Upstream)) = ended {
            // The module may not know yet.
            self.token.wake_by_ref();
        }
        ended
    }

    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<Result<(), JoinError>> {
        let mut state = self.lock();
        let sent = state.poll_pass_on(cx)?;
        if state.end.is_some() {
            return Poll::Ready(Err(JoinError::Flow));
        }
        let ended = state.poll_end(cx)?;
        if sent.is_ready() && state.guest_finished && ended.is_ready() {
            return Poll::Ready(Ok(()));
        }
        // Every reaction of the module to an end calls one of these wakers.
        register(&mut state.reader, cx);
        register(&mut state.writer, cx);
        let notify = state.write_armed && state.inbound.len() <= self.capacity / 2;
        if notify {
            state.write_armed = false;
        }
        drop(state);
        if notify {
            self.token.wake_by_ref();
        }
        Poll::Pending
    }

    /// Returns ready when nothing waits for the upstream, or it has failed.
    fn poll_passed_on(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.lock().poll_pass_on(cx).map(|_| ())
    }
}

impl State {
    /// Writes the waiting bytes to the upstream, and the end.
    fn poll_pass_on(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JoinError>> {
        let Some(joined) = &mut self.joined else {
            return Poll::Ready(Err(JoinError::Upstream));
        };
        let mut failed = joined.failed;
        while !failed && !self.inbound.is_empty() {
            match Pin::new(&mut joined.upstream).poll_write(cx, self.inbound.front()) {
                Poll::Ready(Ok(count)) if count > 0 => self.inbound.consume(count),
                Poll::Ready(_) => failed = true,
                Poll::Pending => return Poll::Pending,
            }
        }
        if !failed && self.guest_finished && self.end.is_none() && !joined.finished {
            match Pin::new(&mut joined.upstream).poll_shutdown(cx) {
                Poll::Ready(result) => failed = result.is_err(),
                Poll::Pending => return Poll::Pending,
            }
            joined.finished = true;
        }
        match failed {
            true => {
                self.fail_upstream();
                Poll::Ready(Err(JoinError::Upstream))
            }
            false => Poll::Ready(Ok(())),
        }
    }

    /// Returns ready when the module knows that the upstream has ended, or does not want to know.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JoinError>> {
        if !self.guest_read_closed {
            return match self.guest_saw_end {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            };
        }
        // The module has stopped reading, so the end is detected here.
        if let Some(joined) = &mut self.joined
            && !self.app_finished
        {
            let mut byte = [0];
            let mut byte = ReadBuf::new(&mut byte);
            match Pin::new(&mut joined.upstream).poll_read(cx, &mut byte) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => {
                    self.fail_upstream();
                    return Poll::Ready(Err(JoinError::Upstream));
                }
                // The upstream has more data, but the module has stopped reading.
                Poll::Ready(Ok(())) if !byte.filled().is_empty() => {
                    return Poll::Ready(Err(JoinError::Flow));
                }
                Poll::Ready(Ok(())) => self.app_finished = true,
            }
        }
        Poll::Ready(match self.write_error.is_some() && !self.guest_drained {
            true => Err(JoinError::Flow),
            false => Ok(()),
        })
    }

    /// Returns true if the module's next read must come out of an upstream.
    pub(super) fn reads_upstream(&self) -> bool {
        self.joined.is_some() && self.outbound.is_empty() && !self.app_finished
    }

    /// Reads from the upstream, as `byte-stream.read`. `token` is woken when there is more.
    pub(super) fn read_upstream(
        &mut self,
        max: usize,
        token: &Waker,
    ) -> Result<Option<Vec<u8>>, ErrorCode> {
        let Some(joined) = &mut self.joined else {
            return Ok(Some(Vec::new()));
        };
        let mut cx = Context::from_waker(token);
        match joined.inlet.read(&mut *joined.upstream, max, &mut cx) {
            Ok(Some(data)) => {
                if !data.is_empty() {
                    joined.meter.send(data.len());
                }
                Ok(Some(data))
            }
            Ok(None) => {
                self.app_finished = true;
                Ok(None)
            }
            Err(_) => Err(self.fail_upstream()),
        }
    }

    /// Writes as much of `data` as the upstream takes at once, and returns the number of bytes.
    pub(super) fn write_upstream(&mut self, data: &[u8]) -> Result<usize, ErrorCode> {
        let mut written = 0;
        let Some(joined) = &mut self.joined else {
            return Ok(0);
        };
        // Waiting bytes are the task's, which is woken when there is room.
        let mut cx = Context::from_waker(Waker::noop());
        while written < data.len() && self.inbound.is_empty() {
            match Pin::new(&mut joined.upstream).poll_write(&mut cx, &data[written..]) {
                Poll::Ready(Ok(count)) if count > 0 => written += count,
                Poll::Ready(_) => return Err(self.fail_upstream()),
                Poll::Pending => break,
            }
        }
        self.count_received(written);
        Ok(written)
    }

    /// Counts bytes that the upstream has, or that wait for it.
    pub(super) fn count_received(&self, bytes: usize) {
        if let Some(joined) = &self.joined
            && bytes > 0
        {
            joined.meter.receive(bytes);
        }
    }

    /// Marks the application's side as failed, and returns the error of the module's calls.
    fn fail_upstream(&mut self) -> ErrorCode {
        let reason = ErrorCode::ConnectionReset;
        if let Some(joined) = &mut self.joined {
            joined.failed = true;
        }
        self.fail(&reason);
        self.abort = Some(reason.clone());
        reason
    }
}
