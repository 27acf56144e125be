use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use watm_seal::Release;

use crate::outcome::{Outcome, Report};
use crate::schedule::Schedule;
use crate::updater::Updater;

/// How often a module that waits for an approval is looked at: the user has just given it.
const PENDING: Duration = Duration::from_secs(5);

/// Checks a source again and again, for a host that runs.
///
/// ```no_run
/// # async fn run(updater: watm_update::Updater) {
/// use std::time::Duration;
/// use watm_update::{Outcome, Watch};
///
/// let mut watch = Watch::new(updater, Duration::from_secs(60 * 60));
/// loop {
///     let report = watch.next().await;
///     if let Outcome::Updated { .. } = report.outcome {
///         // The place has a new module, which is verified again when it is loaded.
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Watch {
    updater: Updater,
    schedule: Schedule,
    due: Instant,
    /// A module waits for an approval.
    pending: bool,
}

impl Watch {
    /// The first check is at once, and each other this long after the one before, give or take a
    /// tenth. A source that fails is asked sooner, then less and less often; one that says when to
    /// come back is obeyed, for a day at most.
    pub fn new(updater: Updater, every: Duration) -> Watch {
        Watch {
            updater,
            schedule: Schedule::new(every),
            due: Instant::now(),
            pending: false,
        }
    }

    /// What the next check says, when it is time for it, or that a module which was kept aside is in
    /// place now that its user has approved it. May be dropped while it waits.
    pub async fn next(&mut self) -> Report {
        loop {
            let soon = Instant::now() + PENDING;
            if !self.pending || self.due <= soon {
                sleep_until(self.due).await;
                let report = self.updater.check().await;
                self.plan(&report);
                return report;
            }
            sleep_until(soon).await;
            if let Some(report) = self.updater.check_pending().await {
                self.pending = false;
                return report;
            }
        }
    }

    /// Have the next check within this time, if it was not to be before.
    pub fn check_within(&mut self, time: Duration) {
        self.due = self.due.min(Instant::now() + time);
    }

    /// As [`Updater::approve`].
    pub async fn approve(&mut self, release: Release) -> Report {
        let report = self.updater.approve(release).await;
        if let Outcome::Updated { .. } = report.outcome {
            self.pending = false;
        }
        report
    }

    /// What is checked.
    pub fn updater(&self) -> &Updater {
        &self.updater
    }

    /// When the next check is due, unless a module that waits is approved before.
    pub fn due(&self) -> Instant {
        self.due
    }

    fn plan(&mut self, report: &Report) {
        self.pending = match report.outcome {
            Outcome::Pending { .. } => true,
            Outcome::Updated { .. } | Outcome::Unchanged { .. } => false,
            Outcome::Refused { .. } => self.pending,
        };
        let delay = match report.source_failed {
            None => self.schedule.after_success(),
            Some(retry_after) => self.schedule.after_failure(retry_after),
        };
        self.due = Instant::now() + delay;
    }
}
