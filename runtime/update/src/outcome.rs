use std::path::PathBuf;
use std::time::Duration;

use watm_seal::{Digest, Manifest, Refused, Release, Warning};

use crate::error::FetchError;
use crate::updater::Fault;

/// What came of one check of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// As it was given, without a password.
    pub source: String,
    /// What was done.
    pub outcome: Outcome,
    /// What somebody should look at all the same.
    pub warnings: Vec<Notice>,
    /// Files of a folder that were passed over.
    pub skipped: Vec<Skipped>,
    /// Whether the source itself was to blame, and how long it asks to be left alone.
    pub(crate) source_failed: Option<Option<Duration>>,
}

/// What was done. Whatever it is, the place has the old module, or a new one that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The source has nothing newer than what is in place.
    Unchanged {
        /// What is; `None` if it is not sealed.
        module: Option<Module>,
    },
    /// A new module is in place.
    Updated {
        /// Which; `None` if it is not sealed, which a policy may allow.
        module: Option<Module>,
        /// What was there before, if that was a sealed module of the same name.
        previous: Option<Release>,
    },
    /// A good module asks for more than the user has approved. It is kept aside; the old one
    /// stays. Once the user has approved, the next check puts it in place.
    Pending {
        /// Which.
        module: Module,
        /// What it asks for in addition, each for people.
        more: Vec<String>,
        /// Where it is kept.
        file: PathBuf,
    },
    /// Nothing that could be used.
    Refused {
        /// The same for ever, for programs: [`Refused::code`], [`FetchError::code`], or `state` or
        /// `place` if it is this machine that is at fault.
        code: &'static str,
        /// For people.
        reason: String,
    },
}

/// A sealed module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// What its signers say about it.
    pub manifest: Manifest,
    /// Of the whole file.
    pub sha256: Digest,
}

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The same for ever, for programs: [`Warning::code`], or `note` for a freshness note that
    /// could not be used.
    pub code: &'static str,
    /// For people.
    pub text: String,
}

/// A file of a folder that is none of those looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Which.
    pub file: PathBuf,
    /// As that of [`Outcome::Refused`].
    pub code: &'static str,
    /// For people.
    pub reason: String,
}

impl From<&Warning> for Notice {
    fn from(warning: &Warning) -> Notice {
        Notice {
            code: warning.code(),
            text: warning.to_string(),
        }
    }
}

impl Skipped {
    pub(crate) fn new(file: PathBuf, refused: &Refused) -> Skipped {
        Skipped {
            file,
            code: refused.code(),
            reason: refused.to_string(),
        }
    }
}

impl From<&Fault> for Outcome {
    fn from(fault: &Fault) -> Outcome {
        Outcome::Refused {
            code: fault.code(),
            reason: fault.to_string(),
        }
    }
}

impl Report {
    pub(crate) fn new(source: String, outcome: Outcome) -> Report {
        Report {
            source,
            outcome,
            warnings: Vec::new(),
            skipped: Vec::new(),
            source_failed: None,
        }
    }

    pub(crate) fn of_fault(source: String, fault: &Fault) -> Report {
        Report {
            source_failed: fault.fetch().map(FetchError::retry_after),
            ..Report::new(source, fault.into())
        }
    }
}
