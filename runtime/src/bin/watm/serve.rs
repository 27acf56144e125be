//! Many connections at once, each by itself.

use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::failure::Failure;
use crate::logging::PROGRAM;
use crate::stop::Stop;

/// Connections at once. Each has two descriptors here, of which a program has some ten thousand
/// at most without being given more. The next ones wait in the kernel.
const AT_ONCE: usize = 4096;

/// How long to wait after nothing could be accepted, for instance because descriptors are short.
const PAUSE: Duration = Duration::from_millis(50);

/// How long connections may take to end once they were told to: twice what a connection takes to
/// close at most.
const ENDING: Duration = Duration::from_secs(3);

/// Say where clients connect to.
pub(crate) fn announce(address: impl Display) {
    tracing::info!(target: PROGRAM, %address, "listening on {address}");
}

/// As [`announce`], of one listener among several.
pub(crate) fn announce_as(what: &str, address: SocketAddr) {
    tracing::info!(target: PROGRAM, %address, what, "listening on {address} for {what}");
}

/// Take connections from `accept`, and have each carried by `carry`, until the program is asked
/// to end. `accept` is dropped first then, and with it should go the listener. Those that are open
/// go on until their time is over, and are told to end then.
///
/// An error of `accept` that says that there will be no more is returned.
pub(crate) async fn all<Accepted, Accepting, Carrying>(
    mut accept: impl FnMut() -> Accepting,
    carry: impl Fn(Accepted, Stop) -> Carrying,
    stop: &mut Stop,
) -> Result<(), Failure>
where
    Accepting: Future<Output = Result<Option<Accepted>, Failure>>,
    Carrying: Future<Output = ()> + Send + 'static,
{
    let mut carried = JoinSet::new();
    let (end, ending) = stop.later();
    let result = loop {
        tokio::select! {
            biased;
            () = stop.requested() => break Ok(()),
            Some(_) = carried.join_next() => {}
            accepted = accept(), if carried.len() < AT_ONCE => match accepted {
                Ok(Some(accepted)) => drop(carried.spawn(carry(accepted, ending.clone()))),
                Ok(None) => sleep(PAUSE).await,
                Err(failure) => break Err(failure),
            },
        }
    };
    drop(accept);
    let all_ended = async |carried: &mut JoinSet<()>| while carried.join_next().await.is_some() {};
    if result.is_ok() {
        tokio::select! {
            () = all_ended(&mut carried) => {}
            () = stop.drained() => {}
        }
    }
    end.send_replace(1);
    let ended = timeout(ENDING, all_ended(&mut carried)).await;
    if ended.is_err() {
        let connections = carried.len();
        tracing::warn!(target: PROGRAM, connections, "{connections} connections did not end in time");
    }
    result
}

/// Logs that something does not work, once until it works again.
#[derive(Default)]
pub(crate) struct Complaints(AtomicBool);

impl Complaints {
    pub(crate) fn failed(&self, what: &str) {
        if self.0.swap(true, Ordering::Relaxed) {
            tracing::debug!(target: "watm", "{what}");
        } else {
            tracing::warn!(target: "watm", "{what}");
        }
    }

    pub(crate) fn works(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
