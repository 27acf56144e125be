//! The control pipe, by which the host tells a guest to end. `runner` makes it and `worker` writes
//! to it.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake};

use super::{End, Readiness};
use watm_net::ready::WakeSlot;

/// The pipe's one message: end.
const EXIT: u8 = 0;

/// Nothing has been written yet.
const QUIET: u8 = 0;
/// The message is there to be read.
const SAID: u8 = 1;
/// The message was read; the end of the stream comes after it.
const HEARD: u8 = 2;

/// The host's end of a control pipe.
#[derive(Clone, Default)]
pub(crate) struct Control {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: AtomicU8,
    waker: Arc<WakeSlot>,
}

impl Control {
    /// Tells the guest to end: one byte, then the end of the stream.
    pub(crate) fn exit(&self) {
        let state = &self.shared.state;
        if state
            .compare_exchange(QUIET, SAID, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            self.shared.waker.wake_by_ref();
        }
    }

    /// Returns true if the guest was told to end.
    pub(crate) fn exit_requested(&self) -> bool {
        self.shared.state.load(Ordering::Acquire) != QUIET
    }

    pub(crate) fn guest_end(&self) -> ControlEnd {
        ControlEnd {
            shared: self.shared.clone(),
        }
    }
}

/// The guest's end.
pub(crate) struct ControlEnd {
    shared: Arc<Shared>,
}

impl ControlEnd {
    /// Returns the state, once it is not [`QUIET`].
    fn poll_said(&self, cx: &mut Context<'_>) -> Poll<u8> {
        let state = || match self.shared.state.load(Ordering::Acquire) {
            QUIET => Poll::Pending,
            state => Poll::Ready(state),
        };
        if state().is_pending() {
            self.shared.waker.register(cx);
        }
        state()
    }
}

impl End for ControlEnd {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_said(cx).map(|state| {
            if state == HEARD {
                return Ok(0);
            }
            buffer[0] = EXIT;
            self.shared.state.store(HEARD, Ordering::Release);
            Ok(1)
        })
    }

    /// Discards the data: the host does not read this direction.
    fn poll_write(&mut self, _: &mut Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(data.iter().map(|part| part.len()).sum()))
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Readiness> {
        self.poll_said(cx).map(|state| match state {
            HEARD => Readiness::HANGUP,
            _ => Readiness::of(1),
        })
    }

    fn poll_writable(&mut self, _: &mut Context<'_>) -> Poll<Readiness> {
        Poll::Ready(Readiness::of(super::USUAL_WRITE))
    }

    /// Returns false: the writes do not count as traffic, or a guest could write here for ever.
    fn is_connection(&self) -> bool {
        false
    }
}
