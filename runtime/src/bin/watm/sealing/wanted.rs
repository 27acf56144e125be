use watm_runtime::BuiltIn;
use watm_seal::{Name, Policy, Release};

use crate::failure::Failure;

/// Which module a command wants, by its seal.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct Wanted {
    /// Must be this module.
    #[arg(long)]
    pub(crate) name: Option<Name>,
    /// Must be for this channel.
    #[arg(long)]
    pub(crate) channel: Option<Name>,
    /// A group that this host belongs to; may be given several times.
    #[arg(long = "audience", value_name = "NAME")]
    pub(crate) audiences: Vec<Name>,
    /// Take this release although a newer one was taken before.
    #[arg(long, value_name = "EPOCH.SEQUENCE", requires = "name")]
    pub(crate) allow_downgrade: Option<Release>,
}

impl Wanted {
    /// The same as this program has it, with its floors.
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
