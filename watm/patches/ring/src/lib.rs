//! A stand-in for `ring` 0.17 in this workspace: the part that boringtun uses, under the same
//! names.
//!
//! The real one is C and assembly, which a module cannot contain. Here a key goes to the host if it
//! grants the service ([`watm_core::crypto`]), where a native cipher runs; otherwise dryoc's does
//! the work.

pub mod aead;
pub mod batch;
pub mod constant_time;
pub mod error;
