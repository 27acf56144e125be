//! Sockets of datagram flows, with a limit on their number. `carry` takes a place for each flow.
//!
//! Each flow of datagrams has a socket to its upstream until it has been idle for a while, and any
//! stranger can begin one with a single datagram. Flows therefore have half of the process's
//! descriptors. The other half stays for connections, the management port and files.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::traffic::Traffic;

/// The divisor of the flows that are evicted at once, so that searching for the idlest costs little
/// when there are many.
const BATCH: usize = 1024;

/// The sockets of the datagram flows of all listeners.
pub(super) struct FlowSockets {
    /// The limit on descriptors of the process; `None` means unlimited.
    descriptors: Option<u64>,
    open: Mutex<HashMap<u64, Open>>,
    next: AtomicU64,
    /// True once the bound was reached and logged.
    reached: AtomicBool,
}

struct Open {
    traffic: Arc<Traffic>,
    evicted: Arc<Notify>,
}

/// The place of a flow among them.
pub(super) struct FlowSocket {
    all: Arc<FlowSockets>,
    number: u64,
    evicted: Arc<Notify>,
}

impl FlowSockets {
    /// Creates a set for a process with this limit on descriptors; `None` means unlimited.
    pub(super) fn new(descriptors: Option<u64>) -> FlowSockets {
        FlowSockets {
            descriptors,
            open: Mutex::default(),
            next: AtomicU64::new(0),
            reached: AtomicBool::new(false),
        }
    }

    /// Takes a place for a flow. At the bound, this evicts the flow that has been idle the longest.
    pub(super) fn take(self: &Arc<FlowSockets>, traffic: &Arc<Traffic>) -> FlowSocket {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let evicted = Arc::new(Notify::new());
        let mut open = self.lock();
        if let Some(descriptors) = self.descriptors
            && open.len() >= bound(descriptors)
        {
            evict_idlest(&mut open);
            self.log_once(descriptors);
        }
        let entry = Open {
            traffic: traffic.clone(),
            evicted: evicted.clone(),
        };
        open.insert(number, entry);
        drop(open);
        FlowSocket {
            all: self.clone(),
            number,
            evicted,
        }
    }

    fn log_once(&self, descriptors: u64) {
        if self.reached.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            target: "watm",
            flows = bound(descriptors),
            descriptors,
            "datagram flows reached their limit, half of the file descriptors; each new flow \
             evicts the idlest one; raise the hard limit of open files (LimitNOFILE= of systemd, \
             `ulimit -Hn`)"
        );
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().expect("no panic under this lock")
    }
}

fn bound(descriptors: u64) -> usize {
    usize::try_from(descriptors / 2)
        .unwrap_or(usize::MAX)
        .max(1)
}

fn evict_idlest(open: &mut HashMap<u64, Open>) {
    let mut by_age: Vec<(Instant, u64)> = open
        .iter()
        .map(|(number, one)| (one.traffic.last(), *number))
        .collect();
    let count = open.len().div_ceil(BATCH);
    if count < by_age.len() {
        by_age.select_nth_unstable(count);
    }
    for (_, number) in by_age.iter().take(count) {
        if let Some(evicted) = open.remove(number) {
            evicted.evicted.notify_one();
        }
    }
}

impl FlowSocket {
    /// Waits until the flow must make room for another.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for FlowSocket {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}
