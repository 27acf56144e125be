use std::future::Future;

use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::Outcome;
use crate::failure::Failure;
use crate::system;

/// Whether the program was asked to end.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Wait until it was; for ever if it never is.
    pub(crate) async fn requested(&mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            std::future::pending().await
        }
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
    let runtime = Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("cannot start a runtime: {error}")))?;
    let result = runtime.block_on(async {
        let (ask, asked) = watch::channel(false);
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
            match requested {
                Some(requested) => requested.await,
                None => std::future::pending().await,
            }
            let _ = ask.send(true);
        });
        let result = work(Stop(asked)).await;
        signals.abort();
        result
    });
    // A thread may wait for standard input.
    runtime.shutdown_background();
    result.map(|()| Outcome::Well)
}
