//! The engine: loads modules for servers, dialers, listeners and relays.

use std::fs;
use std::io::Read;
use std::path::Path;

use watm_engine::{CacheDir, Code, Execution};
use watm_policy::inspection::MAX_MODULE_BYTES;

use crate::{Error, LoadOptions, Module, Trust};

/// Compiles modules. One engine for each process is enough; clones share everything.
#[derive(Clone)]
pub struct Engine {
    inner: watm_engine::Engine,
    trust: Trust,
}

/// Options of an [`Engine`].
#[derive(Debug, Clone, Default)]
pub struct EngineConfig {
    /// The directory of compiled modules.
    pub cache: CacheDir,
    /// The trust in the signers of modules.
    pub trust: Trust,
}

impl Engine {
    /// Makes an engine. Fails if a given cache directory is not private to the user, or if the
    /// environment variable `WATM_ENGINE` is neither `native` nor `pulley`.
    pub fn new(config: EngineConfig) -> Result<Engine, Error> {
        Ok(Engine {
            inner: watm_engine::Engine::new(config.cache)?,
            trust: config.trust,
        })
    }

    /// Loads a module from a file. The first time it is compiled, which takes a tenth of a second
    /// or more of every core; then it comes from the cache.
    ///
    /// The file is read once, so that the verified bytes are the ones that are compiled. A compiled
    /// module only ever comes from the cache. Errors name the file, the fault, and the remedy;
    /// [`Error::Untrusted`] is a module whose seal is not valid here.
    pub fn load_file(&self, path: impl AsRef<Path>) -> Result<Module, Error> {
        self.load_file_with(path, &LoadOptions::default())
    }

    /// Loads a module as [`load_file`](Engine::load_file), and checks it against `options`.
    pub fn load_file_with(
        &self,
        path: impl AsRef<Path>,
        options: &LoadOptions,
    ) -> Result<Module, Error> {
        let path = path.as_ref();
        let bytes = read_module(path).map_err(|source| Error::File {
            path: path.to_owned(),
            source,
        })?;
        self.load_with(&path.display().to_string(), &bytes, options)
    }

    /// Loads a module from memory; `name` stands for it in errors and logs.
    pub fn load(&self, name: &str, bytes: &[u8]) -> Result<Module, Error> {
        self.load_with(name, bytes, &LoadOptions::default())
    }

    /// Loads a module as [`load`](Engine::load), and checks it against `options`.
    pub fn load_with(
        &self,
        name: &str,
        bytes: &[u8],
        options: &LoadOptions,
    ) -> Result<Module, Error> {
        let trust = options.trust.as_ref().unwrap_or(&self.trust);
        let module = self.inner.load(name, bytes, trust, options)?;
        match module.code() {
            Code::Component(_) => watm_component::check_linked(&module)?,
            #[cfg(feature = "programs")]
            Code::Program(_) => watm_wasi::check_linked(&module)?,
            #[cfg(not(feature = "programs"))]
            Code::Program(_) => {
                return Err(Error::Module {
                    module: name.to_owned(),
                    reason: "is a program of WASI 0.2, which this build does not run; use the \
                             command watm"
                        .to_owned(),
                });
            }
            Code::Water(..) => watm_water::check_linked(&module)?,
        }
        Ok(module)
    }

    /// Returns how modules run: as machine code, or in an interpreter if the system forbids machine
    /// code that is made at run time, or if `WATM_ENGINE` is `pulley`.
    pub fn execution(&self) -> Execution {
        self.inner.execution()
    }

    /// Returns the trust in the signers of modules.
    #[cfg(feature = "update")]
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }
}

/// Reads a file, up to one byte more than a module may have, so that a device or a disk image given
/// by mistake does not fill the memory.
fn read_module(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::IsADirectory,
            "is a directory; name the .wasm file in it",
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_MODULE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
