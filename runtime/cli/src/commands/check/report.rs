//! The results of the checks, for people and as JSON. Used by `check`.

use std::fmt::Display;

use serde_derive::Serialize;

use super::subject::Subject;
use crate::failure::Failure;
use crate::words::plain;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", content = "reason", rename_all = "lowercase")]
pub(super) enum Verdict {
    /// The module does what it must.
    Good,
    /// It does not, for this reason.
    Failed(String),
    /// The check does not concern it, or needs an option.
    Skipped(String),
}

impl Verdict {
    /// Creates a failure from an error, with the attempt in front.
    pub(super) fn failed(attempt: &str, error: impl Display) -> Verdict {
        Verdict::Failed(format!("{attempt}: {error}"))
    }
}

/// All results.
#[derive(Serialize)]
pub(super) struct Report {
    module: String,
    sha256: String,
    seed: u64,
    checks: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// The rest of a sentence that begins with "the module".
    does: &'static str,
    #[serde(flatten)]
    verdict: Verdict,
}

impl Report {
    pub(super) fn new(subject: &Subject) -> Report {
        Report {
            module: subject.module.name().to_owned(),
            sha256: subject.module.info().sha256.clone(),
            seed: subject.seed,
            checks: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, name: &'static str, does: &'static str, verdict: Verdict) {
        self.checks.push(Row {
            name,
            does,
            verdict,
        });
    }

    /// Returns true if a check has failed.
    pub(super) fn failed(&self) -> bool {
        self.count(|verdict| matches!(verdict, Verdict::Failed(_))) > 0
    }

    /// Returns the numbers of results, in a line.
    pub(super) fn summary(&self) -> String {
        let good = self.count(|verdict| *verdict == Verdict::Good);
        let failed = self.count(|verdict| matches!(verdict, Verdict::Failed(_)));
        let skipped = self.checks.len() - good - failed;
        format!(
            "{}: {good} passed, {failed} failed, {skipped} skipped (seed {})",
            plain(&self.module),
            self.seed
        )
    }

    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            let json = serde_json::to_string_pretty(self).map_err(Failure::failed)?;
            println!("{json}");
            return Ok(());
        }
        for row in &self.checks {
            let (result, reason) = match &row.verdict {
                Verdict::Good => ("ok     ", None),
                Verdict::Failed(reason) => ("FAILED ", Some(reason)),
                Verdict::Skipped(reason) => ("skipped", Some(reason)),
            };
            println!("{result} {:<15} {}", row.name, row.does);
            if let Some(reason) = reason {
                println!("        {}", plain(reason));
            }
        }
        if !self.failed() {
            println!("{}", self.summary());
        }
        Ok(())
    }

    fn count(&self, is_counted: impl Fn(&Verdict) -> bool) -> usize {
        self.checks
            .iter()
            .filter(|row| is_counted(&row.verdict))
            .count()
    }
}
