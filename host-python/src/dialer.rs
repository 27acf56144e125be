//! A running module that dials, for event loops. The package's `dialer.py` and upstreams use it.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use watm_runtime::{Carrier, Error};
use watm_socks::Resolver;

use crate::dial::Dial;
use crate::dialers::{Target, Way};
use crate::error::runtime_error;
use crate::module::Module;
use crate::options::DialOptions;
use crate::server::Status;
use crate::thread;
use crate::wake::Wake;

/// A running module that dials. Closed when collected.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Dialer {
    name: String,
    /// The running module; `None` once it is closed.
    way: Mutex<Option<Way>>,
    resolver: Resolver,
    fixed: bool,
}

#[pymethods]
impl Dialer {
    /// Starts the module, which reaches the network through the module of `through`, if given. Other
    /// Python threads continue meanwhile.
    #[new]
    #[pyo3(signature = (module, *, options, fixed, through))]
    fn new(
        py: Python<'_>,
        module: &Module,
        options: DialOptions,
        fixed: bool,
        through: Option<&Dialer>,
    ) -> PyResult<Dialer> {
        let (options, resolver) = options.read(&module.0)?;
        let carrier = through.map(Dialer::carrier).transpose()?;
        let handle = thread::handle()?;
        let way = py
            .detach(|| {
                let _within = handle.enter();
                Way::new(&module.0, &options, fixed, carrier.as_ref())
            })
            .map_err(runtime_error)?;
        Ok(Dialer {
            name: options.name,
            way: Mutex::new(Some(way)),
            resolver,
            fixed,
        })
    }

    /// Starts to dial `destination`, unless the module chooses it.
    #[pyo3(signature = (destination, *, datagrams, wake))]
    fn dial(
        &self,
        destination: Option<(String, u16)>,
        datagrams: bool,
        wake: Py<Wake>,
    ) -> PyResult<Dial> {
        let target = Target {
            destination: destination.filter(|_| !self.fixed),
            datagrams,
            resolver: self.resolver.clone(),
        };
        Dial::through(self.way()?, self.name.clone(), target, wake)
    }

    /// Uses another module for future connections. On an error the old one stays in use. Takes a
    /// second; other Python threads continue meanwhile.
    fn swap(&self, py: Python<'_>, module: &Module) -> PyResult<()> {
        let (handle, way) = (thread::handle()?, self.way()?);
        let module = module.0.clone();
        py.detach(|| handle.block_on(async { way.swap(&module).await }))
            .map_err(runtime_error)
    }

    /// Returns the status of the module. Other Python threads continue meanwhile.
    fn status(&self, py: Python<'_>) -> PyResult<Status> {
        let (handle, way) = (thread::handle()?, self.way()?);
        let status = py
            .detach(|| handle.block_on(way.status()))
            .map_err(runtime_error)?;
        Status::new(py, status)
    }

    /// Stops dialing. Open connections stay open, and the module with them. Repeated calls have no
    /// effect.
    fn close(&self) {
        drop(self.lock().take());
    }

    /// True if it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }
}

impl Dialer {
    /// Returns the running module. Fails if the dialer is closed.
    pub(crate) fn way(&self) -> PyResult<Way> {
        self.lock().clone().ok_or_else(|| {
            let name = &self.name;
            runtime_error(Error::System(format!("{name}: the dialer is closed")))
        })
    }

    /// Returns what carries the connections of another module. Fails if this module chooses its
    /// destination.
    fn carrier(&self) -> PyResult<Carrier> {
        match self.way()? {
            Way::Named(dialer) => Ok(Carrier::new(dialer, self.resolver.clone())),
            Way::Fixed(_) => {
                let name = &self.name;
                Err(runtime_error(Error::Options(format!(
                    "{name}: chooses its destination itself (fixed), so no other module can go \
                     through it"
                ))))
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Way>> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
