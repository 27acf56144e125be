//! How other threads tell an event loop what has become ready.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use pyo3::prelude::*;
use watm_runtime::Doorbell;

use crate::logs;

/// What one event loop waits on: a descriptor that is readable while keys are waiting, and
/// the keys.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Wake {
    shared: Arc<Shared>,
    log: Arc<Signal>,
}

#[pymethods]
impl Wake {
    #[new]
    fn new() -> PyResult<Self> {
        let shared = Arc::new(Shared {
            ready: Mutex::new(Vec::new()),
            keys: AtomicU64::new(0),
            doorbell: Doorbell::new()?,
        });
        let log = shared.signal();
        logs::subscribe(&log);
        Ok(Wake { shared, log })
    }

    /// The key that means that log records are waiting.
    #[getter]
    fn log_key(&self) -> u64 {
        self.log.key
    }

    /// The descriptor to watch for reading.
    fn fileno(&self) -> u64 {
        self.shared.doorbell.descriptor()
    }

    /// The keys that became ready since the last call, each once.
    fn take(&self) -> Vec<u64> {
        // First the bell, then the list: what comes in between makes a spurious call,
        // never a missed one.
        self.shared.doorbell.clear();
        let ready = mem::take(&mut *self.shared.ready());
        ready
            .iter()
            .map(|signal| {
                signal.waiting.store(false, Ordering::Release);
                signal.key
            })
            .collect()
    }
}

impl Wake {
    /// A new key, and what wakes the loop with it.
    pub(crate) fn signal(&self) -> Arc<Signal> {
        self.shared.signal()
    }
}

struct Shared {
    /// Bounded by the number of signals: each is in it at most once.
    ready: Mutex<Vec<Arc<Signal>>>,
    keys: AtomicU64,
    /// Rung for each list that was empty before.
    doorbell: Doorbell,
}

impl Shared {
    fn signal(self: &Arc<Self>) -> Arc<Signal> {
        Arc::new(Signal {
            key: self.keys.fetch_add(1, Ordering::Relaxed),
            waiting: AtomicBool::new(false),
            shared: Arc::clone(self),
        })
    }

    fn ready(&self) -> MutexGuard<'_, Vec<Arc<Signal>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thing that an event loop waits for, known to it by its key.
pub(crate) struct Signal {
    pub key: u64,
    waiting: AtomicBool,
    shared: Arc<Shared>,
}

impl Signal {
    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl std::task::Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.waiting.swap(true, Ordering::AcqRel) {
            return;
        }
        let first = {
            let mut ready = self.shared.ready();
            ready.push(Arc::clone(self));
            ready.len() == 1
        };
        if first {
            self.shared.doorbell.ring();
        }
    }
}
