//! Compiled modules, and the engine of the process. `modules.py` loads them.

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

    /// The kind of file: "component", "WATER v0 module" or "WATER v1 module".
    #[getter]
    fn kind(&self) -> String {
        self.0.info().kind.to_string()
    }

    /// The roles of a WATER module: "dialer", "fixed dialer", "listener", "relay".
    #[getter]
    fn roles(&self) -> Vec<String> {
        self.0
            .info()
            .roles
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// The protocols it can listen on, the usual one first: "udp", "tcp".
    #[getter]
    fn listens_on(&self) -> Vec<String> {
        self.0
            .listens_on()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// The description of itself in JSON, if it has one.
    #[getter]
    fn about(&self) -> Option<String> {
        let about = self.0.info().about.as_ref();
        about.map(watm_runtime::About::to_json)
    }

    /// True if it can use a device for packets.
    #[getter]
    fn takes_packets(&self) -> bool {
        self.0.takes_packets()
    }

    /// The imports that it requires.
    #[getter]
    fn imports(&self) -> Vec<String> {
        self.0.info().imports.clone()
    }

    /// The verified seal: name, release, version, expiry, signers and root. None if it has no seal,
    /// and was loaded for development.
    #[getter]
    fn seal(&self) -> Option<Seal> {
        self.0.seal().map(Seal::from)
    }

    /// The capabilities that its seal requests. None if it has no seal.
    #[getter]
    fn asked(&self) -> Option<Capabilities> {
        asked(&self.0)
    }

    /// The most capabilities that it may use: those requested, limited to the user's grant for its
    /// name. None if it has no seal, and no such limit.
    #[getter]
    fn granted(&self) -> Option<Capabilities> {
        granted(&self.0)
    }

    /// Current warnings: that it has no seal, expires soon or has expired.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        let warnings = self.0.warnings();
        warnings.iter().map(ToString::to_string).collect()
    }

    /// Its SHA-256, in hexadecimal.
    #[getter]
    fn sha256(&self) -> &str {
        &self.0.info().sha256
    }

    fn __repr__(&self) -> String {
        format!("<Module {}>", self.0.name())
    }
}

/// Compiles the module in a file, if the user trusts its seal. May take seconds for a module that
/// is not in the cache; other Python threads continue meanwhile. With `unsealed`, the seal may be
/// missing.
#[pyfunction]
#[pyo3(signature = (path, *, unsealed))]
pub fn load_file(py: Python<'_>, path: PathBuf, unsealed: bool) -> PyResult<Module> {
    py.detach(|| engine()?.load_file_with(&path, &options(unsealed)))
        .map(Module)
        .map_err(runtime_error)
}

/// Compiles the module in `data`, as `load_file` does. `name` is its name in records and errors.
#[pyfunction]
#[pyo3(signature = (name, data, *, unsealed))]
pub fn load(py: Python<'_>, name: &str, data: &[u8], unsealed: bool) -> PyResult<Module> {
    py.detach(|| engine()?.load_with(name, data, &options(unsealed)))
        .map(Module)
        .map_err(runtime_error)
}

/// Returns the name that a module's seal claims, without verification. None if it has no seal.
#[pyfunction]
pub fn claimed_name(data: &[u8]) -> Option<String> {
    let sealed = seal::Sealed::parse(data).ok()?;
    Some(sealed.manifest().name.to_string())
}

/// Returns a module's description of itself in JSON, without verification. None if it has none, or is no
/// module.
#[pyfunction]
pub fn describe(py: Python<'_>, data: &[u8]) -> Option<String> {
    py.detach(|| Some(watm_runtime::inspect(data).ok()?.about?.to_json()))
}

/// Compiles the module in `data`, which is part of this package and sealed as `watm/NAME` under the
/// root in `root`.
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

/// Returns the engine of the process.
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

/// The verified statements about a module.
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Seal {
    /// Its name, which its updates share.
    name: String,
    /// The release, "EPOCH.SEQUENCE". The greater is the newer.
    release: String,
    /// The version for people.
    version: String,
    /// The time from which it is no longer loaded, in seconds since 1970.
    expires: u64,
    /// The delegation that it is signed under.
    delegation: String,
    /// The public keys that signed it.
    signers: Vec<String>,
    /// The id of the root.
    root: String,
    /// The version of the root.
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

/// Implements [`Module::asked`].
pub(crate) fn asked(module: &watm_runtime::Module) -> Option<Capabilities> {
    let proof = module.seal()?;
    Some((&proof.manifest.capabilities).into())
}

/// Implements [`Module::granted`].
pub(crate) fn granted(module: &watm_runtime::Module) -> Option<Capabilities> {
    module.may_have().as_ref().map(Capabilities::from)
}

/// The most capabilities that a module may use.
#[derive(Clone)]
#[pyclass(frozen, get_all, module = "mitmproxy_watm._native")]
pub struct Capabilities {
    /// Outer sockets: "udp listen".
    sockets: Vec<String>,
    /// Patterns of destinations that it may choose itself.
    connect: Vec<String>,
    /// True if it may use the host's ciphers.
    host_crypto: bool,
    /// True if its flows may continue from their clients' addresses.
    bind_transparent: bool,
    host_keys: bool,
    /// True if it may provide captures of its traffic to a user who enables them.
    capture: bool,
    /// Memory of an instance, in bytes.
    memory_bytes: u64,
    /// CPU quota, in thousandths of one core.
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
