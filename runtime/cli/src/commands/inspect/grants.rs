//! Grants and usage in the output of `watm inspect`.

use std::path::Path;

use serde_derive::Serialize;
use watm_runtime::{LastUse, Used};
use watm_seal::{Moment, Sealed};
use watm_sealing::{CapabilitiesText, counted};

use crate::failure::Failure;
use crate::loading::LoadingOptions;

/// The grants and the usage of a module, beside the requests that its imports imply.
#[derive(Serialize)]
pub(super) struct Grants {
    /// The capabilities in its seal, verified or not.
    ceiling: Option<CapabilitiesText>,
    /// The capabilities that this user's host grants. `None` if the module is refused or has no
    /// seal.
    granted: Option<CapabilitiesText>,
    /// The reason why it is refused here.
    refused: Option<String>,
    /// The usage of a module of its name in its last run.
    used: Option<LastUse>,
}

impl Grants {
    pub(super) fn of(
        path: &Path,
        bytes: &[u8],
        loading: &LoadingOptions,
    ) -> Result<Grants, Failure> {
        let trust = loading.trust()?;
        let manifest = Sealed::parse(bytes)
            .ok()
            .map(|sealed| sealed.manifest().clone());
        let name = path.display().to_string();
        let (granted, refused) =
            match trust.would_grant(&name, bytes, &loading.options(false, None)) {
                Ok(granted) => (granted, None),
                Err(error) => (None, Some(error.to_string())),
            };
        Ok(Grants {
            ceiling: manifest.as_ref().map(|it| (&it.capabilities).into()),
            granted: granted.as_ref().map(CapabilitiesText::from),
            refused,
            used: manifest.and_then(|it| trust.last_use(&it.name)),
        })
    }

    pub(super) fn print(&self) {
        let Some(ceiling) = &self.ceiling else {
            if let Some(reason) = &self.refused {
                println!("granted   nothing: {reason}");
            }
            return;
        };
        print("ceiling", &ceiling.words());
        match (&self.granted, &self.refused) {
            (Some(granted), _) => print("granted", &granted.words()),
            (None, Some(reason)) => println!("granted   nothing: {reason}"),
            (None, None) => {}
        }
        match &self.used {
            None => println!("used      not run yet"),
            Some(last) => {
                let (since, until) = (Moment(last.since), Moment(last.until));
                println!(
                    "used      last run: release {}, {since} to {until}",
                    last.release
                );
                print("used", &words(&last.used));
            }
        }
    }
}

fn print(what: &str, words: &[String]) {
    for word in words {
        println!("{what:9} {word}");
    }
}

/// Describes usage in lines for people.
fn words(used: &Used) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    words.extend(used.sockets.iter().map(|socket| format!("socket {socket}")));
    words.extend(used.destinations.iter().map(|known| {
        format!(
            "connect to {}: {} times, {} failed",
            known.target,
            known.connections + known.failures,
            known.failures
        )
    }));
    if used.host_crypto {
        words.push("the host's ciphers".to_owned());
    }
    if used.host_keys {
        words.push("signatures by keys that the host keeps".to_owned());
    }
    words.push(format!(
        "{} KiB of memory, {} KiB at most",
        used.memory_bytes >> 10,
        used.memory_peak_bytes >> 10
    ));
    words.push(format!(
        "{} % of a core",
        f64::from(used.cpu_permille) / 10.0
    ));
    words.push(format!(
        "{}, {} in all, {}",
        counted(used.flows.into(), "flow"),
        used.flows_opened,
        counted(used.instances.into(), "instance")
    ));
    words
}
