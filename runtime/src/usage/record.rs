use std::io;
use std::path::{Path, PathBuf};

use serde_derive::{Deserialize, Serialize};
use watm_seal::state::{Files, System, beside, replace};
use watm_seal::{Name, private};

use super::Used;

/// With as many destinations as are kept, each as long as it can be, it is a quarter of that.
const MAX_BYTES: usize = 256 << 10;

/// What a module used when it ran last on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LastUse {
    /// Which release of it.
    pub release: String,
    /// When it began to run, in seconds since 1970.
    pub since: u64,
    /// When this was written, which is at most a minute before it ended.
    pub until: u64,
    /// What it used until then.
    pub used: Used,
}

impl LastUse {
    /// What is known of modules of this name, in a folder beside the state; `None`: it has not run.
    pub(crate) fn read(state: &Path, name: &Name) -> io::Result<Option<LastUse>> {
        let Some(bytes) = System.read(&path(state, name), MAX_BYTES)? else {
            return Ok(None);
        };
        let record = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        Ok(Some(record))
    }

    /// Whole, or not at all.
    pub(super) fn write(&self, state: &Path, name: &Name) -> io::Result<()> {
        let path = path(state, name);
        if let Some(folder) = path.parent() {
            private::create_directory(folder)?;
        }
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        let _lock = System.lock(&beside(&path, ".lock"))?;
        replace(&System, &path, &bytes)
    }
}

/// `~` is in no name.
fn path(state: &Path, name: &Name) -> PathBuf {
    let file = format!("{}.json", name.as_str().replace('/', "~"));
    state.with_file_name("used").join(file)
}
