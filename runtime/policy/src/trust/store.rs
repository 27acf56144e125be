//! The place of the trust state: the user's file, another file, or memory. `Trust` reads and writes
//! it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use etcetera::base_strategy::{BaseStrategy, choose_base_strategy};
use watm_seal::state::{Files, StateError, StateFile, System, beside};
use watm_seal::{Proof, State, private};

use crate::Error;

/// The size of the probe, in bytes: a state of some ten modules.
const PROBE_BYTES: usize = 16 << 10;

/// The place where a state is kept.
#[derive(Debug, Clone)]
pub(super) enum Store {
    /// The user's folder for states.
    User,
    File(PathBuf),
    /// Kept for the life of the process.
    Memory {
        state: Arc<Mutex<State>>,
        /// The path of a state, beside which usage is recorded.
        usage: Option<PathBuf>,
    },
}

impl Store {
    /// Keeps a state, which begins empty, and records usage in the user's folder.
    pub(super) fn in_memory() -> Store {
        Store::Memory {
            state: Arc::default(),
            usage: user_path(),
        }
    }

    /// Returns a copy of the state as it is now. Changes and usage are forgotten.
    pub(super) fn copied(&self) -> Result<Store, Error> {
        Ok(Store::Memory {
            state: Arc::new(Mutex::new(self.load()?)),
            usage: None,
        })
    }

    /// Returns the state.
    pub(super) fn load(&self) -> Result<State, Error> {
        match self.file() {
            Ok(Some(file)) => file.load().map_err(broken),
            // Without a folder for states the state is empty; writing to it reports the error.
            Err(_) => Ok(State::default()),
            Ok(None) => Ok(self.memory()),
        }
    }

    /// Returns the state's file or its folder, if every user may write it.
    pub(super) fn writable_by_everybody(&self) -> Option<PathBuf> {
        let file = self.file().ok()??;
        private::writable_by_everybody(file.path())
    }

    /// Writes a module's acceptance. A failed write is an error if it would have changed more than the
    /// time in the state, and a warning otherwise.
    pub(super) fn accept(&self, proof: &Proof, time: u64) -> Result<(), Error> {
        if let Store::Memory { state, .. } = self {
            let mut state = state.lock().expect("no panic under this lock");
            state.accept_proof(proof, time);
            return Ok(());
        }
        let Some(file) = self.file()? else {
            return Ok(());
        };
        let Err(error) = write(&file, proof, time) else {
            return Ok(());
        };
        if file.load().map_err(broken)?.learns_from(proof) {
            return Err(broken(error));
        }
        let manifest = &proof.manifest;
        tracing::warn!(
            target: "watm::trust",
            "{error}; running {} {}, which was accepted before",
            manifest.name,
            manifest.release
        );
        Ok(())
    }

    /// Returns the path of the state, beside which usage is recorded.
    pub(super) fn path(&self) -> Option<PathBuf> {
        match self {
            Store::File(path) => Some(path.clone()),
            Store::User => user_path(),
            Store::Memory { usage, .. } => usage.clone(),
        }
    }

    /// Checks that a new acceptance could be written now, as far as that is known without doing so.
    pub(super) fn check_room(&self, proof: &Proof) -> Result<(), Error> {
        let Some(file) = self.file()? else {
            return Ok(());
        };
        if !file.load().map_err(broken)?.learns_from(proof) {
            return Ok(());
        }
        let probe = beside(file.path(), &format!(".probe-{}", std::process::id()));
        let written = private::create_directory(file.path().parent().unwrap_or(Path::new(".")))
            // The probe was left by a process of this number that was killed.
            .and_then(|()| System.remove(&probe))
            .and_then(|()| System.create(&probe, &[0; PROBE_BYTES]));
        let removed = System.remove(&probe);
        written.and(removed).map_err(|source| {
            broken(StateError::Write {
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
                    "the user has no home folder for the state of trusted modules".to_owned(),
                )
            }),
            Store::Memory { .. } => Ok(None),
        }
    }

    fn memory(&self) -> State {
        match self {
            Store::Memory { state, .. } => state.lock().expect("no panic under this lock").clone(),
            Store::User | Store::File(_) => State::default(),
        }
    }
}

/// Writes the acceptance. Creates the folder if it is missing.
fn write(file: &StateFile, proof: &Proof, time: u64) -> Result<(), StateError> {
    if let Some(folder) = file.path().parent() {
        private::create_directory(folder).map_err(|source| StateError::Write {
            path: file.path().to_owned(),
            source,
        })?;
    }
    file.update(|state| state.accept_proof(proof, time))
}

pub(super) fn user_path() -> Option<PathBuf> {
    let folders = choose_base_strategy().ok()?;
    let folder = folders.state_dir().unwrap_or_else(|| folders.data_dir());
    Some(folder.join("watm").join("trust"))
}

fn broken(error: StateError) -> Error {
    Error::State(Box::new(error))
}
