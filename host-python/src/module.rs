//! Modules, compiled once a process.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use watm_runtime::seal::{self, Proof, Root, SignedRoot};
use watm_runtime::{BuiltIn, Engine, EngineConfig, Grants, LoadOptions, Trust};

use crate::error::{ModuleError, runtime_error};

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

    /// What its seal says that it is: name, release, version, expiry, signers and root. None: it
    /// has no seal, and was loaded for development.
    #[getter]
    fn seal(&self) -> Option<Seal> {
        self.0.seal().map(Seal::from)
    }

    /// What its seal asks for. None: it has no seal.
    #[getter]
    fn asked(&self) -> Option<Capabilities> {
        asked(&self.0)
    }

    /// The most that it may have: what is asked, cut to what the user granted to its name. None:
    /// it has no seal, and no such bound.
    #[getter]
    fn granted(&self) -> Option<Capabilities> {
        granted(&self.0)
    }

    /// What somebody should look at now: that it has no seal, expires soon or has expired.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        let warnings = self.0.warnings();
        warnings.iter().map(ToString::to_string).collect()
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

/// Compile the module in a file, if the user trusts its seal. May take seconds for a module that
/// is not in the cache; other Python threads go on meanwhile. `unsealed`: it may have none.
#[pyfunction]
#[pyo3(signature = (path, *, unsealed))]
pub fn load_file(py: Python<'_>, path: PathBuf, unsealed: bool) -> PyResult<Module> {
    py.detach(|| engine()?.load_file_with(&path, &options(unsealed)))
        .map(Module)
        .map_err(runtime_error)
}

/// Compile the module in `data`, as `load_file`; `name` is what records and errors call it.
#[pyfunction]
#[pyo3(signature = (name, data, *, unsealed))]
pub fn load(py: Python<'_>, name: &str, data: &[u8], unsealed: bool) -> PyResult<Module> {
    py.detach(|| engine()?.load_with(name, data, &options(unsealed)))
        .map(Module)
        .map_err(runtime_error)
}

/// The name that a module's seal claims; None if it has none. Nothing is verified.
#[pyfunction]
pub fn claimed_name(data: &[u8]) -> Option<String> {
    let sealed = seal::Sealed::parse(data).ok()?;
    Some(sealed.manifest().name.to_string())
}

/// Compile the module in `data`, which came with this package and is sealed as `watm/NAME` under
/// the root in `root`.
#[pyfunction]
pub fn load_packaged(py: Python<'_>, name: &str, data: &[u8], root: &[u8]) -> PyResult<Module> {
    let broken = |error: watm_runtime::seal::Refused| {
        ModuleError::new_err(format!("the root that came with this package: {error}"))
    };
    let root = SignedRoot::from_file(root)
        .and_then(Root::trust)
        .map_err(broken)?;
    let options = LoadOptions {
        trust: Some(Trust::packaged(root)),
        name: Some(format!("watm/{name}").parse().map_err(broken)?),
        ..LoadOptions::default()
    };
    py.detach(|| engine()?.load_with(name, data, &options))
        .map(Module)
        .map_err(runtime_error)
}

fn options(unsealed: bool) -> LoadOptions {
    LoadOptions {
        unsealed,
        ..LoadOptions::default()
    }
}

/// That of the process.
pub(crate) fn engine() -> Result<Engine, watm_runtime::Error> {
    static ENGINE: Mutex<Option<Engine>> = Mutex::new(None);
    let mut engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*engine {
        Some(engine) => Ok(engine.clone()),
        None => {
            let built = BuiltIn::of_release()?;
            let trust = Trust::of_user()
                .built_in(built.root, built.floors)
                .grants(Grants::of_user()?);
            let config = EngineConfig {
                trust,
                ..EngineConfig::default()
            };
            Ok(engine.insert(Engine::new(config)?).clone())
        }
    }
}

/// What is proven about a module.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Seal {
    /// What it is: an update has the same name.
    name: String,
    /// "EPOCH.SEQUENCE", of which the greater is the newer.
    release: String,
    /// For people.
    version: String,
    /// From when on it is loaded no more, in seconds since 1970.
    expires: u64,
    /// The delegation that it is signed under.
    delegation: String,
    /// The public keys that signed it.
    signers: Vec<String>,
    /// The id of the root.
    root: String,
    /// Its version.
    root_version: u32,
}

impl From<&Proof> for Seal {
    fn from(proof: &Proof) -> Seal {
        let manifest = &proof.manifest;
        Seal {
            name: manifest.name.to_string(),
            release: manifest.release.to_string(),
            version: manifest.version.clone(),
            expires: manifest.expires,
            delegation: proof.delegation.to_string(),
            signers: proof.signers.iter().map(ToString::to_string).collect(),
            root: proof.root.id().to_string(),
            root_version: proof.root.record().version,
        }
    }
}

/// See [`Module::asked`].
pub(crate) fn asked(module: &watm_runtime::Module) -> Option<Capabilities> {
    let proof = module.seal()?;
    Some((&proof.manifest.capabilities).into())
}

/// See [`Module::granted`].
pub(crate) fn granted(module: &watm_runtime::Module) -> Option<Capabilities> {
    module.may_have().as_ref().map(Capabilities::from)
}

/// What a module may have at most.
#[derive(Clone)]
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Capabilities {
    /// Outer sockets: "udp listen".
    sockets: Vec<String>,
    /// Where it may connect to of its own choice, as patterns.
    connect: Vec<String>,
    /// Whether it may use the host's ciphers.
    host_crypto: bool,
    /// Whether its flows may go on from their clients' addresses.
    bind_transparent: bool,
    host_keys: bool,
    /// Whether it may give copies of what it carries to a user who wants them.
    capture: bool,
    /// Memory of an instance.
    memory_bytes: u64,
    /// Share of one core, in thousandths.
    cpu_permille: u32,
    /// Flows open at once.
    flows: u32,
    /// Instances at once.
    instances: u32,
}

impl From<&seal::Capabilities> for Capabilities {
    fn from(most: &seal::Capabilities) -> Capabilities {
        Capabilities {
            sockets: most.sockets.iter().map(ToString::to_string).collect(),
            connect: most.connect.iter().map(ToString::to_string).collect(),
            host_crypto: most.host_crypto,
            bind_transparent: most.bind_transparent,
            host_keys: most.host_keys,
            capture: most.capture,
            memory_bytes: most.memory_bytes,
            cpu_permille: most.cpu_permille,
            flows: most.flows,
            instances: most.instances,
        }
    }
}
