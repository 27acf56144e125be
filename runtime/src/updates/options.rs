//! Options of updates, which applications pass to `Updates::new`.

use std::path::PathBuf;
use std::time::Duration;

use watm_update::{NetworkOptions, Source};

use crate::LoadOptions;

/// The source of newer modules, and the modules that are wanted.
#[derive(Debug, Clone)]
pub struct UpdateOptions {
    /// The source.
    pub source: Source,
    /// The interval between checks. By default an hour; a source on this machine is cheap to check.
    pub every: Duration,
    /// The source of freshness notes, if any.
    pub note: Option<Source>,
    /// Network options for servers.
    pub network: NetworkOptions,
    /// The modules that are wanted, and the trust in their signers. A module without a seal is
    /// never taken. A source that is a folder needs a name.
    pub load: LoadOptions,
    /// The file in which the newest module is kept. By default one in the folder `updates` beside
    /// the state, for this source, name and channel.
    pub place: Option<PathBuf>,
}

impl UpdateOptions {
    /// Takes any module that the engine loads from `source`, and checks every hour.
    pub fn new(source: Source) -> UpdateOptions {
        UpdateOptions {
            source,
            every: Duration::from_secs(60 * 60),
            note: None,
            network: NetworkOptions::default(),
            load: LoadOptions::default(),
            place: None,
        }
    }
}
