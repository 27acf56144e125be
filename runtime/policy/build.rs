//! Builds the root of `WATM_BUILT_IN_ROOT` into the library, and an empty one if it is not set: see
//! `src/trust/built_in.rs`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=WATM_BUILT_IN_ROOT");
    let given = env::var_os("WATM_BUILT_IN_ROOT").filter(|path| !path.is_empty());
    let root = match given {
        None => Vec::new(),
        Some(path) => {
            // Relative paths start from the root of the repository.
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let path = folder.join(PathBuf::from(path));
            println!("cargo::rerun-if-changed={}", path.display());
            fs::read(&path)
                .unwrap_or_else(|error| panic!("WATM_BUILT_IN_ROOT: {}: {error}", path.display()))
        }
    };
    let output = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&output).join("root.watm"), root).expect("cargo has made the folder");
}
