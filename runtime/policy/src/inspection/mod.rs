//! Inspection of module files: everything that is known of one before it is compiled. Used by
//! `trust`.

pub mod about;
pub mod budget;
pub mod inspect;
pub mod manifest;
pub mod older;
mod outline;
mod program;
mod water;

pub use about::About;
pub use inspect::{ModuleInfo, PACKAGE, VERSION, inspect};
pub use manifest::worlds;

/// The largest module that is loaded, in bytes. A transport with its ciphers is under 1 MiB;
/// compiling takes memory in proportion, so a wrong file is refused before that.
pub const MAX_MODULE_BYTES: usize = 64 << 20;
