//! The status of updates: `Updates::follow` keeps it, and applications show it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use watm_seal::{Manifest, Name, Release};
use watm_update::{Outcome, Report};

use crate::Error;

/// The result of following a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateStatus {
    /// The source as it was given, without a password.
    pub source: String,
    /// The interval between checks.
    pub every: Duration,
    /// The time of the last check; `None` before the first.
    pub checked: Option<SystemTime>,
    /// The module from the source that serves; `None` while the one that the host started with
    /// does.
    pub serves: Option<(Name, Release)>,
    /// A module that asks for more than is approved, and waits for approval.
    pub waiting: Option<UpdateWaiting>,
    /// The reason why the last check failed, or why the newest module does not serve.
    pub error: Option<UpdateError>,
    /// Warnings of the last check for the user.
    pub warnings: Vec<String>,
    /// The reason why the newest module does not serve.
    refused: Option<UpdateError>,
}

/// A valid module that asks for more than was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateWaiting {
    /// The name.
    pub name: Name,
    /// The release.
    pub release: Release,
    /// The additional requests, each in words for people.
    pub more: Vec<String>,
    /// The file in which it is kept: `watm trust --approve FILE` approves it.
    pub file: PathBuf,
}

/// The reason why no new module serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateError {
    /// A stable code for programs: that of [`Outcome::Refused`], or `swap` for a valid module that
    /// could not be swapped in.
    pub code: &'static str,
    /// The reason in words for people.
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

    /// Takes in a report, and logs what has changed.
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

    /// Notes that this module from the source serves.
    pub(super) fn serves(&mut self, manifest: &Manifest) {
        self.serves = Some((manifest.name.clone(), manifest.release));
        self.refused = None;
        self.error = None;
    }

    /// Notes that this module does not serve. It is not tried again, unless the failure passes.
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
                "{}: {} {} asks for more than is approved and waits for approval: {}; approve it \
                 with `watm trust --approve {}`",
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
