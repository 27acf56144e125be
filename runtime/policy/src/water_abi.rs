//! The versions of the WATER interface and the names of their functions. The
//! inspection recognizes modules by them, and the host calls modules by them.

use crate::{ModuleKind, Role};

/// The module that has the functions of WATER.
pub const ENV: &str = "env";

/// The module that has the functions of WASI preview 1.
pub const PREVIEW1: &str = "wasi_snapshot_preview1";

/// Every function of WASI preview 1, with its type.
pub const PREVIEW1_FUNCTIONS: &[(&str, &str)] = &[
    ("args_get", "(i32,i32)->i32"),
    ("args_sizes_get", "(i32,i32)->i32"),
    ("clock_res_get", "(i32,i32)->i32"),
    ("clock_time_get", "(i32,i64,i32)->i32"),
    ("environ_get", "(i32,i32)->i32"),
    ("environ_sizes_get", "(i32,i32)->i32"),
    ("fd_advise", "(i32,i64,i64,i32)->i32"),
    ("fd_allocate", "(i32,i64,i64)->i32"),
    ("fd_close", "(i32)->i32"),
    ("fd_datasync", "(i32)->i32"),
    ("fd_fdstat_get", "(i32,i32)->i32"),
    ("fd_fdstat_set_flags", "(i32,i32)->i32"),
    ("fd_fdstat_set_rights", "(i32,i64,i64)->i32"),
    ("fd_filestat_get", "(i32,i32)->i32"),
    ("fd_filestat_set_size", "(i32,i64)->i32"),
    ("fd_filestat_set_times", "(i32,i64,i64,i32)->i32"),
    ("fd_pread", "(i32,i32,i32,i64,i32)->i32"),
    ("fd_prestat_dir_name", "(i32,i32,i32)->i32"),
    ("fd_prestat_get", "(i32,i32)->i32"),
    ("fd_pwrite", "(i32,i32,i32,i64,i32)->i32"),
    ("fd_read", "(i32,i32,i32,i32)->i32"),
    ("fd_readdir", "(i32,i32,i32,i64,i32)->i32"),
    ("fd_renumber", "(i32,i32)->i32"),
    ("fd_seek", "(i32,i64,i32,i32)->i32"),
    ("fd_sync", "(i32)->i32"),
    ("fd_tell", "(i32,i32)->i32"),
    ("fd_write", "(i32,i32,i32,i32)->i32"),
    ("path_create_directory", "(i32,i32,i32)->i32"),
    ("path_filestat_get", "(i32,i32,i32,i32,i32)->i32"),
    (
        "path_filestat_set_times",
        "(i32,i32,i32,i32,i64,i64,i32)->i32",
    ),
    ("path_link", "(i32,i32,i32,i32,i32,i32,i32)->i32"),
    ("path_open", "(i32,i32,i32,i32,i32,i64,i64,i32,i32)->i32"),
    ("path_readlink", "(i32,i32,i32,i32,i32,i32)->i32"),
    ("path_remove_directory", "(i32,i32,i32)->i32"),
    ("path_rename", "(i32,i32,i32,i32,i32,i32)->i32"),
    ("path_symlink", "(i32,i32,i32,i32,i32)->i32"),
    ("path_unlink_file", "(i32,i32,i32)->i32"),
    ("poll_oneoff", "(i32,i32,i32,i32)->i32"),
    ("proc_exit", "(i32)->()"),
    ("proc_raise", "(i32)->i32"),
    ("random_get", "(i32,i32)->i32"),
    ("sched_yield", "()->i32"),
    ("sock_accept", "(i32,i32,i32)->i32"),
    ("sock_recv", "(i32,i32,i32,i32,i32,i32)->i32"),
    ("sock_send", "(i32,i32,i32,i32,i32)->i32"),
    ("sock_shutdown", "(i32,i32)->i32"),
];

/// A version of the interface. Both versions behave alike and differ in names; see the tables
/// below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The names of `transport/v0`.
    V0,
    /// The names of `transport/v1`.
    V1,
}

/// The names of one version's functions.
pub struct Abi {
    /// The version.
    pub version: Version,
    /// Reads the configuration. The host calls it first.
    pub init: &'static str,
    /// Takes the descriptor of the control pipe.
    pub control: &'static str,
    /// Serves the connection until it ends.
    pub worker: &'static str,
    /// The function that makes a connection ready, for each role of the version.
    roles: &'static [(Role, &'static str)],
}

/// The names of <https://github.com/refraction-networking/water>, `transport/v0`.
pub static V0: Abi = Abi {
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
pub static V1: Abi = Abi {
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
pub const NO_ARGUMENT: &str = "()->i32";
/// The type of a function that takes a descriptor.
pub const DESCRIPTOR: &str = "(i32)->i32";

impl Abi {
    /// Returns the names for modules of this kind; `None` if they are no WATER modules.
    pub fn of(kind: ModuleKind) -> Option<&'static Abi> {
        match kind {
            ModuleKind::WaterV0 => Some(&V0),
            ModuleKind::WaterV1 => Some(&V1),
            _ => None,
        }
    }

    /// Returns the export that gives a module of this version the role, if the version has it.
    pub fn function(&self, role: Role) -> Option<&'static str> {
        let mut roles = self.roles.iter();
        roles
            .find(|(known, _)| *known == role)
            .map(|(_, name)| *name)
    }

    /// Returns true if this version's modules find their configuration in a directory.
    pub fn has_directory(&self) -> bool {
        self.version == Version::V1
    }

    /// Returns the exports that every module of this version has, with their types.
    pub fn required(&self) -> [(&'static str, &'static str); 3] {
        [
            (self.init, NO_ARGUMENT),
            (self.control, DESCRIPTOR),
            (self.worker, NO_ARGUMENT),
        ]
    }

    /// Returns the exports that give a module a role, with their types.
    pub fn optional(&self) -> impl Iterator<Item = (Role, &'static str, &'static str)> + use<> {
        let roles = self.roles;
        roles.iter().map(|(role, name)| match role {
            // A relay's connections are both on the network; there is no caller.
            Role::Relay => (*role, *name, NO_ARGUMENT),
            _ => (*role, *name, DESCRIPTOR),
        })
    }

    /// The functions that this version's modules may import from `env`, with their types.
    pub fn imports(&self) -> &'static [(&'static str, &'static str)] {
        functions(self.version)
    }
}

/// The functions of `env` in a version, each with its name and its type.
fn functions(version: Version) -> &'static [(&'static str, &'static str)] {
    match version {
        Version::V0 => &[
            ("host_dial", "()->i32"),
            ("host_accept", "()->i32"),
            ("host_defer", "()->()"),
            ("pull_config", "()->i32"),
        ],
        Version::V1 => &[
            ("water_dial_fixed", "()->i32"),
            ("water_dial", "(i32,i32,i32,i32)->i32"),
            ("water_accept", "()->i32"),
        ],
    }
}
