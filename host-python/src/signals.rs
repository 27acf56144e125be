//! Signals from other threads to an event loop: a list of ready keys, and a doorbell. `wake`
//! exposes them to Python.

use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use watm_runtime::Doorbell;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// The signals of one event loop.
pub(crate) struct Signals {
    /// Ready signals. Each is in the list at most once, so their number bounds it.
    ready: Mutex<Vec<Arc<Signal>>>,
    keys: AtomicU64,
    /// The doorbell, rung for each list that was empty before.
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

    /// Creates a signal with a new key.
    pub(crate) fn signal(self: &Arc<Self>) -> Arc<Signal> {
        Arc::new(Signal {
            key: self.keys.fetch_add(1, Ordering::Relaxed),
            waiting: AtomicBool::new(false),
            signals: Arc::clone(self),
        })
    }

    /// Returns the keys that became ready since the last call, each once. The caller sees
    /// everything that was done before a key was woken.
    pub(crate) fn take(&self) -> Vec<u64> {
        // The bell is cleared before the list is taken. A signal in between causes a spurious call,
        // and is never missed.
        self.doorbell.clear();
        let ready = mem::take(&mut *self.ready());
        ready
            .iter()
            .map(|signal| {
                // A thread that found it waiting did its work before, and relies on that being seen
                // now.
                signal.waiting.swap(false, Ordering::AcqRel);
                signal.key
            })
            .collect()
    }

    fn ready(&self) -> MutexGuard<'_, Vec<Arc<Signal>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event that an event loop waits for, identified by its key.
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
