//! Looks at the modules that are loaded from time to time, for those that expire while they run.

use std::sync::{Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::{Seal, now};

/// Seals are valid for weeks and months; an hour is soon enough to say that one is not any more.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// A seal, and how many of its warnings have been said.
type Watched = (String, Weak<Seal>, Vec<&'static str>);

static WATCHED: OnceLock<Mutex<Vec<Watched>>> = OnceLock::new();

/// Log the warnings that there are now, and each that comes up while the module is loaded.
pub(crate) fn watch(module: &str, seal: &std::sync::Arc<Seal>) {
    let mut watched = (
        module.to_owned(),
        std::sync::Arc::downgrade(seal),
        Vec::new(),
    );
    look(&mut watched, now());
    if seal.proof.is_none() {
        return;
    }
    let list = WATCHED.get_or_init(|| {
        // Without a thread nothing is said but at loads and in status.
        let _ = thread::Builder::new()
            .name("watm-seals".to_owned())
            .spawn(go_round);
        Mutex::default()
    });
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(|(_, seal, _)| seal.strong_count() > 0);
    list.push(watched);
}

fn go_round() {
    loop {
        thread::sleep(INTERVAL);
        if let Some(list) = WATCHED.get() {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            list.retain_mut(|watched| look(watched, now()));
        }
    }
}

/// Say what has not been said. Whether the module is still there.
fn look((module, seal, said): &mut Watched, now: u64) -> bool {
    let Some(seal) = seal.upgrade() else {
        return false;
    };
    for warning in seal.warnings(now) {
        if !said.contains(&warning.code()) {
            said.push(warning.code());
            tracing::warn!(target: "watm::trust", module = &**module, "{module}: {warning}");
        }
    }
    true
}
