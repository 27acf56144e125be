//! The search for the files of modules, for `watm tunnel` and `watm doctor`.

use std::env;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

use crate::failure::Failure;

/// The name of the file with WireGuard.
pub(in crate::commands) const WIREGUARD: &str = "wireguard.wasm";

/// The name of the file with the module for packets.
pub(super) const TUN: &str = "tun.wasm";

/// The variable with folders of modules, in the format of `PATH`.
const VARIABLE: &str = "WATM_MODULES";

/// Returns the given file, or the first of this name in the folders of `WATM_MODULES`, of the user, and of this
/// program. `option` is the one that gives a file.
pub(in crate::commands) fn find(
    given: Option<&Path>,
    name: &str,
    option: &str,
) -> Result<PathBuf, Failure> {
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
    first(&folders, name, option)
}

fn first(folders: &[PathBuf], name: &str, option: &str) -> Result<PathBuf, Failure> {
    let mut files = folders.iter().map(|folder| folder.join(name));
    files.find(|file| file.is_file()).ok_or_else(|| {
        let looked: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        Failure::unusable(format!(
            "no {name} in {}; pass its path with {option}, or its folder in {VARIABLE}",
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
        let missing = first(&folders, WIREGUARD, "--module")
            .unwrap_err()
            .to_string();
        assert!(missing.contains("pass its path with --module"), "{missing}");
        for folder in &folders[1..] {
            std::fs::write(folder.join(WIREGUARD), b"").unwrap();
        }
        assert_eq!(
            first(&folders, WIREGUARD, "--module").unwrap(),
            folders[1].join(WIREGUARD)
        );
        std::fs::remove_dir_all(base).unwrap();
    }
}
