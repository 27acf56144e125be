//! A program of WASI that runs, starts again after failures, and can be replaced. The role and the
//! server of programs use it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;
use watm_net::counters::Counters;
use watm_wasi::{Start, Stop};

use crate::backoff::Backoff;
use crate::incoming;
use crate::{Error, Module, ModuleKind};

/// The time in which the failure of a program counts as one to start.
pub(crate) const STARTING: Duration = Duration::from_secs(1);

/// A program that runs, or starts again.
pub(crate) struct Running {
    name: String,
    task: incoming::Task,
    ended: watch::Receiver<Option<Result<(), String>>>,
    serving: watch::Sender<Arc<Start>>,
}

impl Running {
    /// Starts the program in a task of the tokio runtime that this is called in. The task ends with
    /// the result.
    pub(crate) fn new(start: Start, name: &str, counters: &Arc<Counters>) -> Running {
        let (tell, ended) = watch::channel(None);
        let (serving, next) = watch::channel(Arc::new(start));
        let running = run(next, name.to_owned(), counters.clone());
        let task = incoming::Task::spawn(async move {
            tell.send_replace(Some(running.await));
        });
        Running {
            name: name.to_owned(),
            task,
            ended,
            serving,
        }
    }

    /// Returns the program that runs now.
    pub(crate) fn serving(&self) -> Arc<Start> {
        self.serving.borrow().clone()
    }

    /// Runs this program in its place. The former one ends at once.
    pub(crate) fn replace(&self, next: Start) {
        self.serving.send_replace(Arc::new(next));
    }

    /// Waits until the program has ended by itself. Fails with [`Error::Trap`] if it failed to start.
    pub(crate) fn ended(&self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (mut ended, module) = (self.ended.clone(), self.name.clone());
        async move {
            let ended = ended.wait_for(Option::is_some).await;
            match ended.map(|ended| ended.clone()) {
                Ok(Some(Ok(()))) => Ok(()),
                Ok(Some(Err(reason))) => Err(Error::Trap { module, reason }),
                Ok(None) | Err(_) => Err(Error::Closed { module }),
            }
        }
    }

    /// Cancels the program, and waits until it is gone.
    pub(crate) async fn close(self) {
        let Running {
            task, mut ended, ..
        } = self;
        drop(task);
        // An error means that the task is gone.
        while ended.changed().await.is_ok() {}
    }
}

/// Runs instances of the program, one after another, until one ends by itself or fails to start.
async fn run(
    mut serving: watch::Receiver<Arc<Start>>,
    name: String,
    counters: Arc<Counters>,
) -> Result<(), String> {
    let begun = Instant::now();
    let mut backoff = Backoff::new(begun);
    loop {
        let start = serving.borrow_and_update().clone();
        let Some(ended) = unless_replaced(&mut serving, start.run()).await else {
            continue;
        };
        let Err(stop) = ended else {
            return Ok(());
        };
        let now = Instant::now();
        let reason = stop.reason();
        if counters.restarts.get() == 0 && now.duration_since(begun) < STARTING {
            return Err(reason);
        }
        let wait = backoff.failed(now);
        tracing::error!(
            target: "watm::server",
            server = name.as_str(),
            "the program {}; it starts again in {wait:?}",
            match stop {
                Stop::Exit(_) => reason,
                Stop::Trap(_) => format!("failed: {reason}"),
            }
        );
        unless_replaced(&mut serving, sleep(wait)).await;
        counters.restarts.add(1);
        backoff.started(Instant::now());
    }
}

/// Returns the result of `work`, or `None` if another program takes its place before.
async fn unless_replaced<T>(
    serving: &mut watch::Receiver<Arc<Start>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut replaced = pin!(serving.changed());
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        // An error means that nobody is left to replace it, and this task ends soon.
        Poll::Pending => match replaced.as_mut().poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(None),
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        },
    })
    .await
}

/// Refuses a module that is no program.
pub(crate) fn check_module(module: &Module) -> Result<(), Error> {
    let kind = module.info().kind;
    match kind {
        ModuleKind::Program => Ok(()),
        _ => Err(Error::Module {
            module: module.name().to_owned(),
            reason: format!(
                "is a {kind}, and no program of WASI 0.2; use it as a relay, a listener or a server"
            ),
        }),
    }
}
