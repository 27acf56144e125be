//! Connections through modules, as an event loop sees them while they are made.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use tokio::task::{AbortHandle, spawn_blocking};
use watm_runtime::{Connection, Error};

use crate::dialers::{self, Way};
use crate::error::runtime_error;
use crate::flow::Flow;
use crate::limits::Limits;
use crate::module::Module;
use crate::options::{Options, joined};
use crate::thread;
use crate::wake::{Signal, Wake};

/// A connection that is being made. Collected before its result was taken, it is given up.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Dial {
    outcome: Arc<Mutex<Outcome>>,
    ready: Arc<Signal>,
    task: AbortHandle,
    wake: Py<Wake>,
}

enum Outcome {
    Pending,
    Ready(Box<Result<Connection, Error>>),
    Taken,
}

/// Dial `destination` through a module, or, without it, where the module wants to go.
#[pyfunction]
#[pyo3(signature = (module, destination, *, config, allow, limits, name, wake))]
pub fn dial(
    module: &Module,
    destination: Option<(String, u16)>,
    config: Option<Vec<u8>>,
    allow: Vec<String>,
    limits: Limits,
    name: &str,
    wake: Py<Wake>,
) -> PyResult<Dial> {
    let options = Options {
        config,
        allow,
        limits: limits.over(watm_runtime::Limits::for_connections_of(&module.0)),
        name: name.to_owned(),
    };
    let handle = thread::handle()?;
    let module = module.0.clone();
    let ready = wake.get().signal();
    let outcome = Arc::new(Mutex::new(Outcome::Pending));
    let (slot, signal) = (outcome.clone(), ready.clone());
    let task = handle.spawn(async move {
        let result = connect(module, options, destination).await;
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

async fn connect(
    module: watm_runtime::Module,
    options: Options,
    destination: Option<(String, u16)>,
) -> Result<Connection, Error> {
    let fixed = destination.is_none();
    let way = match dialers::find(&module, &options, fixed)? {
        Some(way) => way,
        None => spawn_blocking(move || dialers::make(&module, options, fixed))
            .await
            .unwrap_or_else(|_| Err(dialers::ended()))?,
    };
    match (way, destination) {
        (Way::Named(dialer), Some((host, port))) => dialer.dial(&joined(&host, port)).await,
        (Way::Named(_), None) => Err(Error::Options("no destination".to_owned())),
        (Way::Fixed(dialer), _) => dialer.dial().await,
    }
}

#[pymethods]
impl Dial {
    /// The key that wakes the loop after `result` returned None.
    #[getter]
    fn key(&self) -> u64 {
        self.ready.key
    }

    /// The connection, once. None: it is not ready yet, or taken. An error says why there is none.
    fn result(&self) -> PyResult<Option<Flow>> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        match mem::replace(&mut *outcome, Outcome::Taken) {
            Outcome::Ready(result) => {
                let connection = result.map_err(runtime_error)?;
                Ok(Some(Flow::dialed(connection, self.wake.get())))
            }
            pending => {
                *outcome = pending;
                Ok(None)
            }
        }
    }

    /// Give up. A connection that was taken lives on.
    fn cancel(&self) {
        self.task.abort();
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        self.task.abort();
    }
}
