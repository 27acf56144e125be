//! Dials through modules in progress, for event loops. `dialer` and the package's `dialer.py` start
//! them.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use tokio::task::{AbortHandle, spawn_blocking};
use watm_runtime::Error;

use crate::dialers::{self, Opened, Target, Way};
use crate::error::runtime_error;
use crate::flow::Flow;
use crate::module::Module;
use crate::options::DialOptions;
use crate::signals::Signal;
use crate::thread;
use crate::wake::Wake;

/// A connection being made. If collected before its result was taken, it is given up.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Dial {
    outcome: Arc<Mutex<Outcome>>,
    ready: Arc<Signal>,
    task: AbortHandle,
    wake: Py<Wake>,
}

enum Outcome {
    Pending,
    Ready(Box<Result<Opened, Error>>),
    Taken,
}

/// Dials `destination` through a module, or without one the destination that the module chooses.
/// Dials with equal options share an instance of a component.
#[pyfunction]
#[pyo3(signature = (module, destination, *, datagrams, options, wake))]
pub fn dial(
    module: &Module,
    destination: Option<(String, u16)>,
    datagrams: bool,
    options: DialOptions,
    wake: Py<Wake>,
) -> PyResult<Dial> {
    let (options, resolver) = options.read(&module.0)?;
    let target = Target {
        destination,
        datagrams,
        resolver,
    };
    let (module, name) = (module.0.clone(), options.name.clone());
    Dial::start(wake, async move {
        let fixed = target.destination.is_none();
        let way = match dialers::find(&module, &options, fixed)? {
            Some(way) => way,
            None => spawn_blocking(move || dialers::make(&module, options, fixed))
                .await
                .unwrap_or_else(|_| Err(dialers::ended()))?,
        };
        way.open(&name, &target).await
    })
}

impl Dial {
    /// Dials through a running module.
    pub(crate) fn through(
        way: Way,
        name: String,
        target: Target,
        wake: Py<Wake>,
    ) -> PyResult<Dial> {
        Dial::start(wake, async move { way.open(&name, &target).await })
    }

    fn start(
        wake: Py<Wake>,
        opening: impl Future<Output = Result<Opened, Error>> + Send + 'static,
    ) -> PyResult<Dial> {
        let handle = thread::handle()?;
        let ready = wake.get().signal();
        let outcome = Arc::new(Mutex::new(Outcome::Pending));
        let (slot, signal) = (outcome.clone(), ready.clone());
        let task = handle.spawn(async move {
            let result = opening.await;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Outcome::Ready(Box::new(result));
            signal.waker().wake();
        });
        Ok(Dial {
            outcome,
            ready,
            task: task.abort_handle(),
            wake,
        })
    }
}

#[pymethods]
impl Dial {
    /// The key that wakes the loop after `result` returned None.
    #[getter]
    fn key(&self) -> u64 {
        self.ready.key
    }

    /// Returns the connection, once. None means that it is not ready yet, or was taken. An error
    /// says why there is none.
    fn result(&self) -> PyResult<Option<Flow>> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match mem::replace(&mut *outcome, Outcome::Taken) {
            Outcome::Ready(result) => {
                let opened = result.map_err(runtime_error)?;
                Ok(Some(Flow::dialed(opened, self.wake.get())))
            }
            pending => {
                *outcome = pending;
                Ok(None)
            }
        }
    }

    /// Gives up. A connection that was taken stays open.
    fn cancel(&self) {
        self.task.abort();
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        self.task.abort();
    }
}
