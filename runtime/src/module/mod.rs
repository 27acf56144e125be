//! Modules: loading, which inspects, verifies and compiles them. `Engine` loads them.

mod granted;

use std::fmt;
use std::sync::Arc;

use wasmtime::component::Component;
use watm_seal::{Digest, Proof, Warning};

use crate::engine::Compiled;
use crate::{Engine, Error, LoadOptions, Network, Role, Trust, component};
use watm_net::sockets::{BindTransparent, TransparentOptions};
use watm_policy::inspection::{ModuleInfo, budget, inspect, manifest};
use watm_policy::trust::{Seal, now, watch};
use watm_policy::water_abi::Abi;

/// A compiled module. Clones share the code; any number of servers can run it.
#[derive(Clone)]
pub struct Module {
    inner: Arc<Inner>,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Module").field(&self.inner.name).finish()
    }
}

struct Inner {
    name: String,
    info: ModuleInfo,
    engine: Engine,
    prepared: Prepared,
    seal: Arc<Seal>,
}

/// The compiled form, by kind.
enum Prepared {
    Component(component::Prepared),
    Water(crate::water::Prepared),
}

impl Module {
    pub(crate) fn load(
        engine: &Engine,
        name: &str,
        bytes: &[u8],
        trust: &Trust,
        options: &LoadOptions,
    ) -> Result<Module, Error> {
        let refuse = |reason: String| Error::Module {
            module: name.to_owned(),
            reason,
        };
        inspect::check_header(bytes).map_err(refuse)?;
        let seal = match trust.verify(name, bytes, options) {
            Ok(seal) => Arc::new(seal),
            // A file that was damaged during development: the damage says more than the lack of a
            // seal.
            Err(Error::Untrusted { code, reason, .. })
                if ["malformed", "not-wasm"].contains(&code) && trust.allows_unsealed(options) =>
            {
                return Err(refuse(inspect::examine(bytes).err().unwrap_or(reason)));
            }
            Err(error) => return Err(error),
        };
        let info = inspect::examine(bytes).map_err(refuse)?;
        inspect::check_runnable(&info).map_err(refuse)?;
        if let Some(proof) = &seal.proof {
            manifest::check(&proof.manifest, &info).map_err(refuse)?;
        }
        let sha256 = inspect::sha256(bytes);
        let wasmtime = engine.wasmtime();
        let prepared = match Abi::of(info.kind) {
            None => compile::<Component>(engine, sha256.as_ref(), bytes)
                .and_then(|component| component::Prepared::new(wasmtime, &component, &info))
                .map(Prepared::Component),
            Some(abi) => compile::<wasmtime::Module>(engine, sha256.as_ref(), bytes)
                .and_then(|module| crate::water::Prepared::new(wasmtime, &module, abi))
                .map(Prepared::Water),
        };
        let prepared = prepared.map_err(|reason| refuse(inspect::one_line(&reason)))?;
        watch(name, Digest::of(bytes), &seal);
        Ok(Module {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                info,
                engine: engine.clone(),
                prepared,
                seal,
            }),
        })
    }

    /// Returns the file or the name it was loaded under.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns its imports, exports and other facts.
    pub fn info(&self) -> &ModuleInfo {
        &self.inner.info
    }

    /// Returns the proof by which it was loaded: what its signers say about it, who they are, and
    /// under which root. `None` for an unsealed module that was allowed.
    pub fn seal(&self) -> Option<&Proof> {
        self.inner.seal.proof.as_ref()
    }

    /// Returns the warnings as of now: that it is not sealed, expires soon or has expired, or that
    /// a newer release has been announced.
    pub fn warnings(&self) -> Vec<Warning> {
        self.inner.seal.warnings(now())
    }

    pub(crate) fn seal_details(&self) -> &Seal {
        &self.inner.seal
    }

    /// Returns true if its acceptance is written, or need not be.
    pub(crate) fn is_remembered(&self) -> bool {
        self.inner.seal.is_remembered()
    }

    /// Checks that [`accept`](Module::accept) would most likely work now, before a step that would
    /// otherwise have to be undone.
    pub(crate) fn check_memory(&self) -> Result<(), Error> {
        self.inner.seal.check_memory()
    }

    /// Writes its acceptance to the state: it has started, and nothing older is loaded from now on.
    /// Further calls have no effect.
    pub(crate) fn accept(&self) -> Result<(), Error> {
        self.inner.seal.accept()
    }

    /// Returns the protocols that it can listen on with the socket `listen`, the usual first:
    /// datagrams by [`Network::Udp`], connections by [`Network::Tcp`]. A component's imports tell,
    /// and a WATER module's roles.
    pub fn listens_on(&self) -> &[Network] {
        match &self.inner.prepared {
            Prepared::Component(prepared) => &prepared.sockets,
            Prepared::Water(_) if self.inner.info.roles.contains(&Role::Listener) => {
                &[Network::Tcp]
            }
            Prepared::Water(_) => &[],
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Returns the component, if it is one.
    pub(crate) fn component(&self) -> Option<&component::Prepared> {
        match &self.inner.prepared {
            Prepared::Component(prepared) => Some(prepared),
            Prepared::Water(_) => None,
        }
    }

    /// Returns the WATER module, if it is one.
    pub(crate) fn water(&self) -> Option<&crate::water::Prepared> {
        match &self.inner.prepared {
            Prepared::Water(prepared) => Some(prepared),
            Prepared::Component(_) => None,
        }
    }
}

impl Module {
    /// Returns the permission to pass its flows on from their clients' addresses. Fails with
    /// [`Error::NotGranted`] if its seal or the user's grant has no `bind-transparent`, and with
    /// [`Error::Options`] on systems other than Linux.
    ///
    /// `watm doctor` reports what the process and the machine need for it.
    pub fn bind_transparent(&self, options: TransparentOptions) -> Result<BindTransparent, Error> {
        let refuse = |reason| Error::NotGranted {
            module: self.name().to_owned(),
            reason,
        };
        self.granted().check_bind_transparent().map_err(refuse)?;
        BindTransparent::of_user(options)
    }
}

/// Gets the compiled form from the cache, or compiles the module and stores the result.
fn compile<C: Compiled>(engine: &Engine, sha256: &[u8], bytes: &[u8]) -> Result<C, String> {
    let cached = engine
        .cache()
        .and_then(|cache| cache.get(engine.wasmtime(), sha256));
    if let Some(compiled) = cached {
        return Ok(compiled);
    }
    budget::check(bytes)?;
    let compiled = C::compile(engine.wasmtime(), bytes)
        .map_err(|error| format!("not a valid {}: {error:#}", C::KIND))?;
    if let Some(cache) = engine.cache() {
        cache.put(sha256, &compiled);
    }
    Ok(compiled)
}
