//! Modules, compiled once a process.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use watm_runtime::{Engine, EngineConfig};

use crate::error::runtime_error;

/// A compiled module, which any number of servers can run.
#[pyclass(frozen, module = "mitmproxy_watm._native")]
pub struct Module(pub(crate) watm_runtime::Module);

#[pymethods]
impl Module {
    /// The name it was loaded under.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// What kind of file it is: "component", "WATER v0 module" or "WATER v1 module".
    #[getter]
    fn kind(&self) -> String {
        self.0.info().kind.to_string()
    }

    /// What a WATER module can do with a connection: "dialer", "fixed dialer", "listener", "relay".
    #[getter]
    fn roles(&self) -> Vec<String> {
        self.0
            .info()
            .roles
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// What it can listen on, the usual first: "udp", "tcp".
    #[getter]
    fn listens_on(&self) -> Vec<String> {
        self.0
            .listens_on()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// What it asks to be granted.
    #[getter]
    fn imports(&self) -> Vec<String> {
        self.0.info().imports.clone()
    }

    /// Its hash, in hexadecimal.
    #[getter]
    fn sha256(&self) -> &str {
        &self.0.info().sha256
    }

    fn __repr__(&self) -> String {
        format!("<Module {}>", self.0.name())
    }
}

/// Compile the module in a file. May take seconds for a module that is not in the cache;
/// other Python threads go on meanwhile.
#[pyfunction]
pub fn load_file(py: Python<'_>, path: PathBuf) -> PyResult<Module> {
    py.detach(|| engine()?.load_file(&path))
        .map(Module)
        .map_err(runtime_error)
}

/// Compile the module in `data`; `name` is what records and errors call it.
#[pyfunction]
pub fn load(py: Python<'_>, name: &str, data: &[u8]) -> PyResult<Module> {
    py.detach(|| engine()?.load(name, data))
        .map(Module)
        .map_err(runtime_error)
}

fn engine() -> Result<Engine, watm_runtime::Error> {
    static ENGINE: Mutex<Option<Engine>> = Mutex::new(None);
    let mut engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*engine {
        Some(engine) => Ok(engine.clone()),
        None => Ok(engine.insert(Engine::new(EngineConfig::default())?).clone()),
    }
}
