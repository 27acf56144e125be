//! The options `--watch` and `--update`, and the origins that they name. `options` reads them, and
//! `follow` acts on them.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use watm_runtime::update::Source;
use watm_runtime::{Module, UpdateOptions, Updates};

use crate::durations::interval;
use crate::failure::Failure;
use crate::loading::LoadingOptions;
use crate::network::NetworkArguments;

/// Options for replacing a module while connections are accepted.
#[derive(clap::Args)]
pub(crate) struct WatchOptions {
    /// While connections are accepted: load the module again when its file changes, for later
    /// connections. A module that cannot be loaded, or has another name in its seal, changes
    /// nothing.
    #[arg(long)]
    watch: bool,
    /// While connections are accepted: fetch newer releases of the module from here, for later
    /// connections: a file, a folder, https://…, http://…, oci://registry/repository:tag or
    /// oci://registry/repository@sha256:…. The newest release that ran well is kept, and started
    /// with the next time.
    #[arg(long, value_name = "SOURCE", conflicts_with = "watch")]
    update: Option<Source>,
    /// Interval of the checks of --update, such as 30s, 15m or 1d. By default 1h.
    #[arg(long, value_name = "TIME", value_parser = interval, requires = "update")]
    every: Option<Duration>,
    /// Source of a freshness note about the module, with --update.
    #[arg(long, value_name = "SOURCE", requires = "update")]
    note: Option<Source>,
    #[command(flatten)]
    network: NetworkArguments,
}

/// The origin of newer modules.
pub(crate) enum Following {
    Nothing,
    File(Option<Mark>),
    /// The updates from a source, until `follow` takes them.
    Source(Box<Mutex<Option<Updates>>>),
}

impl WatchOptions {
    /// Returns true if the module follows its file. Fails with `--update`, for commands that
    /// support files alone.
    pub(crate) fn follows_file(&self) -> Result<bool, Failure> {
        match &self.update {
            None => Ok(self.watch),
            Some(_) => Err(Failure::unusable(
                "--update: supported for one TCP address only; here, use --watch with a file that \
                 `watm update --every` updates",
            )),
        }
    }

    /// Returns the origin to follow, and the module that it gave before, which replaces the one in
    /// `file`. Must be called before the file is loaded.
    pub(crate) fn begin(
        &self,
        file: &Path,
        loading: &LoadingOptions,
    ) -> Result<(Following, Option<Module>), Failure> {
        let Some(source) = &self.update else {
            if self.network.is_given() {
                return Err(Failure::unusable(
                    "--ca, --plain-http and --credentials go with --update",
                ));
            }
            return Ok(match self.watch {
                true => (Following::File(Mark::of(file)), None),
                false => (Following::Nothing, None),
            });
        };
        let mut options = UpdateOptions {
            note: self.note.clone(),
            network: self.network.options()?,
            load: loading.for_updates(file)?,
            ..UpdateOptions::new(source.clone())
        };
        if let Some(every) = self.every {
            options.every = every;
        }
        let updates = Updates::new(&loading.engine()?, options)?;
        let before = updates.taken_before();
        Ok((
            Following::Source(Box::new(Mutex::new(Some(updates)))),
            before,
        ))
    }
}

/// Properties by which a file is told from another, or from itself when it was written again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    len: u64,
    modified: Option<SystemTime>,
}

impl Mark {
    /// Reads the properties. Must be called before the file is read. Returns `None` if there is no
    /// such file.
    pub(crate) fn of(path: &Path) -> Option<Mark> {
        let found = fs::metadata(path).ok()?;
        Some(Mark {
            len: found.len(),
            modified: found.modified().ok(),
        })
    }
}
