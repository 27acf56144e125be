//! The bytes of one connection, and the time of its last byte. Used by `carry` and `flow_sockets`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use watm_runtime::Meter;

use super::clients::Client;
use super::metrics::ListenerMetrics;

/// Counters for the connection, its client and its listener.
pub(super) struct Traffic {
    began: Instant,
    received: AtomicU64,
    sent: AtomicU64,
    /// The time of the last byte, in milliseconds after `began`.
    last: AtomicU64,
    client: Arc<Client>,
    metrics: ListenerMetrics,
}

impl Traffic {
    pub(super) fn new(client: Arc<Client>, metrics: ListenerMetrics) -> Traffic {
        Traffic {
            began: Instant::now(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            last: AtomicU64::new(0),
            client,
            metrics,
        }
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the time of the last byte, or of the beginning.
    pub(super) fn last(&self) -> Instant {
        self.began + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    /// Waits until nothing has been moved for this long; forever for `None`.
    pub(super) async fn idle(&self, timeout: Option<Duration>) {
        let Some(timeout) = timeout else {
            return std::future::pending().await;
        };
        loop {
            let due = self.last() + timeout;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }

    fn touch(&self) {
        let elapsed = self.began.elapsed().as_millis();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }
}

impl Meter for Traffic {
    fn receive(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.received.fetch_add(bytes, Ordering::Relaxed);
        self.client.receive(bytes);
        self.metrics.received.inc_by(bytes);
        self.touch();
    }

    fn send(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        self.client.send(bytes);
        self.metrics.sent.inc_by(bytes);
        self.touch();
    }
}
