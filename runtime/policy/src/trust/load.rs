//! Options of loading a module, which applications pass to `Engine`.

use std::collections::BTreeSet;

use watm_seal::{Digest, ModuleRole, Name, Release};

use super::Trust;

/// Requirements of one load, beyond those of the engine. By default none.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The trust in signers, in place of the engine's.
    pub trust: Option<Trust>,
    /// The required name of the module.
    pub name: Option<Name>,
    /// The required role for connections.
    pub role: Option<ModuleRole>,
    /// The channel that this host follows.
    pub channel: Option<Name>,
    /// The groups that this host belongs to.
    pub audiences: BTreeSet<Name>,
    /// The schema of the host's configuration.
    pub config_schema: Option<u32>,
    /// Allows only files with one of these SHA-256. Empty: any.
    pub pins: BTreeSet<Digest>,
    /// Allows exactly this release of `name` although a newer one was loaded, for this time only;
    /// never below a floor.
    pub allow_downgrade: Option<Release>,
    /// True if the user has seen what this module asks for, and approved it.
    pub approve: bool,
    /// Loads the module even if it has no seal at all, for development.
    pub unsealed: bool,
}
