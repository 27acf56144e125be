//! The locks and atomics by which threads synchronize. The models of `tests/prove` have a module of
//! the same name, with types that try every order of the threads' actions.

pub use std::sync::{Mutex, MutexGuard};

/// The atomics.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
}
