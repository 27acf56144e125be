//! The reasons why a check fails. `updater` and `terms` return them, and `outcome` reports them.

use std::io;
use std::path::{Path, PathBuf};

use watm_seal::Refused;
use watm_seal::state::StateError;

use crate::error::FetchError;

/// The reason why a check failed, by its origin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The source failed.
    #[error("{0}")]
    Fetch(#[from] FetchError),
    /// The file was refused.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// The state of this machine cannot be used.
    #[error("{0}")]
    State(#[from] StateError),
    #[error("{path}: {source}", path = path.display())]
    Place { path: PathBuf, source: io::Error },
}

impl Fault {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Fault::Fetch(error) => error.code(),
            Fault::Refused(refused) => refused.code(),
            Fault::State(_) => "state",
            Fault::Place { .. } => "place",
        }
    }

    pub(crate) fn fetch(&self) -> Option<&FetchError> {
        match self {
            Fault::Fetch(error) => Some(error),
            _ => None,
        }
    }
}

/// Adds the path of the file to an error.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> Fault {
    let path = path.to_owned();
    move |source| Fault::Place {
        path: path.clone(),
        source,
    }
}
