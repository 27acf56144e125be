//! The life of a connection after its handshake. `runner` spawns it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use super::connections::Connections;
use super::end::{Caller, Control};
use super::errno::Errno;
use super::instance::{Instance, Stop, with_last_words};
use crate::ErrorCode;
use watm_net::quota::Permit;

/// The future that returns when the application has stopped accepting.
pub(super) type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The most graces that a wait takes for a module that passes on data.
const GRACES: u32 = 5;

/// A connection that is ready, with all that serving it takes.
pub(super) struct Worker {
    pub(super) instance: Instance,
    /// The application's stream; a relay has none.
    pub(super) caller: Option<Caller>,
    pub(super) control: Control,
    pub(super) closing: Closing,
    /// The place of a relay's connection among those of the module. That of others is with the
    /// application's stream.
    pub(super) _permit: Option<Permit>,
    /// True if the client has reset its connection.
    pub(super) reset: bool,
    pub(super) grace: Duration,
    /// The connection's name in logs.
    pub(super) name: Arc<str>,
    /// The connections of the module, which hear of its faults.
    pub(super) connections: Arc<Connections>,
}

impl Worker {
    /// Runs until the connection has ended, one way or another.
    pub(super) async fn run(mut self) {
        let Some(ended) = self.serve_in_time().await else {
            if let Some(caller) = &self.caller {
                let reason = "the module was replaced, and its drain deadline passed";
                caller.finish(Some(ErrorCode::Other(reason.into())));
            }
            return;
        };
        let reason = match ended {
            Some(result) => self.conclude(result),
            None => {
                tracing::debug!(
                    target: "watm::server",
                    server = &*self.name,
                    "the module did not exit within {:?} of being told to; stopping it",
                    self.grace
                );
                None
            }
        };
        if let Some(reason) = &reason {
            tracing::debug!(
                target: "watm::server",
                server = &*self.name,
                "the module ended the connection: {reason}"
            );
        }
        let aborted = self.caller.as_ref().is_some_and(Caller::is_aborted);
        if let Some(caller) = &self.caller {
            let reset = self.reset.then_some(ErrorCode::ConnectionReset);
            let said = reason.as_deref().map(|text| ErrorCode::Other(text.into()));
            caller.finish(said.or(reset));
        }
        // The other ends must not take truncated data for complete data, unless one has ended
        // itself.
        let failed =
            reason.is_some() && !self.control.exit_requested() && !self.instance.state().saw_end;
        match failed || aborted {
            true => self.instance.state().fds.ends().for_each(|end| end.abort()),
            false => self.flush().await,
        }
    }

    /// Returns the result of [`serve`](Self::serve), or `None` if the connections' time is over
    /// before.
    async fn serve_in_time(&mut self) -> Option<Option<Result<i32, Stop>>> {
        let connections = self.connections.clone();
        let mut over = pin!(connections.ended());
        let mut served = pin!(self.serve());
        poll_fn(|cx| {
            if let Poll::Ready(ended) = served.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
            over.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    /// Returns the worker's result, or `None` if the worker had to be stopped.
    async fn serve(&mut self) -> Option<Result<i32, Stop>> {
        let state = self.instance.state();
        let (reset, moves) = (state.outside.reset(), state.moves.clone());
        let mut reset = pin!(reset.notified());
        let mut work = pin!(self.instance.work());
        let closing = &mut self.closing;
        let is_reset = &mut self.reset;
        let ended = poll_fn(|cx| {
            if let Poll::Ready(result) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            *is_reset = reset.as_mut().poll(cx).is_ready();
            if *is_reset {
                return Poll::Ready(None);
            }
            closing.as_mut().poll(cx).map(|()| None)
        });
        if let Some(result) = ended.await {
            return Some(result);
        }
        if self.reset {
            // The guest may find out by itself.
            if let Ok(result) = timeout(self.grace, work.as_mut()).await {
                return Some(result);
            }
        } else if let Some(caller) = &self.caller {
            let watch = caller.watch();
            let drained = poll_fn(|cx| {
                if let Poll::Ready(result) = work.as_mut().poll(cx) {
                    return Poll::Ready(Some(result));
                }
                watch.poll_drained(cx).map(|()| None)
            });
            if let Some(Some(result)) = while_moving(self.grace, &moves, drained).await {
                return Some(result);
            }
            self.control.exit();
            return while_moving(self.grace, &moves, work).await;
        }
        self.control.exit();
        timeout(self.grace, work).await.ok()
    }

    /// Returns the error that the application sees for the worker's result, or `None` for a plain
    /// end.
    fn conclude(&mut self, result: Result<i32, Stop>) -> Option<String> {
        let told = self.control.exit_requested();
        let state = self.instance.state();
        let result = match result {
            Ok(result) => result,
            Err(Stop::Exit(0)) => 0,
            Err(stop) => {
                let reason = stop.reason();
                // The runtimes of some languages exit this way when a connection has ended.
                let regular = matches!(stop, Stop::Exit(_)) && (told || state.has_lost());
                if !regular {
                    self.connections.report_fault(&reason);
                }
                return Some(reason);
            }
        };
        let errno = Errno::of_result(result)?;
        // Modules report this way that they were told to end, or have seen the end of a stream.
        let regular = matches!(errno, Errno::CANCELED | Errno::PIPE);
        if regular && (told || state.saw_end) {
            return None;
        }
        if let Some(error) = state.broken.take() {
            return Some(format!("{} ({})", ErrorCode::from(&error), errno.name()));
        }
        let reason = format!("the module failed with {result} ({})", errno.name());
        let reason = with_last_words(state, reason);
        if !told && !state.saw_end && !state.outside.accepts() {
            self.connections.report_fault(&reason);
        }
        Some(reason)
    }

    /// Makes the streams pass on what the guest wrote. Takes at most the grace that a guest would
    /// get to end.
    async fn flush(&mut self) {
        let state = self.instance.state();
        for end in state.fds.ends() {
            // A stream that is already broken needs no end.
            let _ = end.shutdown(false, true);
        }
        let flushed = poll_fn(|cx| {
            let mut all = Poll::Ready(());
            for end in state.fds.ends() {
                if end.poll_flushed(cx).is_pending() {
                    all = Poll::Pending;
                }
            }
            all
        });
        // Bytes that the streams have not taken by then are lost with the connection.
        let _ = timeout(self.grace, flushed).await;
    }
}

/// Returns the output of `work`, or `None` after a grace in which the module moved nothing, or after
/// all [`GRACES`]. A module that passes on data may take its time: a slow network takes longer than
/// any grace, and a transport that sends lost data again first has to notice the loss.
async fn while_moving<F: Future>(grace: Duration, moves: &AtomicU64, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    for _ in 0..GRACES {
        let before = moves.load(Ordering::Relaxed);
        if let Ok(output) = timeout(grace, work.as_mut()).await {
            return Some(output);
        }
        if moves.load(Ordering::Relaxed) == before {
            break;
        }
    }
    None
}
