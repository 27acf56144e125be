//! Modules: looked at, checked, compiled.

mod inspect;

use std::fmt::Write;
use std::sync::Arc;

use wasmtime::component::Component;

pub use inspect::{ModuleInfo, ModuleKind, inspect};

use crate::component::Prepared;
use crate::{Engine, Error};

/// The largest module that is loaded. A transport with its ciphers is under 1 MiB;
/// compiling takes memory in proportion, so a wrong file is refused before that.
pub(crate) const MAX_MODULE_BYTES: usize = 64 << 20;

/// A compiled module. Clones share the code; any number of servers can run it.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    info: ModuleInfo,
    engine: Engine,
    prepared: Prepared,
}

impl Module {
    pub(crate) fn load(engine: &Engine, name: &str, bytes: &[u8]) -> Result<Module, Error> {
        let refuse = |reason: String| Error::Module {
            module: name.to_owned(),
            reason,
        };
        let info = inspect::examine(bytes).map_err(refuse)?;
        inspect::check_runnable(&info).map_err(refuse)?;
        let wasmtime = engine.wasmtime();
        let sha256 = inspect::sha256(bytes);
        let cached = engine
            .cache()
            .and_then(|cache| cache.get(wasmtime, sha256.as_ref()));
        let component = match cached {
            Some(component) => component,
            None => {
                let component = Component::from_binary(wasmtime, bytes)
                    .map_err(|error| refuse(format!("not a valid component: {error:#}")))?;
                if let Some(cache) = engine.cache() {
                    cache.put(sha256.as_ref(), &component);
                }
                component
            }
        };
        let prepared = Prepared::new(wasmtime, &component, &info).map_err(refuse)?;
        Ok(Module {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                info,
                engine: engine.clone(),
                prepared,
            }),
        })
    }

    /// The file or the name it was loaded under.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What it imports and exports.
    pub fn info(&self) -> &ModuleInfo {
        &self.inner.info
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn prepared(&self) -> &Prepared {
        &self.inner.prepared
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a string does not fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}
