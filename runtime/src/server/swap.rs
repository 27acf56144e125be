use std::time::Duration;

use super::Server;
use crate::driver::{Command, Swap};
use crate::{Error, Module};

/// How one module takes the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapOptions {
    /// The configuration of the new module. Default: the one in force.
    pub config: Option<Vec<u8>>,
    /// How long the old module may take to finish its flows; then they are reset. Default: as
    /// long as they last.
    pub drain: Option<Duration>,
    /// How long the new module has to run before it is relied on. If it fails in this time, the
    /// old one serves again. Default 1 s.
    pub probation: Duration,
}

impl Default for SwapOptions {
    fn default() -> SwapOptions {
        SwapOptions {
            config: None,
            drain: None,
            probation: Duration::from_secs(1),
        }
    }
}

impl Server {
    /// Put `module` in the place of the one that serves, while traffic flows. Returns the
    /// number of its generation.
    ///
    /// The new module starts with what the old one tells of its peers. New flows are its own
    /// from then on; open ones stay with the old module until they end, and are neither reset
    /// nor stopped. The call returns when the new module has served for
    /// [`SwapOptions::probation`].
    ///
    /// On every error the old module serves as before: [`Error::Swap`] if the new one is of
    /// another kind, fails at once, or there are [`Limits::generations`](crate::Limits) already;
    /// [`Error::Config`] if it refuses the configuration or what it was told;
    /// [`Error::Trap`] if it does not start; [`Error::Busy`] while another swap is under way. A
    /// module that fails later is started again, and after three failures the one before it
    /// serves again.
    ///
    /// A recording ends with the first swap.
    pub fn swap(&self, module: &Module, options: SwapOptions) -> Result<u32, Error> {
        let patience = options.probation;
        let swap = Swap {
            module: module.clone(),
            options,
        };
        let generation = self
            .handle
            .ask_for(patience, |reply| Command::Swap(swap, reply))?;
        module.accept()?;
        Ok(generation)
    }

    /// As [`swap`](Server::swap), without blocking.
    pub async fn swap_async(&self, module: &Module, options: SwapOptions) -> Result<u32, Error> {
        let swap = Swap {
            module: module.clone(),
            options,
        };
        let generation = self
            .handle
            .ask_async(|reply| Command::Swap(swap, reply))
            .await?;
        module.accept()?;
        Ok(generation)
    }
}
