//! One compiler and one clock tick for all servers of a process. Modules are loaded through it.

mod cache;
mod ticker;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use cache::Compiled;
pub(crate) use ticker::Ticking;

use crate::module::Module;
use crate::{Error, LoadOptions, Trust};
use cache::Cache;
use ticker::Ticker;
use watm_policy::inspection::MAX_MODULE_BYTES;

/// Compiles modules. One engine for each process is enough; clones share everything.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasmtime: wasmtime::Engine,
    cache: Option<Cache>,
    ticker: Ticker,
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

/// The directory of compiled modules, with which a second start takes a millisecond.
#[derive(Debug, Clone, Default)]
pub enum CacheDir {
    /// `watm` in the user's cache directory (`$XDG_CACHE_HOME`, `~/.cache`, on Windows
    /// `%LOCALAPPDATA%`), created with mode 0700 where there are modes. If it is not private or
    /// cannot be created, a warning is logged and nothing is cached.
    #[default]
    Default,
    /// This directory, created if missing. [`Engine::new`] fails if it is not private; on Windows
    /// the caller must make sure of that.
    Path(PathBuf),
    /// No cache.
    Off,
}

impl Engine {
    /// Makes an engine. Fails if a given cache directory is not private to the user.
    pub fn new(config: EngineConfig) -> Result<Engine, Error> {
        let wasmtime = wasmtime::Engine::new(&wasmtime_config())
            .map_err(|error| Error::System(format!("wasmtime: {error:#}")))?;
        let cache = match config.cache {
            CacheDir::Off => None,
            CacheDir::Path(path) => Some(Cache::open(path, &wasmtime)?),
            CacheDir::Default => match Cache::default_path() {
                None => None,
                Some(path) => Cache::open(path, &wasmtime)
                    .inspect_err(|error| {
                        tracing::warn!(target: "watm::engine", "compiled modules are not cached: {error}");
                    })
                    .ok(),
            },
        };
        Ok(Engine {
            inner: Arc::new(Inner {
                ticker: Ticker::new(wasmtime.clone()),
                wasmtime,
                cache,
                trust: config.trust,
            }),
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
        let trust = options.trust.as_ref().unwrap_or(&self.inner.trust);
        Module::load(self, name, bytes, trust, options)
    }

    /// Returns the trust in the signers of modules.
    #[cfg(feature = "update")]
    pub(crate) fn trust(&self) -> &Trust {
        &self.inner.trust
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.wasmtime
    }

    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.inner.cache.as_ref()
    }

    /// Advances the epoch for as long as the result lives.
    pub(crate) fn tick(&self) -> Result<Ticking, Error> {
        self.inner.ticker.start()
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

/// The stack of a call: twice the size that wasmtime gives a module.
const ASYNC_STACK_BYTES: usize = 1 << 20;

fn wasmtime_config() -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    // The deadline of a call is checked at every tick; see `component::cpu`.
    config.epoch_interruption(true);
    // Names in a backtrace come from the module's name section; more is not worth reading DWARF
    // for.
    config.wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable);
    // The instructions of a module determine what it needs. SIMD is enabled, because ciphers depend
    // on it. Relaxed SIMD differs between machines.
    config.wasm_relaxed_simd(false);
    // A recording replays on any machine, so a NaN has the same bits on all of them.
    config.cranelift_nan_canonicalization(true);
    // The stack of a call that may wait: half for the module, as by default, and half for the
    // host's functions under it. Only the used part takes memory.
    config.async_stack_size(ASYNC_STACK_BYTES);
    config
}
