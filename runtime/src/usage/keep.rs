//! Writes down what modules use, for `watm inspect`: once a minute, and when they end.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use watm_seal::Name;

use super::{LastUse, Used};
use crate::Module;
use crate::counters::Counters;
use crate::flow::FlowCount;
use crate::trust::now;

/// At most so much is lost when the process is killed.
const INTERVAL: Duration = Duration::from_secs(60);

/// What uses something.
pub(crate) struct Subject {
    pub(crate) counters: Arc<Counters>,
    pub(crate) flows: FlowCount,
    /// Outer sockets, as in [`Used`].
    pub(crate) sockets: Vec<String>,
}

impl Subject {
    /// As of now.
    pub(crate) fn used(&self) -> Used {
        self.counters.used(&self.sockets, self.flows.open())
    }
}

/// Dropped, it writes down what was used until then.
pub(crate) struct Kept(Arc<Record>);

/// It is there until it has been written for the last time, so that who ends the process finds it.
struct Record {
    subject: Subject,
    since: u64,
    /// The module that serves, if it has a name, and the state that its record is beside.
    of: Mutex<Option<Of>>,
}

struct Of {
    state: PathBuf,
    name: Name,
    release: String,
    /// What was written last.
    written: Option<Used>,
}

impl Kept {
    /// From now on, for this module.
    pub(crate) fn new(module: &Module, subject: Subject) -> Kept {
        let record = Arc::new(Record {
            subject,
            since: now(),
            of: Mutex::new(Of::new(module)),
        });
        look_after(record.clone());
        Kept(record)
    }

    /// Another module serves.
    pub(crate) fn change(&self, module: &Module) {
        self.write();
        *self.0.of.lock().unwrap_or_else(PoisonError::into_inner) = Of::new(module);
    }

    /// As of now.
    pub(crate) fn used(&self) -> Used {
        self.0.subject.used()
    }

    /// Write it down, if it is another than before.
    pub(crate) fn write(&self) {
        self.0.write();
    }
}

impl Record {
    /// What cannot be written is lost, which costs nobody anything.
    fn write(&self) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of) = &mut *of else {
            return;
        };
        let used = self.subject.used();
        if of.written.as_ref() == Some(&used) {
            return;
        }
        let record = LastUse {
            release: of.release.clone(),
            since: self.since,
            until: now(),
            used: used.clone(),
        };
        match record.write(&of.state, &of.name) {
            Ok(()) => of.written = Some(used),
            Err(error) => {
                tracing::debug!(target: "watm::trust", "what {} uses is not noted: {error}", of.name);
            }
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.write();
        if let Some(list) = KEPT.get() {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            list.retain(|record| !Arc::ptr_eq(record, &self.0));
        }
    }
}

impl Of {
    fn new(module: &Module) -> Option<Of> {
        let manifest = &module.seal()?.manifest;
        Some(Of {
            state: module.seal_details().state_path()?,
            name: manifest.name.clone(),
            release: manifest.release.to_string(),
            written: None,
        })
    }
}

/// Write down now what the modules of this process have used: for a program that ends while they run.
/// Those that go by themselves are written down as they go, and all of them once a minute.
pub fn note_usage() {
    let list = KEPT.get();
    let list = list.map(|list| list.lock().unwrap_or_else(PoisonError::into_inner).clone());
    for record in list.iter().flatten() {
        record.write();
    }
}

static KEPT: OnceLock<Mutex<Vec<Arc<Record>>>> = OnceLock::new();

/// Write its record now and then.
fn look_after(record: Arc<Record>) {
    let list = KEPT.get_or_init(|| {
        // Without a thread it is written when the module ends.
        let _ = thread::Builder::new()
            .name("watm-usage".to_owned())
            .spawn(go_round);
        Mutex::default()
    });
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    list.push(record);
}

fn go_round() {
    loop {
        thread::sleep(INTERVAL);
        note_usage();
    }
}
