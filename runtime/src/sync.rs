//! The locks and atomics behind which threads meet. The models of `tests/prove` have a module of the
//! same name, with types that try every order of what threads do.

pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
}
