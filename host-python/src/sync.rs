//! The locks and atomics shared by threads. The models of `tests/prove` have a module of the same
//! name, whose types try every order of the threads' operations.

pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
}
