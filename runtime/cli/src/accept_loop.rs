//! Accept loops: serve many connections at once, each in its own task. `dial`, `listen`, `proxies`
//! and others use them.

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

/// The most connections at once. Each has two descriptors, of which a process has some ten thousand
/// unless it gets more. Further connections wait in the kernel.
const AT_ONCE: usize = 4096;

/// The pause after a failed accept, for instance for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The time limit for connections to end once told to: twice what closing one takes at most.
const ENDING: Duration = Duration::from_secs(3);

/// Announces the address that clients connect to.
pub(crate) fn announce(address: impl Display) {
    tracing::info!(target: PROGRAM, %address, "listening on {address}");
}

/// Announces one of several listeners, as [`announce`] does.
pub(crate) fn announce_as(what: &str, address: SocketAddr) {
    tracing::info!(target: PROGRAM, %address, what, "listening on {address} for {what}");
}

/// Accepts connections from `accept` and runs `carry` for each, until a signal ends the program.
/// Drops `accept` first then, which must close the listener. Open connections continue until their
/// time is over, and are told to end then.
///
/// Returns an error of `accept`, which means that there are no more connections.
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

/// Logs a failure once, until things work again.
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
