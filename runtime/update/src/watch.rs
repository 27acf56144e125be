//! Repeated checks of a source, for hosts that keep running.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use watm_seal::Release;

use crate::outcome::{Outcome, Report};
use crate::schedule::Schedule;
use crate::updater::Updater;

/// The interval at which a module that waits for approval is checked: the user may have just given
/// it.
const PENDING: Duration = Duration::from_secs(5);

/// Checks a source repeatedly, for a running host.
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
    /// True if a module waits for approval.
    pending: bool,
}

impl Watch {
    /// Creates a watch. The first check is immediate, and each other follows the one before after
    /// `every`, plus or minus a tenth. A source that fails is asked sooner, then less and less
    /// often. A `Retry-After` of a server is obeyed, up to a day.
    pub fn new(updater: Updater, every: Duration) -> Watch {
        Watch {
            updater,
            schedule: Schedule::new(every),
            due: Instant::now(),
            pending: false,
        }
    }

    /// Waits for the next check and returns its report. Also returns when a module that was kept
    /// aside is in place because its user has approved it. May be dropped while it waits.
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

    /// Schedules the next check within this time, unless it is due sooner.
    pub fn check_within(&mut self, time: Duration) {
        self.due = self.due.min(Instant::now() + time);
    }

    /// Approves the module that waits, as [`Updater::approve`] does.
    pub async fn approve(&mut self, release: Release) -> Report {
        let report = self.updater.approve(release).await;
        if let Outcome::Updated { .. } = report.outcome {
            self.pending = false;
        }
        report
    }

    /// Returns the updater.
    pub fn updater(&self) -> &Updater {
        &self.updater
    }

    /// Returns the time of the next check, unless the approval of a waiting module comes first.
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
