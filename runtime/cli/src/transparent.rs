//! Options for connections from clients' addresses: `listen --transparent`.

use watm_runtime::{BindTransparent, Module, TransparentOptions};

use crate::failure::Failure;
use crate::shape::{self, Needs};

/// Options for connections from clients' addresses.
#[derive(clap::Args)]
pub(crate) struct TransparentArguments {
    /// Connect from the client's address, in place of one of this machine. The module's seal and
    /// grant must have bind-transparent, and the machine must meet the requirements that `watm
    /// doctor` prints.
    #[arg(long, requires = "forward")]
    transparent: bool,
    /// Mark the packets of these connections with this number, for rules that route the answers
    /// back.
    #[arg(long, value_name = "MARK", requires = "transparent")]
    mark: Option<u32>,
    /// Keep the client's port as well, in place of one that the system chooses.
    #[arg(long, requires = "transparent")]
    client_port: bool,
}

impl TransparentArguments {
    /// Returns the permission, if the option is given. Fails if the module does not have it.
    pub(crate) fn granted(&self, module: &Module) -> Result<Option<BindTransparent>, Failure> {
        let options = self.options();
        if options.is_some() {
            shape::check(module, "--transparent", Needs::Client)?;
        }
        let granted = options.map(|options| module.bind_transparent(options));
        Ok(granted.transpose()?)
    }

    /// Returns the options, if they are given.
    pub(crate) fn options(&self) -> Option<TransparentOptions> {
        self.transparent.then_some(TransparentOptions {
            mark: self.mark,
            client_port: self.client_port,
        })
    }
}
