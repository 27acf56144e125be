//! Modules: loading, which inspects, verifies and compiles them. `Engine` loads them, and hosts link
//! and run them.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;
use watm_seal::{Digest, Proof, Warning};

use watm_net::sockets::{BindTransparent, TransparentOptions};
use watm_policy::inspection::{ModuleInfo, budget, inspect, manifest, older};
use watm_policy::trust::{Seal, now, watch};
use watm_policy::water_abi::Abi;
use watm_policy::{LoadOptions, Trust};

use crate::cache::Compiled;
use crate::{Engine, Error, ModuleKind, Network, Role};

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
    code: Code,
    /// The protocols that it can listen on.
    listens_on: Vec<Network>,
    /// The form that its host has linked.
    linked: OnceLock<Arc<dyn Any + Send + Sync>>,
    seal: Arc<Seal>,
}

/// The compiled code of a module, by kind.
pub enum Code {
    /// A component.
    Component(Component),
    /// A program, which is a component for another world.
    Program(Component),
    /// A WATER module, with the names of its version.
    Water(wasmtime::Module, &'static Abi),
}

impl Module {
    #[doc(hidden)]
    pub fn load(
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
        let code = match Abi::of(info.kind) {
            None if info.kind == ModuleKind::Program => compile(engine, bytes).map(Code::Program),
            None => compile(engine, &older::renamed(bytes)).map(Code::Component),
            Some(abi) => compile(engine, bytes).map(|code| Code::Water(code, abi)),
        };
        let code = code.map_err(|reason| refuse(inspect::one_line(&reason)))?;
        let listens_on = match &code {
            Code::Component(component) => sockets(engine.wasmtime(), component),
            Code::Water(..) if info.roles.contains(&Role::Listener) => vec![Network::Tcp],
            Code::Water(..) => Vec::new(),
            Code::Program(_) => vec![Network::Tcp],
        };
        watch(name, Digest::of(bytes), &seal);
        Ok(Module {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                info,
                engine: engine.clone(),
                code,
                listens_on,
                linked: OnceLock::new(),
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

    #[doc(hidden)]
    pub fn seal_details(&self) -> &Seal {
        &self.inner.seal
    }

    /// Returns true if its acceptance is written, or need not be.
    #[doc(hidden)]
    pub fn is_remembered(&self) -> bool {
        self.inner.seal.is_remembered()
    }

    /// Checks that [`accept`](Module::accept) would most likely work now, before a step that would
    /// otherwise have to be undone.
    #[doc(hidden)]
    pub fn check_memory(&self) -> Result<(), Error> {
        self.inner.seal.check_memory()
    }

    /// Writes its acceptance to the state: it has started, and nothing older is loaded from now on.
    /// Further calls have no effect.
    #[doc(hidden)]
    pub fn accept(&self) -> Result<(), Error> {
        self.inner.seal.accept()
    }

    /// Returns the protocols that it can listen on with the socket `listen`, the usual first:
    /// datagrams by [`Network::Udp`], connections by [`Network::Tcp`]. A component's imports tell,
    /// and a WATER module's roles.
    pub fn listens_on(&self) -> &[Network] {
        &self.inner.listens_on
    }

    /// Returns true if it is a component.
    #[doc(hidden)]
    pub fn is_component(&self) -> bool {
        self.inner.info.kind == ModuleKind::Component
    }

    #[doc(hidden)]
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Returns the compiled code.
    #[doc(hidden)]
    pub fn code(&self) -> &Code {
        &self.inner.code
    }

    /// Returns the form that a host has linked. `link` makes it the first time. A module has one
    /// host, by its kind, so that `T` is always the same.
    #[doc(hidden)]
    pub fn linked<T: Any + Send + Sync>(
        &self,
        link: impl FnOnce(&Module) -> Result<T, String>,
    ) -> Result<Arc<T>, Error> {
        let linked = match self.inner.linked.get() {
            Some(linked) => linked.clone(),
            None => {
                let made = link(self).map_err(|reason| Error::Module {
                    module: self.inner.name.clone(),
                    reason: inspect::one_line(&reason),
                })?;
                self.inner.linked.get_or_init(|| Arc::new(made)).clone()
            }
        };
        Ok(linked.downcast().expect("a module has one host"))
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
fn compile<C: Compiled>(engine: &Engine, bytes: &[u8]) -> Result<C, String> {
    let sha256 = inspect::sha256(bytes);
    let sha256 = sha256.as_ref();
    let cached = engine
        .cache()
        .and_then(|cache| cache.get(engine.wasmtime(), sha256));
    if let Some(compiled) = cached {
        return Ok(compiled);
    }
    budget::check(bytes)?;
    let invalid = |error: wasmtime::Error| format!("not a valid {}: {error:#}", C::KIND);
    let code = engine.compile::<C>(bytes).map_err(invalid)?;
    if let Some(cache) = engine.cache() {
        cache.put(sha256, &code);
    }
    // SAFETY: an engine with the same configuration has just made the code.
    unsafe { C::deserialize(engine.wasmtime(), &code) }.map_err(invalid)
}

/// Returns the protocols that a component can listen on, judged by its imports.
fn sockets(engine: &wasmtime::Engine, component: &Component) -> Vec<Network> {
    let component = component.component_type();
    let mut functions = Vec::new();
    for (name, import) in component.imports(engine) {
        if let ComponentItem::ComponentInstance(instance) = &import.ty
            && name.starts_with("watm:transport/sockets@")
        {
            functions.extend(instance.exports(engine).map(|(name, _)| name.to_owned()));
        }
    }
    [
        ("[static]datagram-socket.open", Network::Udp),
        ("[static]listener.open", Network::Tcp),
    ]
    .into_iter()
    .filter(|(open, _)| functions.iter().any(|function| function == open))
    .map(|(_, network)| network)
    .collect()
}
