use std::collections::BTreeSet;

use watm_seal::{Digest, ModuleRole, Name, Release};

use super::Trust;

/// What one load wants of a module, beyond what the engine wants of all. By default nothing.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Whom to believe, in the place of the engine's.
    pub trust: Option<Trust>,
    /// The module that is asked for.
    pub name: Option<Name>,
    /// What it is to do with connections.
    pub role: Option<ModuleRole>,
    /// The channel that this host follows.
    pub channel: Option<Name>,
    /// The groups that this host belongs to.
    pub audiences: BTreeSet<Name>,
    /// The configuration that is at hand.
    pub config_schema: Option<u32>,
    /// Load files with one of these SHA-256 only. Empty: any.
    pub pins: BTreeSet<Digest>,
    /// Load exactly this release of `name` although a newer one was, for this time only; never
    /// below a floor.
    pub allow_downgrade: Option<Release>,
    /// The user has seen what this module asks for, and said yes.
    pub approve: bool,
    /// The switch for development: load it although it has no seal at all.
    pub unsealed: bool,
}
