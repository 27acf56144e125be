//! Reports of checks, for the runtime, the command `watm update` and the Python package.

use std::path::PathBuf;
use std::time::Duration;

use watm_seal::{Digest, Manifest, Refused, Release, Warning};

use crate::error::FetchError;
use crate::fault::Fault;

/// The result of one check of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The source as it was given, without a password.
    pub source: String,
    /// The outcome.
    pub outcome: Outcome,
    /// Warnings that apply nevertheless.
    pub warnings: Vec<Notice>,
    /// Files of a folder that were skipped.
    pub skipped: Vec<Skipped>,
    /// Set if the source itself failed, with the time in its `Retry-After`.
    pub(crate) source_failed: Option<Option<Duration>>,
}

/// The outcome of a check. In each case the place has the old module, or a new one that was
/// verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The source has nothing newer than the module in place.
    Unchanged {
        /// The module in place; `None` if it is not sealed.
        module: Option<Module>,
    },
    /// A new module is in place.
    Updated {
        /// The new module; `None` if it is not sealed, which a policy may allow.
        module: Option<Module>,
        /// The release in place before, if that was a sealed module of the same name.
        previous: Option<Release>,
    },
    /// A valid module requests more than the user has approved. It is kept aside, and the old one
    /// stays. Once the user has approved, the next check puts it in place.
    Pending {
        /// The module that waits.
        module: Module,
        /// The capabilities that it requests in addition, readable for people.
        more: Vec<String>,
        /// The path where it is kept.
        file: PathBuf,
    },
    /// There was nothing usable.
    Refused {
        /// A stable code, for programs: [`Refused::code`], [`FetchError::code`], or `state` or
        /// `place` if this machine is at fault.
        code: &'static str,
        /// The reason, for people.
        reason: String,
    },
}

/// A sealed module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The statements of its signers.
    pub manifest: Manifest,
    /// The SHA-256 of the whole file.
    pub sha256: Digest,
}

/// A warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// A stable code, for programs: [`Warning::code`], or `note` for a freshness note that could
    /// not be used.
    pub code: &'static str,
    /// The text, for people.
    pub text: String,
}

/// A file of a folder that is not a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The path.
    pub file: PathBuf,
    /// A code as in [`Outcome::Refused`].
    pub code: &'static str,
    /// The reason, for people.
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
