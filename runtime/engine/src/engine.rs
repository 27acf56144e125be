//! One compiler and one clock tick for all servers of a process.

use std::path::PathBuf;
use std::sync::Arc;

use watm_policy::{LoadOptions, Trust};

use crate::allocator;
use crate::cache::{Cache, Compiled};
use crate::execution::Execution;
use crate::ticker::{Ticker, Ticking};
use crate::{Error, Module};

/// Compiles modules. Clones share everything.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    execution: Execution,
    wasmtime: wasmtime::Engine,
    cache: Option<Cache>,
    ticker: Ticker,
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
    /// Makes an engine. Fails if a given cache directory is not private to the user, or if the
    /// environment variable `WATM_ENGINE` is neither `native` nor `pulley`.
    pub fn new(cache: CacheDir) -> Result<Engine, Error> {
        let execution = Execution::choose()?;
        let wasmtime = wasmtime::Engine::new(&wasmtime_config(execution)?)
            .map_err(|error| Error::System(format!("wasmtime: {error:#}")))?;
        let cache = match cache {
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
                execution,
                ticker: Ticker::new(wasmtime.clone()),
                wasmtime,
                cache,
            }),
        })
    }

    /// Inspects, verifies and compiles a module. `name` stands for it in errors and logs. A host has
    /// to [link](Module::linked) it before it runs.
    pub fn load(
        &self,
        name: &str,
        bytes: &[u8],
        trust: &Trust,
        options: &LoadOptions,
    ) -> Result<Module, Error> {
        Module::load(self, name, bytes, trust, options)
    }

    /// Returns how modules run.
    pub fn execution(&self) -> Execution {
        self.inner.execution
    }

    /// Returns the compiler.
    pub fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.wasmtime
    }

    /// Compiles a module, with a compiler of its own: that of an engine keeps the memory that it has
    /// worked with for as long as the engine lives.
    pub(crate) fn compile<C: Compiled>(&self, bytes: &[u8]) -> wasmtime::Result<Vec<u8>> {
        let config = wasmtime_config(self.execution()).map_err(wasmtime::Error::new)?;
        let compiler = wasmtime::Engine::new(&config)?;
        let code = C::compile(&compiler, bytes);
        drop(compiler);
        allocator::trim();
        code
    }

    /// Returns the cache of compiled modules, if there is one.
    pub fn cache(&self) -> Option<&Cache> {
        self.inner.cache.as_ref()
    }

    /// Advances the epoch for as long as the result lives.
    pub fn tick(&self) -> Result<Ticking, Error> {
        self.inner.ticker.start()
    }
}

/// The stack of a call: twice the size that wasmtime gives a module.
const ASYNC_STACK_BYTES: usize = 1 << 20;

fn wasmtime_config(execution: Execution) -> Result<wasmtime::Config, Error> {
    let mut config = wasmtime::Config::new();
    // The deadline of a call is checked at every tick; see `cpu` of the component host.
    config.epoch_interruption(true);
    // Names in a backtrace come from the module's name section; more is not worth reading DWARF
    // for.
    config.wasm_backtrace_details(wasmtime::WasmBacktraceDetails::Disable);
    // The instructions of a module determine what it needs. SIMD is enabled, because ciphers depend
    // on it. Relaxed SIMD differs between machines.
    config.wasm_relaxed_simd(false);
    // Modules pass addresses of 32 bits to the host. A larger memory has nobody to serve.
    config.wasm_memory64(false);
    // A recording replays on any machine, so a NaN has the same bits on all of them.
    config.cranelift_nan_canonicalization(true);
    // The stack of a call that may wait: half for the module, as by default, and half for the
    // host's functions under it. Only the used part takes memory.
    config.async_stack_size(ASYNC_STACK_BYTES);
    // Traps arrive as signals, whose handlers pass on those that are not wasmtime's. A thread for
    // mach ports would take them from the rest of a process that embeds this one, such as Python.
    config.macos_use_mach_ports(false);
    execution.configure(&mut config)?;
    Ok(config)
}
