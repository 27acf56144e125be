//! Compares a module with the manifest in its seal. `Module` calls it when it loads one.

use watm_seal::{Manifest, ModuleRole, World};

use super::inspect::{BEFORE, ModuleInfo, PACKAGE, VERSION};
use super::program::PROGRAM;
use crate::{ModuleKind, Role};

/// Returns the worlds whose modules this host runs.
pub fn worlds() -> Vec<World> {
    let component = |version| format!("{PACKAGE}/module@{version}");
    let named = [component(VERSION), component(BEFORE), PROGRAM.to_owned()];
    let named = named.map(|world| world.parse().expect("a package and its version"));
    named
        .into_iter()
        .chain([World::WaterV0, World::WaterV1])
        .collect()
}

/// Checks that the world and the roles of the manifest are those of the module. Its use of sockets
/// is checked against the manifest when it asks for them.
pub fn check(manifest: &Manifest, info: &ModuleInfo) -> Result<(), String> {
    let world = match (info.kind, &info.world) {
        (ModuleKind::WaterV0, _) => World::WaterV0.to_string(),
        (ModuleKind::WaterV1, _) => World::WaterV1.to_string(),
        (_, world) => world.clone().unwrap_or_default(),
    };
    if manifest.world.to_string() != world {
        return Err(format!(
            "is built for {world}, but its seal declares {}",
            manifest.world
        ));
    }
    // A component does not declare its roles before it runs.
    let lacks = |role: &&ModuleRole| !info.roles.contains(&Role::from(**role));
    match manifest.roles.iter().find(lacks) {
        Some(role) if info.kind != ModuleKind::Component => Err(format!(
            "does not have the role {}, which its seal declares",
            Role::from(*role)
        )),
        _ => Ok(()),
    }
}
