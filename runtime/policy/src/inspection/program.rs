//! Checks a program, which is a component for `wasi:cli/command`, before it is compiled. `inspect`
//! calls it.

use super::inspect::{ModuleInfo, same_minor, shown};
use crate::Role;

/// The world of programs, with the oldest version that fits.
pub const PROGRAM: &str = "wasi:cli/command@0.2.0";

/// The interface that a program exports.
const RUN: &str = "wasi:cli/run@";

/// The version of WASI that this host provides. Versions that differ in the last number fit.
const VERSION: &str = "0.2.0";

/// The packages that a program may import from.
const PACKAGES: [&str; 6] = ["cli", "clocks", "filesystem", "io", "random", "sockets"];

/// Returns true if one of these exports is that of a program.
pub fn runs<'a>(mut exports: impl Iterator<Item = &'a str>) -> bool {
    exports.any(|name| name.starts_with(RUN))
}

/// Fills in the world and the roles of a program, and the reasons why it cannot run.
pub fn check(info: &mut ModuleInfo) {
    let mut versions = info
        .exports
        .iter()
        .filter_map(|name| name.strip_prefix(RUN));
    if let Some(version) = versions.next() {
        if !same_minor(version, VERSION) {
            info.problems.push(format!(
                "a program for WASI {}; this host runs programs for WASI 0.2 (build it for \
                 wasm32-wasip2)",
                shown(version)
            ));
        }
        info.world = Some(format!("wasi:cli/command@{version}"));
    }
    info.roles = vec![Role::Listener, Role::Relay];
    for import in &info.imports {
        let (name, version) = import.split_once('@').unwrap_or((import, ""));
        let package = name
            .strip_prefix("wasi:")
            .and_then(|name| name.split_once('/'));
        let provided = package.is_some_and(|(package, _)| PACKAGES.contains(&package));
        if !provided || !same_minor(version, VERSION) {
            info.problems.push(format!(
                "imports {}, which this host does not provide; a program can import wasi:{} 0.2",
                shown(import),
                PACKAGES.join(", wasi:")
            ));
        }
    }
}
