//! A file that is said to be a module.

use watm_runtime::{Error, ModuleInfo, ModuleKind, inspect};

use crate::{ENGINE, check_line};

/// The name of the file.
const NAME: &str = "stranger.wasm";

pub fn run(input: &[u8]) {
    let inspected = inspect(input);
    let loaded = ENGINE.load(NAME, input);
    match &inspected {
        Ok(info) => check_info(info, input),
        Err(error) => check_error(error, ""),
    }
    match &loaded {
        Ok(module) => {
            let info = inspected.expect("what is loaded can be inspected");
            assert_eq!(module.name(), NAME);
            assert_eq!(module.info().sha256, info.sha256);
            match info.kind {
                ModuleKind::Component | ModuleKind::Program => {
                    assert!(info.world.is_some(), "a component has a world");
                }
                ModuleKind::WaterV0 | ModuleKind::WaterV1 => {
                    assert!(!info.exports.is_empty(), "a WATER module has a role");
                }
                kind => panic!("nothing runs a {kind:?}"),
            }
        }
        Err(error) => {
            check_error(error, NAME);
        }
    }
}

/// Checks that the description of a WebAssembly file agrees with itself and with the file.
fn check_info(info: &ModuleInfo, input: &[u8]) {
    assert_eq!(info.size, input.len());
    assert_eq!(info.sha256.len(), 64);
    assert!(info.roles.is_sorted());
    for problem in &info.problems {
        assert!(
            !problem.chars().any(char::is_control),
            "not one line: {problem:?}"
        );
    }
    assert!(info.imports.is_sorted() && info.exports.is_sorted());
    // Each has a byte of its own in the file, at least for its length.
    assert!(info.imports.len() + info.exports.len() <= input.len());
    if info.kind == ModuleKind::WaterV0 || info.kind == ModuleKind::WaterV1 {
        assert!(info.exports.iter().any(|name| name.contains('_')));
    }
}

/// An error is of the file.
fn check_error(error: &Error, file: &str) {
    assert!(matches!(error, Error::Module { .. }), "{error:?}");
    check_line(error, file);
}
