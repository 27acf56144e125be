//! The option `--state`, and changes of the state.

use std::path::PathBuf;

use watm_runtime::{BuiltIn, Trust, private};
use watm_seal::state::StateFile;
use watm_seal::{Root, State};
use watm_sealing::read_complete_root;

use super::invalid;
use crate::failure::Failure;
use crate::logging;

/// Options for the state of accepted modules and trusted roots.
#[derive(Clone, clap::Args)]
pub(crate) struct StateOptions {
    /// State of accepted modules, approvals and roots. By default `watm/trust` in the user's folder
    /// for states.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

impl StateOptions {
    pub(crate) fn open(&self) -> Result<StateFile, Failure> {
        let path = self.state.clone().or_else(Trust::user_state);
        path.map(StateFile::new).ok_or_else(|| {
            Failure::unusable("the user has no home folder; pass a file for the state with --state")
        })
    }

    /// Opens the state as [`open`](StateOptions::open) does, for a command without a log, and
    /// prints a warning if every user may write the state.
    pub(crate) fn open_aloud(&self) -> Result<StateFile, Failure> {
        let store = self.open()?;
        if let Some(open) = private::writable_by_everybody(store.path()) {
            logging::warn(&format!(
                "{0} is world-writable: any user could choose which roots are trusted and which \
                 releases run; run `chmod o-w {0}`",
                open.display()
            ));
        }
        Ok(store)
    }

    /// Returns the trust of an engine that uses this state.
    pub(crate) fn trust(&self) -> Trust {
        match &self.state {
            Some(path) => Trust::at(path),
            None => Trust::of_user(),
        }
    }
}

/// Changes the state, and makes its folder if it is missing.
pub(crate) fn update<T>(
    store: &StateFile,
    change: impl FnOnce(&mut State) -> T,
) -> Result<T, Failure> {
    if let Some(folder) = store.path().parent() {
        private::create_directory(folder).map_err(|error| invalid(folder, error))?;
    }
    store.update(change).map_err(Failure::failed)
}

/// Returns the given root, or the state's, or the one built into this program.
pub(crate) fn root(given: Option<&PathBuf>, state: &State) -> Result<Root, Failure> {
    match (given, state.root()) {
        (Some(path), _) => Ok(read_complete_root(path)?),
        (None, Some(root)) => Ok(root.clone()),
        (None, None) => BuiltIn::of_release()?.root.ok_or_else(|| {
            Failure::unusable(
                "no root is trusted yet; trust one with `watm trust ROOT`, or pass one with --root",
            )
        }),
    }
}
