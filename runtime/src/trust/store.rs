use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use etcetera::base_strategy::{BaseStrategy, choose_base_strategy};
use watm_seal::state::{Files, StateError, StateFile, System, beside};
use watm_seal::{Proof, State, private};

use crate::Error;

/// A state of some ten modules.
const PROBE_BYTES: usize = 16 << 10;

/// Where a state is kept.
#[derive(Debug, Clone)]
pub(super) enum Store {
    /// The user's folder for states.
    User,
    File(PathBuf),
    /// For the life of the process.
    Memory(Arc<Mutex<State>>),
}

impl Store {
    pub(super) fn in_memory() -> Store {
        Store::Memory(Arc::default())
    }

    /// What is known.
    pub(super) fn load(&self) -> Result<State, Error> {
        match self.file() {
            Ok(Some(file)) => file.load().map_err(broken),
            // Who has no folder for states knows nothing; whoever has something to remember is told.
            Err(_) => Ok(State::default()),
            Ok(None) => Ok(self.memory()),
        }
    }

    /// Remember what follows from a module.
    pub(super) fn accept(&self, proof: &Proof, time: u64) -> Result<(), Error> {
        if let Store::Memory(state) = self {
            let mut state = state.lock().expect("no panic under this lock");
            state.accept_proof(proof, time);
            return Ok(());
        }
        let Some(file) = self.file()? else {
            return Ok(());
        };
        if let Some(folder) = file.path().parent() {
            private::create_directory(folder).map_err(|source| Error::File {
                path: folder.to_owned(),
                source,
            })?;
        }
        file.update(|state| state.accept_proof(proof, time))
            .map_err(broken)
    }

    /// The state's, or the user's for one that is in memory only.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match self {
            Store::File(path) => Some(path.clone()),
            Store::User | Store::Memory(_) => user_path(),
        }
    }

    /// That something can be remembered now, as far as that is known without doing it.
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        let Some(file) = self.file()? else {
            return Ok(());
        };
        let probe = beside(file.path(), &format!(".probe-{}", std::process::id()));
        let written = private::create_directory(file.path().parent().unwrap_or(Path::new(".")))
            // Left by a process of this number that was killed.
            .and_then(|()| System.remove(&probe))
            .and_then(|()| System.create(&probe, &[0; PROBE_BYTES]));
        let removed = System.remove(&probe);
        written.and(removed).map_err(|source| {
            broken(StateError::File {
                path: file.path().to_owned(),
                source,
            })
        })
    }

    pub(super) fn file(&self) -> Result<Option<StateFile>, Error> {
        match self {
            Store::File(path) => Ok(Some(StateFile::new(path))),
            Store::User => user_path().map(StateFile::new).map(Some).ok_or_else(|| {
                Error::System(
                    "the user has no folder in which to remember what modules are trusted"
                        .to_owned(),
                )
            }),
            Store::Memory(_) => Ok(None),
        }
    }

    fn memory(&self) -> State {
        match self {
            Store::Memory(state) => state.lock().expect("no panic under this lock").clone(),
            Store::User | Store::File(_) => State::default(),
        }
    }
}

pub(super) fn user_path() -> Option<PathBuf> {
    let folders = choose_base_strategy().ok()?;
    let folder = folders.state_dir().unwrap_or_else(|| folders.data_dir());
    Some(folder.join("watm").join("trust"))
}

fn broken(error: StateError) -> Error {
    Error::State(Box::new(error))
}
