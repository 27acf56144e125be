use std::fs;
use std::path::PathBuf;

use etcetera::base_strategy::{BaseStrategy, choose_base_strategy};
use watm_seal::state::StateFile;
use watm_seal::{Root, State};

use super::{invalid, read_root};
use crate::failure::Failure;

/// What is trusted, and what is known.
#[derive(clap::Args)]
pub(crate) struct StateOptions {
    /// Where what has been accepted is remembered. By default `watm/trust` in the user's folder
    /// for states.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

impl StateOptions {
    pub(crate) fn open(&self) -> Result<StateFile, Failure> {
        Ok(StateFile::new(match &self.state {
            Some(path) => path.clone(),
            None => default_path()?,
        }))
    }
}

/// Change the state, and make its folder if it is missing.
pub(crate) fn update<T>(
    store: &StateFile,
    change: impl FnOnce(&mut State) -> T,
) -> Result<T, Failure> {
    if let Some(folder) = store.path().parent() {
        fs::create_dir_all(folder).map_err(|error| invalid(folder, error))?;
    }
    store.update(change).map_err(Failure::failed)
}

/// The root that is given, or the one of the state.
pub(crate) fn root(given: Option<&PathBuf>, state: &State) -> Result<Root, Failure> {
    match (given, state.root()) {
        (Some(path), _) => Root::trust(read_root(path)?).map_err(|error| invalid(path, error)),
        (None, Some(root)) => Ok(root.clone()),
        (None, None) => Err(Failure::unusable(
            "no root is trusted yet; `watm trust ROOT` is for that, or --root names one",
        )),
    }
}

fn default_path() -> Result<PathBuf, Failure> {
    let folders = choose_base_strategy().map_err(|_| {
        Failure::unusable("the user has no home folder; --state names a file for the state")
    })?;
    let folder = folders.state_dir().unwrap_or_else(|| folders.data_dir());
    Ok(folder.join("watm").join("trust"))
}
