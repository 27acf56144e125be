use std::path::PathBuf;
use std::time::Duration;

use watm_update::{NetworkOptions, Source};

use crate::LoadOptions;

/// Where newer modules come from, and which are wanted.
#[derive(Debug, Clone)]
pub struct UpdateOptions {
    /// Where from.
    pub source: Source,
    /// How often to look. By default an hour; a source on this machine is looked at for little.
    pub every: Duration,
    /// Where freshness notes come from, if from anywhere.
    pub note: Option<Source>,
    /// How servers are talked to.
    pub network: NetworkOptions,
    /// Which modules are wanted, and whom to believe about them. What has no seal never is. A
    /// source that is a folder needs a name.
    pub load: LoadOptions,
    /// The file in which the newest module is kept. By default one in the folder `updates` beside
    /// the state, for this source, name and channel.
    pub place: Option<PathBuf>,
}

impl UpdateOptions {
    /// Any module that the engine loads, from here, every hour.
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
