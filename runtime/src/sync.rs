//! The locks and atomics by which threads synchronize. The models of `tests/prove` have a module of
//! the same name, with types that try every order of the threads' actions.

pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
}
