//! The search for the WireGuard module's file, for `watm tunnel` and `watm doctor`.

use std::env;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

use crate::failure::Failure;

/// The name of the file.
const FILE: &str = "wireguard.wasm";

/// The variable with folders of modules, in the format of `PATH`.
const VARIABLE: &str = "WATM_MODULES";

/// Returns the given file, or the first in the folders of `WATM_MODULES`, of the user, and of this
/// program.
pub(in crate::commands) fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(file) = given {
        return Ok(file.to_owned());
    }
    let named = env::var_os(VARIABLE);
    let mut folders: Vec<PathBuf> = named
        .iter()
        .flat_map(|folders| env::split_paths(folders))
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect();
    if let Ok(user) = etcetera::choose_base_strategy() {
        folders.push(user.data_dir().join("watm").join("modules"));
    }
    if let Ok(program) = env::current_exe()
        && let Some(folder) = program.parent()
    {
        folders.push(folder.join("modules"));
        if let Some(above) = folder.parent() {
            folders.push(above.join("share").join("watm").join("modules"));
        }
    }
    first(&folders)
}

fn first(folders: &[PathBuf]) -> Result<PathBuf, Failure> {
    let mut files = folders.iter().map(|folder| folder.join(FILE));
    files.find(|file| file.is_file()).ok_or_else(|| {
        let looked: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        Failure::unusable(format!(
            "no {FILE} in {}; pass its path with --module, or its folder in {VARIABLE}",
            looked.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_that_has_it_counts() {
        let base = env::temp_dir().join(format!("watm-modules-{}", std::process::id()));
        let folders = ["a", "b", "c"].map(|name| base.join(name));
        for folder in &folders {
            std::fs::create_dir_all(folder).unwrap();
        }
        let missing = first(&folders).unwrap_err().to_string();
        assert!(missing.contains("pass its path with --module"), "{missing}");
        for folder in &folders[1..] {
            std::fs::write(folder.join(FILE), b"").unwrap();
        }
        assert_eq!(first(&folders).unwrap(), folders[1].join(FILE));
        std::fs::remove_dir_all(base).unwrap();
    }
}
