//! Dialers for addresses that the module chooses.

use std::fmt;
use std::sync::Arc;

use super::builder::RoleBuilder;
use super::connection::Connection;
use super::dialer::DialOptions;
use super::runner::Runner;
use crate::Role;
use crate::{DatagramFlow, Error, Module, Status};
use watm_engine::job::Job;

/// Dials through a module, to an address that the module chooses and that its [`Reach`](crate::Reach)
/// must admit. Clones share everything.
#[derive(Clone)]
pub struct FixedDialer {
    runner: Arc<dyn Runner>,
}

impl FixedDialer {
    /// Starts to build a dialer for this module.
    pub fn builder(module: &Module) -> RoleBuilder<FixedDialer> {
        RoleBuilder::new(module)
    }

    /// Connects to the module's destination; otherwise as [`Dialer::dial`]. A destination that the
    /// module may not reach is [`Error::Denied`].
    ///
    /// [`Dialer::dial`]: crate::Dialer::dial
    pub async fn dial(&self) -> Result<Connection, Error> {
        self.dial_with(DialOptions::new()).await
    }

    /// Dials as [`dial`](FixedDialer::dial), with options for this connection alone.
    pub async fn dial_with(&self, options: DialOptions) -> Result<Connection, Error> {
        let job = Job {
            target: None,
            accepted: None,
            config: options.into_config(),
        };
        Connection::of(self.runner.clone().open(job).await?)
    }

    /// Has the module carry datagrams, as [`Dialer::dial_datagrams`](crate::Dialer::dial_datagrams),
    /// to the module's destination.
    pub async fn dial_datagrams(&self) -> Result<DatagramFlow, Error> {
        let job = Job {
            target: None,
            accepted: None,
            config: None,
        };
        self.runner.clone().open_datagrams(job).await
    }

    /// Has `module` make the connections from now on. Open ones continue unchanged. An error changes
    /// nothing: a module of another kind, without this role, one that refuses the configuration or
    /// fails at once, as described at [`Server::swap`](crate::Server::swap).
    pub async fn swap(&self, module: &Module) -> Result<(), Error> {
        self.runner.clone().swap(module.clone()).await
    }

    /// Returns the module's state, as [`Server::status_async`](crate::Server::status_async). A WATER
    /// module has no generations and no peers.
    pub async fn status(&self) -> Result<Status, Error> {
        self.runner.clone().status().await
    }
}

impl RoleBuilder<FixedDialer> {
    /// Starts the dialer. Fails if the module does not have this role, or if a limit is out of range.
    pub fn build(self) -> Result<FixedDialer, Error> {
        Ok(FixedDialer {
            runner: self.runner(Role::FixedDialer)?,
        })
    }
}

impl fmt::Debug for FixedDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedDialer").finish_non_exhaustive()
    }
}
