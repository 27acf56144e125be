//! The host's module of this name, with types that have every order tried (loom).

pub(crate) use loom::sync::{Mutex, MutexGuard};

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
}
