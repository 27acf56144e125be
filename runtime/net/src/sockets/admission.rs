//! Limits on connections from the moment of their acceptance, before a module knows of them. An
//! application passes an [`Admission`] to `ServerBuilder`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Decides which connections a listener takes.
///
/// Called on the server's thread, so it must not block.
pub trait Admission: Send + Sync {
    /// Returns true to take this connection. Otherwise its client sees a reset.
    fn admit(&self, connection: &Arc<Accepted>) -> bool;

    /// Called when a connection that was taken has closed.
    fn closed(&self, connection: &Accepted);
}

/// A connection that a listener has accepted.
#[derive(Debug)]
pub struct Accepted {
    remote: SocketAddr,
    local: SocketAddr,
    state: AtomicU8,
    /// The waker of the module's last read or write.
    waker: Mutex<Option<Waker>>,
}

/// A connection that was taken, for as long as it is open.
pub struct Admitted {
    accepted: Arc<Accepted>,
    admission: Arc<dyn Admission>,
}

impl Admitted {
    /// Asks `admission`; `None` if the connection is not taken.
    #[doc(hidden)]
    pub fn new(
        admission: Arc<dyn Admission>,
        remote: SocketAddr,
        local: SocketAddr,
    ) -> Option<Admitted> {
        let accepted = Arc::new(Accepted::new(remote, local));
        let taken = admission.admit(&accepted);
        taken.then_some(Admitted {
            accepted,
            admission,
        })
    }

    /// Returns ready when the connection must be closed.
    #[doc(hidden)]
    pub fn poll_closing(&self, cx: &Context<'_>) -> Poll<()> {
        match self.accepted.is_closing(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.closed(&self.accepted);
    }
}

/// The connection may still be closed.
const PENDING: u8 = 0;
/// The connection stays with the module.
const SETTLED: u8 = 1;
const CLOSING: u8 = 2;

impl Accepted {
    pub(super) fn new(remote: SocketAddr, local: SocketAddr) -> Accepted {
        Accepted {
            remote,
            local,
            state: AtomicU8::new(PENDING),
            waker: Mutex::default(),
        }
    }

    /// The address of the client's end.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The address that the listener is bound to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Closes the connection in an orderly way, and tells the module that it was aborted. Does
    /// nothing after [`settle`](Accepted::settle).
    pub fn close(&self) {
        if self.change(CLOSING) {
            let waker = self.lock().take();
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Leaves the connection to the module permanently.
    pub fn settle(&self) {
        if self.change(SETTLED) {
            self.lock().take();
        }
    }

    /// Returns true if the connection must be closed. Otherwise `cx` is woken when it must.
    pub(super) fn is_closing(&self, cx: &Context<'_>) -> bool {
        if self.state.load(Ordering::Acquire) == PENDING {
            let mut waker = self.lock();
            if !waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        // Checked only now that the waker is in place.
        self.was_closed()
    }

    pub(super) fn was_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSING
    }

    fn change(&self, to: u8) -> bool {
        let changed = self
            .state
            .compare_exchange(PENDING, to, Ordering::AcqRel, Ordering::Acquire);
        changed.is_ok()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().expect("no panic under this lock")
    }
}
