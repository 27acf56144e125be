//! A bell that an event loop waits for, as the host's is a descriptor that is readable.

use loom::sync::{Condvar, Mutex};

/// See the module's page.
#[derive(Default)]
pub struct Doorbell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Doorbell {
    pub(crate) fn ring(&self) {
        *self.rung.lock().expect("no panic under this lock") = true;
        self.changed.notify_all();
    }

    pub(crate) fn clear(&self) -> bool {
        std::mem::take(&mut *self.rung.lock().expect("no panic under this lock"))
    }

    /// Waits for the bell, as an event loop waits until the descriptor is readable.
    pub(crate) fn wait(&self) {
        let mut rung = self.rung.lock().expect("no panic under this lock");
        while !*rung {
            rung = self.changed.wait(rung).expect("no panic under this lock");
        }
    }
}
