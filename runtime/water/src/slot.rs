//! The module that makes new connections, and the probation of one that replaces it. Called by
//! `driver::water` and `roles::replaceable`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::WaterRunner;
use crate::{Error, Module};

/// The maker of new connections: a runner, or a type that has one. Open connections stay with the
/// runner that made them.
pub struct Slot<T> {
    current: Mutex<T>,
    swapping: AtomicBool,
}

/// The reason for a rollback.
pub enum Unproven {
    /// An instance failed, with this reason.
    Failed(String),
    /// The module's acceptance could not be written to the state.
    Forgotten(Error),
}

/// A change of the slot. There is one at a time.
pub struct Change<T> {
    slot: Arc<Slot<T>>,
}

impl<T: Clone + AsRef<WaterRunner>> Slot<T> {
    /// Creates a slot with what serves first.
    pub fn new(current: T) -> Arc<Slot<T>> {
        Arc::new(Slot {
            current: Mutex::new(current),
            swapping: AtomicBool::new(false),
        })
    }

    /// Returns what serves now.
    pub fn current(&self) -> T {
        let current = self.current.lock().expect("no panic under this lock");
        current.clone()
    }

    /// Begins a change. Returns `None` if another one is under way.
    pub fn begin(self: &Arc<Self>) -> Option<Change<T>> {
        if self.swapping.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Change { slot: self.clone() })
    }
}

impl<T: Clone + AsRef<WaterRunner>> Change<T> {
    /// Makes `next` the maker of new connections, and returns the former one.
    pub fn set(&self, next: T) -> T {
        let mut current = self.slot.current.lock().expect("no panic under this lock");
        std::mem::replace(&mut *current, next)
    }

    /// Does the same on probation. If no instance of `next` fails within `probation`, and
    /// `remember` (if any) is written to the state after that, `next` stays. Otherwise rolls back
    /// to the former maker, and returns it with the reason.
    pub async fn prove(
        self,
        next: T,
        probation: Duration,
        remember: Option<&Module>,
    ) -> Result<(), (T, Unproven)> {
        let before = self.set(next.clone());
        let unproven = match next.as_ref().connections().fault_within(probation).await {
            Some(reason) => Unproven::Failed(reason),
            None => match remembered(remember).await {
                Ok(()) => return Ok(()),
                Err(error) => Unproven::Forgotten(error),
            },
        };
        self.set(before.clone());
        Err((before, unproven))
    }
}

/// Writes the module's acceptance to the state, on a blocking thread, since a disk takes its time.
async fn remembered(module: Option<&Module>) -> Result<(), Error> {
    let Some(module) = module.filter(|module| !module.is_remembered()) else {
        return Ok(());
    };
    let module = module.clone();
    spawn_blocking(move || module.accept())
        .await
        .unwrap_or_else(|error| Err(Error::System(format!("cannot write the state: {error}"))))
}

impl<T> Drop for Change<T> {
    fn drop(&mut self) {
        self.slot.swapping.store(false, Ordering::Release);
    }
}
