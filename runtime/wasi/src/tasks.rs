//! The tasks of a program beside its own, which pass on what it has written. `connection` starts
//! them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

/// The tasks of a program. They end with it.
#[derive(Default)]
pub(crate) struct Tasks {
    running: Mutex<JoinSet<()>>,
    failed: AtomicBool,
}

impl Tasks {
    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock().expect("no panic under this lock");
        while running.try_join_next().is_some() {}
        running.spawn(task);
    }

    /// Waits until all tasks have ended.
    pub(crate) async fn join(&self) {
        loop {
            let mut running = {
                let mut running = self.running.lock().expect("no panic under this lock");
                std::mem::take(&mut *running)
            };
            if running.join_next().await.is_none() {
                return;
            }
            while running.join_next().await.is_some() {}
        }
    }

    /// Notes that the program has failed: its open connections are reset when they are dropped.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
        let mut running = self.running.lock().expect("no panic under this lock");
        running.abort_all();
    }

    /// Returns true if the program has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}
