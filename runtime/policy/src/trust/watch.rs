//! Checks the loaded modules from time to time, for those that expire while they run. `Module`
//! registers its seal.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use watm_seal::{Digest, Warning};

use super::{Seal, now};

/// The interval between checks. Seals are valid for weeks and months, so an hour is soon enough to
/// report that one has expired.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// A seal, and its warnings that were logged.
struct Watched {
    module: String,
    seal: Weak<Seal>,
    said: Vec<&'static str>,
}

static WATCHED: OnceLock<Mutex<Vec<Watched>>> = OnceLock::new();

/// Unsealed modules that were logged, by name and SHA-256.
static UNSEALED: Mutex<BTreeSet<(String, Digest)>> = Mutex::new(BTreeSet::new());

/// Logs the present warnings, and each that comes up while the module is loaded. An unsealed module
/// is logged once in the life of the process, however often it is loaded.
pub fn watch(module: &str, sha256: Digest, seal: &Arc<Seal>) {
    let mut watched = Watched {
        module: module.to_owned(),
        seal: Arc::downgrade(seal),
        said: Vec::new(),
    };
    if seal.proof.is_none() {
        let mut unsealed = UNSEALED.lock().unwrap_or_else(PoisonError::into_inner);
        if unsealed.insert((module.to_owned(), sha256)) {
            watched.look(now());
        }
        return;
    }
    watched.look(now());
    let list = WATCHED.get_or_init(|| {
        // Without a thread, warnings are only logged at loads and shown in the status.
        let _ = thread::Builder::new()
            .name("watm-seals".to_owned())
            .spawn(run);
        Mutex::default()
    });
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    list.retain(Watched::is_loaded);
    list.push(watched);
}

fn run() {
    loop {
        thread::sleep(INTERVAL);
        if let Some(list) = WATCHED.get() {
            look_at_all(
                &mut list.lock().unwrap_or_else(PoisonError::into_inner),
                now(),
            );
        }
    }
}

/// Checks all loaded modules at this time. Removes those that are no longer loaded.
fn look_at_all(list: &mut Vec<Watched>, now: u64) {
    list.retain(Watched::is_loaded);
    for watched in list {
        watched.look(now);
    }
}

impl Watched {
    fn is_loaded(&self) -> bool {
        self.seal.strong_count() > 0
    }

    /// Logs the warnings that have not been logged.
    fn look(&mut self, now: u64) {
        for warning in self.news(now) {
            tracing::warn!(
                target: "watm::trust",
                module = &*self.module,
                "{}: {warning}",
                self.module
            );
        }
    }

    /// Returns the warnings at this time that have not been logged.
    fn news(&mut self, now: u64) -> Vec<Warning> {
        let Some(seal) = self.seal.upgrade() else {
            return Vec::new();
        };
        let mut warnings = seal.warnings(now);
        warnings.retain(|warning| !self.said.contains(&warning.code()));
        self.said.extend(warnings.iter().map(Warning::code));
        warnings
    }
}

#[cfg(test)]
mod tests {
    use watm_seal::DAY;

    use super::super::tests::sealed;
    use super::*;
    use crate::{LoadOptions, Trust};

    /// Returns a module that expires in `days` days.
    fn expiring(days: u64) -> Arc<Seal> {
        let (root, sealed) = sealed(days);
        let verified = Trust::packaged(root).verify("m.wasm", &sealed, &LoadOptions::default());
        Arc::new(verified.expect("good"))
    }

    fn watched(seal: &Arc<Seal>) -> Watched {
        Watched {
            module: "m.wasm".to_owned(),
            seal: Arc::downgrade(seal),
            said: Vec::new(),
        }
    }

    #[test]
    fn a_module_that_runs_until_it_expires_is_warned_of_once_before_and_once_then() {
        let seal = expiring(30);
        let mut watched = watched(&seal);
        let mut said = Vec::new();
        for hour in 0..24 * 40 {
            for warning in watched.news(now() + hour * 60 * 60) {
                said.push((hour / 24, warning.code()));
            }
        }
        assert_eq!(said, [(16, "expires-soon"), (30, "expired")]);
    }

    #[test]
    fn each_module_is_looked_at_and_what_is_gone_is_forgotten() {
        let (long, short) = (expiring(300), expiring(3));
        let mut list = vec![watched(&long), watched(&short), watched(&short)];
        look_at_all(&mut list, now());
        let said: Vec<_> = list.iter().map(|watched| watched.said.clone()).collect();
        assert_eq!(said, [vec![], vec!["expires-soon"], vec!["expires-soon"]]);
        drop(short);
        look_at_all(&mut list, now() + 400 * DAY);
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].said, ["expired"]);
        drop(long);
        look_at_all(&mut list, now());
        assert!(list.is_empty());
    }
}
