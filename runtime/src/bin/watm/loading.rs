use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use watm_runtime::{Engine, EngineConfig, LoadOptions, Module};
use watm_seal::{Digest, Name, Release};

use crate::failure::Failure;
use crate::sealing::{StateOptions, read_complete_root};

/// Which module a command wants, and whom it believes about it.
#[derive(clap::Args)]
pub(crate) struct LoadingOptions {
    /// For development: run the module although it has no seal.
    #[arg(long)]
    unsealed: bool,
    /// Must be this module.
    #[arg(long)]
    name: Option<Name>,
    /// Must be for this channel.
    #[arg(long)]
    channel: Option<Name>,
    /// A group that this host belongs to; may be given several times.
    #[arg(long = "audience", value_name = "NAME")]
    audiences: Vec<Name>,
    /// Must be the file with this SHA-256; may be given several times.
    #[arg(long = "pin", value_name = "SHA256")]
    pins: Vec<Digest>,
    /// Run this release although a newer one was run.
    #[arg(long, value_name = "EPOCH.SEQUENCE", requires = "name")]
    allow_downgrade: Option<Release>,
    /// The root to trust. By default the one that `watm trust` was told of.
    #[arg(long, value_name = "ROOT")]
    root: Option<PathBuf>,
    #[command(flatten)]
    state: StateOptions,
}

impl LoadingOptions {
    /// As for a module that can do nothing: it needs no approval.
    pub(crate) fn load_for_replay(&self, path: &Path) -> Result<Module, Failure> {
        self.load_approved(path, true)
    }

    /// Verify it, look at it, and compile it.
    pub(crate) fn load(&self, path: &Path) -> Result<Module, Failure> {
        self.load_approved(path, false)
    }

    fn load_approved(&self, path: &Path, approve: bool) -> Result<Module, Failure> {
        let root = match &self.root {
            Some(path) => Some(read_complete_root(path)?),
            None => None,
        };
        let engine = Engine::new(EngineConfig {
            trust: self.state.trust().built_in(root, BTreeMap::new()),
            ..EngineConfig::default()
        })?;
        let options = LoadOptions {
            name: self.name.clone(),
            channel: self.channel.clone(),
            audiences: self.audiences.iter().cloned().collect(),
            pins: self.pins.iter().copied().collect(),
            allow_downgrade: self.allow_downgrade,
            approve,
            unsealed: self.unsealed,
            ..LoadOptions::default()
        };
        Ok(engine.load_file_with(path, &options)?)
    }
}
