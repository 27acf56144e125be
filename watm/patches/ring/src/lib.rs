//! Stands in for `ring` 0.17 in this workspace: the part that boringtun uses, under the
//! same names.
//!
//! The real one is C and assembly, which a module cannot have. Here a key is handed to
//! the host where it grants the service ([`watm_core::crypto`]), which runs a native
//! cipher on it; elsewhere dryoc's does the work.

pub mod aead;
pub mod constant_time;
pub mod error;
