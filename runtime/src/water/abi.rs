//! The versions of the WATER interface and the names of their functions. `module` recognizes
//! modules by them, and `runner` calls modules by them.

use crate::{ModuleKind, Role};

/// A version of the interface. Both versions behave alike and differ in names; see the tables
/// below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V0,
    V1,
}

/// The names of one version's functions.
pub(crate) struct Abi {
    pub(crate) version: Version,
    /// Reads the configuration. The host calls it first.
    pub(crate) init: &'static str,
    /// Takes the descriptor of the control pipe.
    pub(crate) control: &'static str,
    /// Serves the connection until it ends.
    pub(crate) worker: &'static str,
    /// The function that makes a connection ready, for each role of the version.
    roles: &'static [(Role, &'static str)],
}

/// The names of <https://github.com/refraction-networking/water>, `transport/v0`.
pub(crate) static V0: Abi = Abi {
    version: Version::V0,
    init: "_water_init",
    control: "_water_cancel_with",
    worker: "_water_worker",
    roles: &[
        (Role::Dialer, "_water_dial"),
        (Role::Listener, "_water_accept"),
        (Role::Relay, "_water_associate"),
    ],
};

/// The names of the same repository's `transport/v1`.
pub(crate) static V1: Abi = Abi {
    version: Version::V1,
    init: "watm_init_v1",
    control: "watm_ctrlpipe_v1",
    worker: "watm_start_v1",
    roles: &[
        (Role::Dialer, "watm_dial_v1"),
        (Role::FixedDialer, "watm_dial_fixed_v1"),
        (Role::Listener, "watm_accept_v1"),
        (Role::Relay, "watm_associate_v1"),
    ],
};

/// The type of a function with no argument and one result.
pub(crate) const NO_ARGUMENT: &str = "()->i32";
/// The type of a function that takes a descriptor.
pub(crate) const DESCRIPTOR: &str = "(i32)->i32";

impl Abi {
    pub(crate) fn of(kind: ModuleKind) -> Option<&'static Abi> {
        match kind {
            ModuleKind::WaterV0 => Some(&V0),
            ModuleKind::WaterV1 => Some(&V1),
            _ => None,
        }
    }

    /// Returns the export that gives a module of this version the role, if the version has it.
    pub(crate) fn function(&self, role: Role) -> Option<&'static str> {
        let mut roles = self.roles.iter();
        roles
            .find(|(known, _)| *known == role)
            .map(|(_, name)| *name)
    }

    /// Returns true if this version's modules find their configuration in a directory.
    pub(crate) fn has_directory(&self) -> bool {
        self.version == Version::V1
    }

    /// Returns the exports that every module of this version has, with their types.
    pub(crate) fn required(&self) -> [(&'static str, &'static str); 3] {
        [
            (self.init, NO_ARGUMENT),
            (self.control, DESCRIPTOR),
            (self.worker, NO_ARGUMENT),
        ]
    }

    /// Returns the exports that give a module a role, with their types.
    pub(crate) fn optional(
        &self,
    ) -> impl Iterator<Item = (Role, &'static str, &'static str)> + use<> {
        let roles = self.roles;
        roles.iter().map(|(role, name)| match role {
            // A relay's connections are both on the network; there is no caller.
            Role::Relay => (*role, *name, NO_ARGUMENT),
            _ => (*role, *name, DESCRIPTOR),
        })
    }

    /// The functions that this version's modules may import from `env`, with their types.
    pub(crate) fn imports(&self) -> &'static [(&'static str, &'static str)] {
        super::env::functions(self.version)
    }
}
