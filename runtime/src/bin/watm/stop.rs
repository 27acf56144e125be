use std::future::Future;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Outcome;
use crate::failure::Failure;
use crate::serving::Seconds;
use crate::system;

/// How long connections may take to end after the program was asked to, unless it is told: whoever
/// asked may not wait for long.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct DrainOptions {
    /// How long connections may take to end after SIGTERM or SIGINT, by default 1; a second signal
    /// ends them at once.
    #[arg(long, value_name = "SECONDS")]
    drain_timeout: Option<Seconds>,
}

impl DrainOptions {
    pub(crate) fn time(&self) -> Duration {
        self.drain_timeout.map_or(DRAIN, Seconds::time)
    }
}

/// Whether the program was asked to end.
#[derive(Clone)]
pub(crate) struct Stop {
    /// How often.
    asked: watch::Receiver<u32>,
    /// How long what is open may take then.
    drain: Duration,
}

impl Stop {
    /// Wait until it was; for ever if it never is.
    pub(crate) async fn requested(&mut self) {
        self.requested_times(1).await;
    }

    /// Wait until what is open has had its time, or the program was asked again.
    pub(crate) async fn drained(&mut self) {
        self.requested().await;
        // Over or not: whichever comes first.
        let _ = timeout(self.drain, self.requested_times(2)).await;
    }

    async fn requested_times(&mut self, times: u32) {
        if self.asked.wait_for(|asked| *asked >= times).await.is_err() {
            std::future::pending().await
        }
    }

    /// One that is not asked before somebody sends, for what is to go on until then.
    pub(crate) fn later(&self) -> (watch::Sender<u32>, Stop) {
        let (ask, asked) = watch::channel(0);
        let drain = self.drain;
        (ask, Stop { asked, drain })
    }

    /// What `work` comes to, unless the program is asked to end before.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            outcome = work => Some(outcome),
            () = self.requested() => None,
        }
    }
}

/// Run `work` in a runtime. A signal is told to it, and it ends when it is ready to.
pub(crate) fn run<Work>(work: impl FnOnce(Stop) -> Work) -> Result<Outcome, Failure>
where
    Work: Future<Output = Result<(), Failure>>,
{
    run_draining(DRAIN, work)
}

/// As [`run`], with so much time for what is open.
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
        // Before anything is done that somebody could answer with a signal.
        let requested = match system::end_requested() {
            Ok(requested) => Some(requested),
            Err(error) => {
                // Then a signal ends the program by itself, at once.
                tracing::warn!(target: "watm", "no signal can be caught: {error}");
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
