//! Options for loading modules: the root, grants, pins and expectations. All commands that load a
//! module use them.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use watm_runtime::{BuiltIn, Engine, EngineConfig, Error, Grants, LoadOptions, Module, Trust};
use watm_seal::{Digest, Root, Sealed};
use watm_sealing::read_complete_root;

use crate::approval_prompt;
use crate::failure::Failure;
use crate::inputs::read;
use crate::logging;
use crate::sealing::{Expected, StateOptions, invalid};

/// Options for loading a module: expectations about it, and the trust in its signers.
#[derive(Clone, clap::Args)]
pub(crate) struct LoadingOptions {
    /// Run the module although it has no seal; for development.
    #[arg(long)]
    unsealed: bool,
    #[command(flatten)]
    expected: Expected,
    /// Accept only a file with this SHA-256; may be given several times.
    #[arg(long = "pin", value_name = "SHA256")]
    pins: Vec<Digest>,
    /// Root to trust. By default the one that `watm trust` recorded.
    #[arg(long, value_name = "ROOT")]
    root: Option<PathBuf>,
    /// Capabilities that modules are granted, by name. By default `watm/grants.toml` in the user's
    /// configuration folder, if it exists.
    #[arg(long, value_name = "FILE")]
    grants: Option<PathBuf>,
    #[command(flatten)]
    state: StateOptions,
    /// True if the state stays as it is.
    #[arg(skip)]
    trial: bool,
}

impl LoadingOptions {
    /// Returns the options for an additional module: the same trust, without expectations about the
    /// name.
    pub(crate) fn for_another(&self) -> LoadingOptions {
        LoadingOptions {
            expected: Expected {
                audiences: self.expected.audiences.clone(),
                ..Expected::default()
            },
            pins: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the options for a module that replaces a running one by itself: the same name,
    /// unless the options have one.
    pub(crate) fn bound_to(&self, running: &Module) -> LoadingOptions {
        let mut bound = self.clone();
        let name = running.seal().map(|proof| proof.manifest.name.clone());
        bound.expected.name = bound.expected.name.or(name);
        bound
    }

    /// Returns the options for a module that is only tried: it does not count as run.
    pub(crate) fn for_trial(&self) -> LoadingOptions {
        LoadingOptions {
            trial: true,
            ..self.clone()
        }
    }

    /// Loads a module for a replay. It can do nothing, so it needs no approval.
    pub(crate) fn load_for_replay(&self, path: &Path) -> Result<Module, Failure> {
        Ok(self.load_as(path, true, None)?)
    }

    /// Verifies, inspects and compiles a module. `asks` is true if standard input carries no data,
    /// so that a person at a terminal can approve its capabilities.
    pub(crate) fn load(&self, path: &Path, asks: bool) -> Result<Module, Failure> {
        let loaded = self.load_as(path, false, None);
        let needs_approval = loaded.as_ref().is_err_and(Fault::needs_approval);
        if needs_approval && asks && io::stdin().is_terminal() && logging::can_ask() {
            let shown = approval_prompt::ask(path)?;
            return Ok(self.load_as(path, true, Some(shown))?);
        }
        Ok(loaded?)
    }

    /// Loads a module without a question. Returns `None` for one that waits for its approval.
    pub(crate) fn load_if_approved(&self, path: &Path) -> Result<Option<Module>, Failure> {
        match self.load_as(path, false, None) {
            Ok(module) => Ok(Some(module)),
            Err(fault) if fault.needs_approval() => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Returns the options for updates of the module in this file, which must have its name if it
    /// has one.
    pub(crate) fn for_updates(&self, path: &Path) -> Result<LoadOptions, Failure> {
        let options = self.options(false, None);
        if options.name.is_some() {
            return Ok(options);
        }
        let bytes = read(path)?;
        let sealed = Sealed::parse(&bytes).ok();
        Ok(LoadOptions {
            name: sealed.map(|sealed| sealed.manifest().name.clone()),
            ..options
        })
    }

    /// Creates an engine that trusts the configured root.
    pub(crate) fn engine(&self) -> Result<Engine, Failure> {
        Ok(Engine::new(EngineConfig {
            trust: self.trust()?,
            ..EngineConfig::default()
        })?)
    }

    /// Returns the option for the state.
    pub(crate) fn state(&self) -> &StateOptions {
        &self.state
    }

    /// Returns the trust that these options describe.
    pub(crate) fn trust(&self) -> Result<Trust, Failure> {
        let root = match &self.root {
            Some(path) => Some(self.explicit_root(path)?),
            None => None,
        };
        let grants = match &self.grants {
            Some(path) => Grants::read(path)?,
            None => Grants::of_user()?,
        };
        let built = BuiltIn::of_release()?;
        let trust = self
            .state
            .trust()
            .built_in(root.or(built.root), built.floors);
        let trust = trust.grants(grants);
        match self.trial {
            true => Ok(trust.for_trial()?),
            false => Ok(trust),
        }
    }

    /// Reads the root in this file. A state belongs to one root: with another root's state, no
    /// module could be judged by this one.
    fn explicit_root(&self, path: &Path) -> Result<Root, Failure> {
        let root = read_complete_root(path)?;
        // Without a folder for states, there is no state of another root.
        let Ok(store) = self.state.open() else {
            return Ok(root);
        };
        let state = store.load().map_err(Failure::unusable)?;
        match state.root().map(Root::id) {
            Some(known) if known != root.id() => Err(invalid(
                path,
                format!(
                    "--root: is the root {}, but {} trusts {known}; pass that root, or another \
                     file with --state",
                    root.id(),
                    store.path().display()
                ),
            )),
            _ => Ok(root),
        }
    }

    /// Loads a module. With `only`, it must be the file with this SHA-256.
    fn load_as(&self, path: &Path, approve: bool, only: Option<Digest>) -> Result<Module, Fault> {
        let options = self.options(approve, only);
        Ok(self.engine()?.load_file_with(path, &options)?)
    }

    /// Returns the expectations about the module. With `only`, it must be the file with this
    /// SHA-256.
    pub(crate) fn options(&self, approve: bool, only: Option<Digest>) -> LoadOptions {
        LoadOptions {
            name: self.expected.name.clone(),
            channel: self.expected.channel.clone(),
            audiences: self.expected.audiences.iter().cloned().collect(),
            pins: only.map_or_else(|| self.pins.iter().copied().collect(), |only| [only].into()),
            allow_downgrade: self.expected.allow_downgrade,
            approve,
            unsealed: self.unsealed,
            ..LoadOptions::default()
        }
    }
}

/// The reason why a module was not loaded.
enum Fault {
    Load(Error),
    Other(Failure),
}

impl Fault {
    fn needs_approval(&self) -> bool {
        matches!(self, Fault::Load(Error::Untrusted { code, .. }) if *code == "needs-approval")
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Load(error)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        Fault::Other(failure)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        match fault {
            Fault::Load(error) => error.into(),
            Fault::Other(failure) => failure,
        }
    }
}
