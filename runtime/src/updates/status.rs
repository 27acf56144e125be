use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use watm_seal::{Manifest, Name, Release};
use watm_update::{Outcome, Report};

use crate::Error;

/// What came of following a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateStatus {
    /// As it was given, without a password.
    pub source: String,
    /// How often it is looked at.
    pub every: Duration,
    /// When it was last; `None`: not yet.
    pub checked: Option<SystemTime>,
    /// The module from there that serves; `None`: the one that the host was started with does.
    pub serves: Option<(Name, Release)>,
    /// One that asks for more than is approved, and waits for that.
    pub waiting: Option<UpdateWaiting>,
    /// Why the last check came to nothing, or why the newest module does not serve.
    pub error: Option<UpdateError>,
    /// What somebody should look at all the same.
    pub warnings: Vec<String>,
    /// Why the newest module does not serve.
    refused: Option<UpdateError>,
}

/// A good module that asks for more than was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateWaiting {
    /// Which.
    pub name: Name,
    /// And which of it.
    pub release: Release,
    /// What it asks for in addition, each for people.
    pub more: Vec<String>,
    /// Where it is kept: `watm trust --approve FILE` approves it.
    pub file: PathBuf,
}

/// Why nothing new serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateError {
    /// The same for ever, for programs: that of [`Outcome::Refused`], or `swap` for a good module
    /// that could not be swapped in.
    pub code: &'static str,
    /// For people.
    pub reason: String,
}

impl UpdateStatus {
    pub(super) fn new(source: String, every: Duration) -> UpdateStatus {
        UpdateStatus {
            source,
            every,
            checked: None,
            serves: None,
            waiting: None,
            error: None,
            warnings: Vec::new(),
            refused: None,
        }
    }

    /// Take this in, and log what was not so before.
    pub(super) fn checked(&mut self, report: &Report) {
        self.checked = Some(SystemTime::now());
        let error = match &report.outcome {
            Outcome::Refused { code, reason } => Some(UpdateError {
                code,
                reason: reason.clone(),
            }),
            Outcome::Pending { module, more, file } => {
                self.wait_for(UpdateWaiting {
                    name: module.manifest.name.clone(),
                    release: module.manifest.release,
                    more: more.clone(),
                    file: file.clone(),
                });
                None
            }
            Outcome::Updated { .. } => {
                self.waiting = None;
                self.refused = None;
                None
            }
            Outcome::Unchanged { .. } => {
                self.waiting = None;
                None
            }
        };
        let warnings: Vec<String> = report.warnings.iter().map(|it| it.text.clone()).collect();
        for warning in warnings.iter().filter(|it| !self.warnings.contains(it)) {
            tracing::warn!(target: "watm::update", "{}: {warning}", self.source);
        }
        self.warnings = warnings;
        self.fail(error);
    }

    /// This module from there does.
    pub(super) fn serves(&mut self, manifest: &Manifest) {
        self.serves = Some((manifest.name.clone(), manifest.release));
        self.refused = None;
        self.error = None;
    }

    /// This one does not, and will not be tried again unless the failure passes.
    pub(super) fn swap_failed(&mut self, manifest: &Manifest, error: &Error) {
        let (name, release) = (&manifest.name, manifest.release);
        self.refused = Some(UpdateError {
            code: "swap",
            reason: format!("{name} {release} was not swapped in: {error}"),
        });
        self.fail(None);
    }

    fn wait_for(&mut self, waiting: UpdateWaiting) {
        if self.waiting.as_ref() != Some(&waiting) {
            tracing::warn!(
                target: "watm::update",
                "{}: {} {} asks for more than is approved, and waits: {}; `watm trust --approve {}` \
                 approves it",
                self.source,
                waiting.name,
                waiting.release,
                waiting.more.join(", "),
                waiting.file.display()
            );
        }
        self.waiting = Some(waiting);
    }

    fn fail(&mut self, error: Option<UpdateError>) {
        let error = error.or_else(|| self.refused.clone());
        if let Some(new) = &error
            && self.error.as_ref() != Some(new)
        {
            tracing::warn!(target: "watm::update", "{}: {}", self.source, new.reason);
        }
        self.error = error;
    }
}
