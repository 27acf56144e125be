//! Which module makes new connections, and the first second of one that took another's place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::WaterRunner;
use crate::{Error, Module};

/// What makes new connections: a runner, or what has one. Those that are open stay with the one
/// that made them.
pub(crate) struct Slot<T> {
    current: Mutex<T>,
    swapping: AtomicBool,
}

/// Why a module does not stay.
pub(crate) enum Unproven {
    /// An instance failed, in these words.
    Failed(String),
    /// It could not be remembered that it serves.
    Forgotten(Error),
}

/// A change of it. There is one at a time.
pub(crate) struct Change<T> {
    slot: Arc<Slot<T>>,
}

impl<T: Clone + AsRef<WaterRunner>> Slot<T> {
    pub(crate) fn new(current: T) -> Arc<Slot<T>> {
        Arc::new(Slot {
            current: Mutex::new(current),
            swapping: AtomicBool::new(false),
        })
    }

    pub(crate) fn current(&self) -> T {
        let current = self.current.lock().expect("no panic under this lock");
        current.clone()
    }

    /// Begin to change it; `None`: somebody does already.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Change<T>> {
        if self.swapping.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Change { slot: self.clone() })
    }
}

impl<T: Clone + AsRef<WaterRunner>> Change<T> {
    /// Have `next` make the connections from now on.
    pub(crate) fn set(&self, next: T) -> T {
        let mut current = self.slot.current.lock().expect("no panic under this lock");
        std::mem::replace(&mut *current, next)
    }

    /// The same, if no instance of it fails in this time, and if it can be remembered then that
    /// this module serves, should it be. If not, what was there before makes them again: an error
    /// is it, and the reason.
    pub(crate) async fn prove(
        self,
        next: T,
        probation: Duration,
        remember: Option<&Module>,
    ) -> Result<(), (T, Unproven)> {
        let before = self.set(next.clone());
        let unproven = match next.as_ref().fault_within(probation).await {
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

/// On a thread of its own, since a disk takes its time.
async fn remembered(module: Option<&Module>) -> Result<(), Error> {
    let Some(module) = module.filter(|module| !module.is_remembered()) else {
        return Ok(());
    };
    let module = module.clone();
    spawn_blocking(move || module.accept())
        .await
        .unwrap_or_else(|error| Err(Error::System(format!("the state was not written: {error}"))))
}

impl<T> Drop for Change<T> {
    fn drop(&mut self) {
        self.slot.swapping.store(false, Ordering::Release);
    }
}
