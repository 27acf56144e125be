//! The thread that advances an engine's epoch while modules run. `Engine::tick` starts it.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use crate::Error;

/// The interval of ticks, which is the precision of CPU deadlines.
const TICK: Duration = Duration::from_millis(10);

/// Starts the thread that advances the epoch of an engine, for as long as a result lives.
pub struct Ticker {
    engine: wasmtime::Engine,
    running: Mutex<Weak<Thread>>,
}

/// Keeps the epoch advancing while it lives.
#[derive(Clone)]
pub struct Ticking {
    _thread: Arc<Thread>,
}

/// Dropping the sender ends the thread.
struct Thread {
    _stop: mpsc::SyncSender<()>,
}

impl Ticker {
    pub fn new(engine: wasmtime::Engine) -> Ticker {
        Ticker {
            engine,
            running: Mutex::default(),
        }
    }

    pub fn start(&self) -> Result<Ticking, Error> {
        let mut running = self.running.lock().expect("no panic under this lock");
        if let Some(thread) = running.upgrade() {
            return Ok(Ticking { _thread: thread });
        }
        let (stop, stopped) = mpsc::sync_channel::<()>(0);
        let engine = self.engine.clone();
        thread::Builder::new()
            .name("watm-ticker".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                    engine.increment_epoch();
                }
            })
            .map_err(|error| Error::System(format!("cannot start a thread: {error}")))?;
        let thread = Arc::new(Thread { _stop: stop });
        *running = Arc::downgrade(&thread);
        Ok(Ticking { _thread: thread })
    }
}
