//! How other threads tell an event loop what has become ready: a list of keys, and a bell.

use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use watm_runtime::Doorbell;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// The signals of one event loop.
pub(crate) struct Signals {
    /// Bounded by the number of signals: each is in it at most once.
    ready: Mutex<Vec<Arc<Signal>>>,
    keys: AtomicU64,
    /// Rung for each list that was empty before.
    pub(crate) doorbell: Doorbell,
}

impl Signals {
    pub(crate) fn new(doorbell: Doorbell) -> Arc<Signals> {
        Arc::new(Signals {
            ready: Mutex::new(Vec::new()),
            keys: AtomicU64::new(0),
            doorbell,
        })
    }

    /// A new key, and what wakes the loop with it.
    pub(crate) fn signal(self: &Arc<Self>) -> Arc<Signal> {
        Arc::new(Signal {
            key: self.keys.fetch_add(1, Ordering::Relaxed),
            waiting: AtomicBool::new(false),
            signals: Arc::clone(self),
        })
    }

    /// The keys that became ready since the last call, each once. What was done before one of them
    /// was woken is seen by who is told the key.
    pub(crate) fn take(&self) -> Vec<u64> {
        // First the bell, then the list: what comes in between makes a spurious call,
        // never a missed one.
        self.doorbell.clear();
        let ready = mem::take(&mut *self.ready());
        ready
            .iter()
            .map(|signal| {
                // Whoever found it waiting did something before, and counts on it being seen now.
                signal.waiting.swap(false, Ordering::AcqRel);
                signal.key
            })
            .collect()
    }

    fn ready(&self) -> MutexGuard<'_, Vec<Arc<Signal>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thing that an event loop waits for, known to it by its key.
pub(crate) struct Signal {
    pub(crate) key: u64,
    waiting: AtomicBool,
    signals: Arc<Signals>,
}

impl Signal {
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.waiting.swap(true, Ordering::AcqRel) {
            return;
        }
        let first = {
            let mut ready = self.signals.ready();
            ready.push(Arc::clone(self));
            ready.len() == 1
        };
        if first {
            self.signals.doorbell.ring();
        }
    }
}
