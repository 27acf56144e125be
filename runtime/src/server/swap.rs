//! Swaps of a server's module, for one server or for several at once.

use std::time::Duration;

use tokio::task::JoinSet;

use super::Server;
use crate::driver::{Command, Swap};
use crate::{Error, Keys, Module, SwapOptions};

impl Server {
    /// Replaces the serving module with `module` while traffic flows. Returns the number of its
    /// generation.
    ///
    /// The new module starts with the old one's snapshot of its peers. New flows are its own from
    /// then on; open ones stay with the old module until they end, and are neither reset nor
    /// stopped. The call returns when the new module has served for [`SwapOptions::probation`].
    ///
    /// An error leaves the old module in place: [`Error::Swap`] if the new one is of another kind,
    /// fails at once, or there are already [`Limits::generations`](crate::Limits); [`Error::Config`]
    /// if it refuses the configuration or the snapshot; [`Error::Trap`] if it does not start;
    /// [`Error::State`] if its acceptance cannot be written to the state; [`Error::Busy`] during
    /// another swap. A module that fails later is started again, and after three failures the former
    /// one serves again.
    ///
    /// A recording ends with the first swap.
    pub fn swap(&self, module: &Module, options: SwapOptions) -> Result<u32, Error> {
        module.check_memory()?;
        let patience = options.probation;
        let swap = Swap {
            module: module.clone(),
            options,
            remember: true,
        };
        self.handle
            .ask_for(patience, |reply| Command::Swap(swap, reply))
    }

    /// Swaps as [`swap`](Server::swap), without blocking.
    pub async fn swap_async(&self, module: &Module, options: SwapOptions) -> Result<u32, Error> {
        module.check_memory()?;
        self.replace(module.clone(), options, true).await
    }

    async fn replace(
        &self,
        module: Module,
        options: SwapOptions,
        remember: bool,
    ) -> Result<u32, Error> {
        let swap = Swap {
            module,
            options,
            remember,
        };
        self.handle
            .ask_async(|reply| Command::Swap(swap, reply))
            .await
    }
}

/// Replaces the serving module with `module`, in all of `servers` or in none: when one refuses it,
/// those that have taken it return to `before`, with its configuration and keys. Fails with the
/// first error. Must be called within a tokio runtime; otherwise as [`Server::swap`].
pub async fn swap_all(
    servers: &[Server],
    module: &Module,
    options: SwapOptions,
    before: (&Module, &[u8], &Keys),
) -> Result<(), Error> {
    module.check_memory()?;
    let swaps = servers.iter().map(|server| {
        let (server, module, options) = (server.clone(), module.clone(), options.clone());
        async move {
            let swapped = server.replace(module, options, false).await;
            (server, swapped)
        }
    });
    let mut taken = Vec::new();
    let mut refused = None;
    for (server, swapped) in swaps.collect::<JoinSet<_>>().join_all().await {
        match swapped {
            Ok(_) => taken.push(server),
            Err(error) => drop(refused.get_or_insert(error)),
        }
    }
    let error = match refused {
        Some(error) => error,
        None => match module.accept() {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
    };
    let (module, config, keys) = before;
    let back = SwapOptions {
        config: Some(config.to_vec()),
        keys: Some(keys.clone()),
        probation: Duration::ZERO,
        ..options
    };
    for server in taken {
        if let Err(error) = server.replace(module.clone(), back.clone(), false).await {
            tracing::error!(
                target: "watm::server",
                server = server.handle.hub.name.as_str(),
                "cannot roll back to the module {}: {error}",
                module.name()
            );
        }
    }
    Err(error)
}
