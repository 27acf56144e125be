//! The kinds of module files, which their inspection tells apart.

use std::fmt;

/// The kind of a module's file.
///
/// Core modules are distinguished by their exports. One with the names of both v0 and v1 counts as
/// v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleKind {
    /// A component, for `Server`.
    Component,
    /// A component for the world `wasi:cli/command` of WASI 0.2, which knows nothing of this host.
    Program,
    /// A core module of WATER's first interface (`_water_…`).
    WaterV0,
    /// A core module of WATER's second interface (`watm_…_v1`), as in its Go runtime.
    WaterV1,
    /// A core module of the draft that was to replace it, under the same names
    /// (`watm_userpipe_v1`). No runtime supports it, and neither does this one.
    WaterV1Final,
    /// A core module of the interface that only its Rust runtime has (`_water_v1`). This host does
    /// not run it.
    WaterV1Preview,
    /// Any other core module.
    CoreModule,
}

impl fmt::Display for ModuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModuleKind::Component => "component",
            ModuleKind::Program => "WASI program",
            ModuleKind::WaterV0 => "WATER v0 module",
            ModuleKind::WaterV1 => "WATER v1 module",
            ModuleKind::WaterV1Final => "WATER v1-final module",
            ModuleKind::WaterV1Preview => "WATER v1_preview module",
            ModuleKind::CoreModule => "core module",
        })
    }
}
