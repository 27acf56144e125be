//! The end of a probation: a replacement is accepted, or rolled back. The swaps of both module hosts
//! use it.

use tokio::task::spawn_blocking;

use crate::{Error, Module};

/// The reason for a rollback.
pub enum Rollback {
    /// The module failed during its probation, with this reason.
    Failed(String),
    /// The module's acceptance could not be written to the state. Otherwise somebody could use that
    /// to bring back an older module.
    NotSaved(Error),
}

impl Rollback {
    /// Logs that `failed` was rolled back, and `restored` serves again.
    pub fn log(&self, server: &str, failed: &Module, restored: &Module) {
        let outcome = match self {
            Rollback::Failed(_) => "failed during probation",
            Rollback::NotSaved(_) => "cannot be saved as accepted",
        };
        tracing::error!(
            target: "watm::server",
            server,
            "the module {} {outcome}; rolled back to {}",
            failed.name(),
            restored.name()
        );
    }

    /// Returns the error for the caller of the swap.
    pub fn into_error(self, failed: &Module) -> Error {
        match self {
            Rollback::Failed(reason) => Error::Swap {
                module: failed.name().to_owned(),
                reason: format!("failed during probation and was rolled back: {reason}"),
            },
            Rollback::NotSaved(error) => error,
        }
    }
}

/// Writes the module's acceptance to the state, unless it is there. Does so on a blocking thread,
/// since a disk takes its time.
pub async fn remember(module: Module) -> Result<(), Error> {
    if module.is_remembered() {
        return Ok(());
    }
    spawn_blocking(move || module.accept())
        .await
        .unwrap_or_else(|error| Err(Error::System(format!("cannot write the state: {error}"))))
}
