//! The native thread that runs all connections and relays of the process, for any number of event
//! loops. Used by `dial`, `dialer`, `relay` and `updates`.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::dialers;

/// The most name lookups and module starts at once. Each blocks a thread.
const BLOCKING: usize = 4;

/// Returns the handle for spawning. The first call starts the thread.
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
            // An error means that the sender is gone, which ends the thread as well.
            let _ = runtime.block_on(stopped);
            // A name lookup may still be running.
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

/// Drops all connections, ends the thread, and waits for that, at most for `timeout`. For the end
/// of the process only.
#[pyfunction]
pub fn finish_connections(py: Python<'_>, timeout: Duration) {
    dialers::forget();
    let Some(Running { stop, ended, .. }) = running().take() else {
        return;
    };
    drop(stop);
    // An error also means the end of the thread, or of the wait.
    let _ = py.detach(move || ended.recv_timeout(timeout));
}

struct Running {
    handle: Handle,
    /// Ends the thread when dropped.
    stop: oneshot::Sender<()>,
    ended: mpsc::Receiver<()>,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
