//! The descriptor that an event loop of Python waits on.

use std::sync::Arc;

use pyo3::prelude::*;
use watm_runtime::Doorbell;

use crate::logs;
use crate::signals::{Signal, Signals};

/// The wait object of one event loop: the ready keys, and a descriptor that is readable while there
/// are any.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Wake {
    signals: Arc<Signals>,
    log: Arc<Signal>,
}

#[pymethods]
impl Wake {
    #[new]
    fn new() -> PyResult<Self> {
        let signals = Signals::new(Doorbell::new()?);
        let log = signals.signal();
        logs::subscribe(&log);
        Ok(Wake { signals, log })
    }

    /// The key that means that log records are waiting.
    #[getter]
    fn log_key(&self) -> u64 {
        self.log.key
    }

    /// Returns the descriptor to watch for reading.
    fn fileno(&self) -> u64 {
        self.signals.doorbell.descriptor()
    }

    /// Returns the keys that became ready since the last call, each once.
    fn take(&self) -> Vec<u64> {
        self.signals.take()
    }
}

impl Wake {
    /// Creates a signal with a new key.
    pub(crate) fn signal(&self) -> Arc<Signal> {
        self.signals.signal()
    }
}
