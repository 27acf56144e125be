use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::outcome::{Outcome, Report};
use crate::updater::Updater;

/// A source that failed is asked again after this, then after twice as long each time, up to the
/// interval of the watch.
const FIRST_RETRY: Duration = Duration::from_secs(10);
/// How often a module that waits for an approval is looked at: the user has just given it.
const PENDING: Duration = Duration::from_secs(5);
/// So far from the interval, either way, is each check, so that hosts that were started together do
/// not all ask at once.
const JITTER: f64 = 0.1;

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
    every: Duration,
    /// In a row.
    failures: u32,
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
            every,
            failures: 0,
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
                self.schedule(&report);
                return report;
            }
            sleep_until(soon).await;
            if let Some(report) = self.updater.check_pending().await {
                self.pending = false;
                return report;
            }
        }
    }

    /// What is checked.
    pub fn updater(&self) -> &Updater {
        &self.updater
    }

    /// When the next check is due, unless a module that waits is approved before.
    pub fn due(&self) -> Instant {
        self.due
    }

    fn schedule(&mut self, report: &Report) {
        self.pending = match report.outcome {
            Outcome::Pending { .. } => true,
            Outcome::Updated { .. } | Outcome::Unchanged { .. } => false,
            Outcome::Refused { .. } => self.pending,
        };
        let delay = match report.source_failed {
            None => {
                self.failures = 0;
                self.every
            }
            Some(retry_after) => {
                let factor = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
                self.failures = self.failures.saturating_add(1).min(31);
                let backoff = FIRST_RETRY.saturating_mul(factor).min(self.every);
                backoff.max(retry_after.unwrap_or_default())
            }
        };
        self.due = Instant::now() + delay.mul_f64(1.0 + JITTER * chance());
    }
}

/// From -1 to 1. Without the system's chance it is 0, and hosts meet.
fn chance() -> f64 {
    match getrandom::u32() {
        Ok(number) => f64::from(number) / f64::from(u32::MAX) * 2.0 - 1.0,
        Err(_) => 0.0,
    }
}
