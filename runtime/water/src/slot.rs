//! The module that makes new connections, and the probation of one that replaces it. The library's
//! `WaterModule` uses it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use watm_engine::{Rollback, remember};

use super::WaterRunner;
use crate::{Error, Module};

/// The maker of new connections. Open connections stay with the one that made them.
pub struct Slot {
    serving: Mutex<Serving>,
    changing: AtomicBool,
}

/// A module that makes connections.
#[derive(Clone)]
pub struct Serving {
    /// The number of its generation, counted from 0.
    pub generation: u32,
    /// The module.
    pub module: Module,
    /// Its configuration, if there is one.
    pub config: Option<Vec<u8>>,
    /// Its runner.
    pub runner: Arc<WaterRunner>,
}

/// A change of the slot. There is one at a time.
pub struct Change {
    slot: Arc<Slot>,
}

impl Slot {
    /// Creates a slot with the module that serves first.
    pub fn new(serving: Serving) -> Arc<Slot> {
        Arc::new(Slot {
            serving: Mutex::new(serving),
            changing: AtomicBool::new(false),
        })
    }

    /// Returns the module that serves now.
    pub fn serving(&self) -> Serving {
        let serving = self.serving.lock().expect("no panic under this lock");
        serving.clone()
    }

    /// Begins a change. Returns `None` if another one is under way.
    pub fn begin(self: &Arc<Self>) -> Option<Change> {
        if self.changing.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Change { slot: self.clone() })
    }
}

impl Change {
    /// Makes `next` serve, and returns the module that served before.
    pub fn set(&self, next: Serving) -> Serving {
        let mut serving = self.slot.serving.lock().expect("no panic under this lock");
        std::mem::replace(&mut *serving, next)
    }

    /// Does the same on probation. If no instance of `next` fails within `probation`, and its
    /// acceptance is written to the state after that (with `remembers`), `next` stays, and the
    /// connections of the former module have `drain` to end. Otherwise rolls back.
    pub async fn prove(
        self,
        server: &str,
        next: Serving,
        probation: Duration,
        remembers: bool,
        drain: Option<Duration>,
    ) -> Result<(), Error> {
        let before = self.set(next.clone());
        let proved = match next.runner.connections().fault_within(probation).await {
            Some(reason) => Err(Rollback::Failed(reason)),
            None if remembers => remember(next.module.clone())
                .await
                .map_err(Rollback::NotSaved),
            None => Ok(()),
        };
        if let Err(rollback) = proved {
            self.set(before.clone());
            rollback.log(server, &next.module, &before.module);
            return Err(rollback.into_error(&next.module));
        }
        if let Some(drain) = drain {
            before.runner.connections().end_after(drain);
        }
        Ok(())
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.slot.changing.store(false, Ordering::Release);
    }
}
