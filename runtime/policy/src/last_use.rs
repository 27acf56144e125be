//! The file with the usage of a module's last run. `usage` of the runtime writes it, and `Trust::last_use` reads
//! it.

use std::io;
use std::path::{Path, PathBuf};

use serde_derive::{Deserialize, Serialize};
use watm_seal::state::{Files, System, beside, replace};
use watm_seal::{Name, private};

use crate::Used;

/// The most bytes of a file: four times the size with all destinations, each as long as it can be.
const MAX_BYTES: usize = 256 << 10;

/// The usage of a module's last run on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LastUse {
    /// The release that ran.
    pub release: String,
    /// The begin of the run, in seconds since 1970.
    pub since: u64,
    /// The time of writing, which is at most a minute before the run's end.
    pub until: u64,
    /// The usage until then.
    pub used: Used,
}

impl LastUse {
    /// Reads the usage of modules of this name, in a folder beside the state; `None` if none has
    /// run.
    #[doc(hidden)]
    pub fn read(state: &Path, name: &Name) -> io::Result<Option<LastUse>> {
        let Some(bytes) = System.read(&path(state, name), MAX_BYTES)? else {
            return Ok(None);
        };
        let record = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        Ok(Some(record))
    }

    /// Writes the file, whole or not at all.
    #[doc(hidden)]
    pub fn write(&self, state: &Path, name: &Name) -> io::Result<()> {
        let path = path(state, name);
        if let Some(folder) = path.parent() {
            private::create_directory(folder)?;
        }
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let _lock = System.lock(&beside(&path, ".lock"))?;
        replace(&System, &path, &bytes)
    }
}

/// Returns the path of the file. Names contain no `~`.
fn path(state: &Path, name: &Name) -> PathBuf {
    let file = format!("{}.json", name.as_str().replace('/', "~"));
    state.with_file_name("used").join(file)
}
