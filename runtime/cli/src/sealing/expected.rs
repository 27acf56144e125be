//! Options for a module's seal: name, channel, audience and release.

use watm_runtime::BuiltIn;
use watm_seal::{Name, Policy, Release};

use crate::failure::Failure;

/// Expectations about the seal of a module.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct Expected {
    /// Accept only a module with this name.
    #[arg(long)]
    pub(crate) name: Option<Name>,
    /// Accept only modules for this channel.
    #[arg(long)]
    pub(crate) channel: Option<Name>,
    /// Group that this host belongs to; may be given several times.
    #[arg(long = "audience", value_name = "NAME")]
    pub(crate) audiences: Vec<Name>,
    /// Accept this release although a newer one was accepted before.
    #[arg(long, value_name = "EPOCH.SEQUENCE", requires = "name")]
    pub(crate) allow_downgrade: Option<Release>,
}

impl Expected {
    /// Returns the policy with these expectations, and the floors of this program.
    pub(crate) fn policy(&self) -> Result<Policy, Failure> {
        Ok(Policy {
            name: self.name.clone(),
            channel: self.channel.clone(),
            audiences: self.audiences.iter().cloned().collect(),
            host: env!("CARGO_PKG_VERSION").parse().ok(),
            floors: BuiltIn::of_release()?.floors,
            allow_downgrade: self.name.clone().zip(self.allow_downgrade),
            ..Policy::default()
        })
    }
}
