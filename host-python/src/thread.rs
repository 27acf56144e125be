//! The one native thread that runs all connections and relays of the process, however many
//! event loops wait for them.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::dialers;

/// Names that are looked up and modules that are started at once; both block a thread each.
const BLOCKING: usize = 4;

/// Where to spawn. The thread starts with the first call.
pub(crate) fn handle() -> io::Result<Handle> {
    let mut running = running();
    if let Some(running) = &*running {
        return Ok(running.handle.clone());
    }
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING)
        .build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let (tell_ended, ended) = mpsc::channel();
    thread::Builder::new()
        .name("watm connections".to_owned())
        .spawn(move || {
            // Said, or nobody is left to say it.
            let _ = runtime.block_on(stopped);
            // A name may still be looked up.
            runtime.shutdown_background();
            let _ = tell_ended.send(());
        })?;
    *running = Some(Running {
        handle: handle.clone(),
        stop,
        ended,
    });
    Ok(handle)
}

/// Drop all connections and end the thread, and wait for it, at most for `timeout`. For the end
/// of the process only.
#[pyfunction]
pub fn finish_connections(py: Python<'_>, timeout: Duration) {
    dialers::forget();
    let Some(Running { stop, ended, .. }) = running().take() else {
        return;
    };
    drop(stop);
    // An error is the end of the thread as well, or the end of the wait.
    let _ = py.detach(move || ended.recv_timeout(timeout));
}

struct Running {
    handle: Handle,
    /// Dropped, it ends the thread.
    stop: oneshot::Sender<()>,
    ended: mpsc::Receiver<()>,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
