//! Signals that end a program, and the time that its connections have then. Commands run inside of
//! `run`.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::durations::Seconds;
use crate::failure::{Failure, Outcome};
use crate::system;

/// The default time for connections to end after a signal. Its sender may not wait for long.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct DrainOptions {
    /// Time for connections to end after SIGTERM or SIGINT, by default 1; a second signal ends them
    /// at once.
    #[arg(long, value_name = "SECONDS")]
    drain_timeout: Option<Seconds>,
}

impl DrainOptions {
    pub(crate) fn time(&self) -> Duration {
        self.drain_timeout.map_or(DRAIN, Seconds::time)
    }
}

/// A handle that tells whether the program must end.
#[derive(Clone)]
pub(crate) struct Stop {
    /// The number of signals so far.
    asked: watch::Receiver<u32>,
    /// The time that open connections have then.
    drain: Duration,
}

impl Stop {
    /// Waits for the first signal; forever if there is none.
    pub(crate) async fn requested(&mut self) {
        self.requested_times(1).await;
    }

    /// Waits until open connections have had their time, or a second signal arrives.
    pub(crate) async fn drained(&mut self) {
        self.requested().await;
        // Both outcomes mean the end.
        let _ = timeout(self.drain, self.requested_times(2)).await;
    }

    async fn requested_times(&mut self, times: u32) {
        if self.asked.wait_for(|asked| *asked >= times).await.is_err() {
            std::future::pending().await
        }
    }

    /// Returns a handle of which the caller decides when it is told, for work that continues until
    /// then.
    pub(crate) fn later(&self) -> (watch::Sender<u32>, Stop) {
        let (ask, asked) = watch::channel(0);
        let drain = self.drain;
        (ask, Stop { asked, drain })
    }

    /// Returns the result of `work`, or `None` if a signal arrives before.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            outcome = work => Some(outcome),
            () = self.requested() => None,
        }
    }
}

/// Runs `work` in a runtime. Signals are passed to it, and it ends when it is ready.
pub(crate) fn run<Work>(work: impl FnOnce(Stop) -> Work) -> Result<Outcome, Failure>
where
    Work: Future<Output = Result<(), Failure>>,
{
    run_draining(DRAIN, work)
}

/// Runs `work` as [`run`] does, with this time for open connections.
pub(crate) fn run_draining<Work>(
    drain: Duration,
    work: impl FnOnce(Stop) -> Work,
) -> Result<Outcome, Failure>
where
    Work: Future<Output = Result<(), Failure>>,
{
    system::raise_descriptors();
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start a runtime: {error}")))?;
    let result = runtime.block_on(async {
        let (ask, asked) = watch::channel(0);
        // Before anything that somebody could answer with a signal.
        let requested = match system::end_requested() {
            Ok(requested) => Some(requested),
            Err(error) => {
                // A signal ends the program immediately in this case.
                tracing::warn!(target: "watm", "cannot catch signals: {error}");
                None
            }
        };
        let signals = tokio::spawn(async move {
            let mut next = requested;
            while let Some(requested) = next {
                requested.await;
                ask.send_modify(|asked| *asked += 1);
                next = system::end_requested().ok();
            }
            std::future::pending::<()>().await
        });
        let result = work(Stop { asked, drain }).await;
        signals.abort();
        result
    });
    // A thread may wait for standard input.
    runtime.shutdown_background();
    result.map(|()| Outcome::Well)
}
