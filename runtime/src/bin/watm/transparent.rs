use watm_runtime::{BindTransparent, Module, TransparentOptions};

use crate::failure::Failure;
use crate::shape::{self, Needs};

/// Whether connections go on from their clients' addresses.
#[derive(clap::Args)]
pub(crate) struct TransparentArguments {
    /// Connect from the client's address, in place of one of this machine. The module's seal and
    /// grant need bind-transparent for it, and the machine what `watm doctor` tells.
    #[arg(long, requires = "forward")]
    transparent: bool,
    /// Mark the packets of these connections with this number, for rules that bring the answers
    /// back.
    #[arg(long, value_name = "MARK", requires = "transparent")]
    mark: Option<u32>,
    /// Keep the client's port too, in place of one that the system chooses.
    #[arg(long, requires = "transparent")]
    client_port: bool,
}

impl TransparentArguments {
    /// What that takes, if it is wanted.
    pub(crate) fn granted(&self, module: &Module) -> Result<Option<BindTransparent>, Failure> {
        let options = self.options();
        if options.is_some() {
            shape::check(module, "--transparent", Needs::Client)?;
        }
        let granted = options.map(|options| module.bind_transparent(options));
        Ok(granted.transpose()?)
    }

    /// How, if it is wanted.
    pub(crate) fn options(&self) -> Option<TransparentOptions> {
        self.transparent.then_some(TransparentOptions {
            mark: self.mark,
            client_port: self.client_port,
        })
    }
}
