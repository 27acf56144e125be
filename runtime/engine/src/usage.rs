//! Writes the usage of modules to disk, for `watm inspect`: once a minute, and when they end. Servers
//! and dialers hold a [`UsageRecord`].

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use watm_seal::Name;

use crate::{LastUse, Module, Used};
use watm_net::counters::Counters;
use watm_net::quota::Quota;
use watm_policy::trust::now;

/// The interval between writes. At most this much is lost when the process is killed.
const INTERVAL: Duration = Duration::from_secs(60);

/// A server or a dialer whose usage is written.
pub struct Subject {
    /// The counters of the host.
    pub counters: Arc<Counters>,
    /// The count of open flows.
    pub flows: Quota,
    /// The outer sockets, as in [`Used`].
    pub sockets: Vec<String>,
}

impl Subject {
    /// Returns the usage as of now.
    pub fn used(&self) -> Used {
        self.counters.used(&self.sockets, self.flows.open())
    }
}

/// A usage record. Dropping it writes what was used until then.
pub struct UsageRecord(Arc<Record>);

/// The record, which stays in the list until it has been written for the last time, so that code at
/// the end of the process finds it.
struct Record {
    subject: Subject,
    since: u64,
    /// The serving module, if it has a name, and the state that its record is beside.
    of: Mutex<Option<Of>>,
}

struct Of {
    state: PathBuf,
    name: Name,
    release: String,
    /// The usage that was written last.
    written: Option<Used>,
}

impl UsageRecord {
    /// Starts a record for this module.
    pub fn new(module: &Module, subject: Subject) -> UsageRecord {
        let record = Arc::new(Record {
            subject,
            since: now(),
            of: Mutex::new(Of::new(module)),
        });
        look_after(record.clone());
        UsageRecord(record)
    }

    /// Continues the record for another module, which serves now.
    pub fn change(&self, module: &Module) {
        self.write();
        *self.0.of.lock().unwrap_or_else(PoisonError::into_inner) = Of::new(module);
        self.write();
    }

    /// Returns the usage as of now.
    pub fn used(&self) -> Used {
        self.0.subject.used()
    }

    /// Writes the usage, if it has changed.
    pub fn write(&self) {
        self.0.write();
    }
}

impl Record {
    /// Writes the usage. An error is ignored: the record is only informative.
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
                tracing::debug!(target: "watm::trust", "cannot save the usage of {}: {error}", of.name);
            }
        }
    }
}

impl Drop for UsageRecord {
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

/// Writes the usage of this process's modules now, for a program that ends while they run. Records
/// are also written when they are dropped, and all of them once a minute.
pub fn note_usage() {
    let list = KEPT.get();
    let list = list.map(|list| list.lock().unwrap_or_else(PoisonError::into_inner).clone());
    for record in list.iter().flatten() {
        record.write();
    }
}

static KEPT: OnceLock<Mutex<Vec<Arc<Record>>>> = OnceLock::new();

/// Adds a record to those that are written once a minute.
fn look_after(record: Arc<Record>) {
    let list = KEPT.get_or_init(|| {
        // Without a thread, records are written when they are dropped.
        let _ = thread::Builder::new()
            .name("watm-usage".to_owned())
            .spawn(run);
        Mutex::default()
    });
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    list.push(record);
}

fn run() {
    loop {
        thread::sleep(INTERVAL);
        note_usage();
    }
}
