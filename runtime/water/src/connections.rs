//! State that the connections of one module have in common: its first fault, and their end. `runner`
//! creates it, and each `worker` holds it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use watm_engine::Ticking;

use crate::{Error, Module};

/// The connections of one module, of which each has an instance of its own.
pub struct Connections {
    /// The first failure of an instance that its connections do not explain.
    fault: watch::Sender<Option<String>>,
    /// True once the connections must end.
    over: watch::Sender<bool>,
    /// Keeps the epoch advancing while there is an instance.
    _ticking: Ticking,
}

impl Connections {
    /// Creates the state for instances of this module.
    pub(super) fn new(module: &Module) -> Result<Connections, Error> {
        Ok(Connections {
            fault: watch::Sender::new(None),
            over: watch::Sender::new(false),
            _ticking: module.engine().tick()?,
        })
    }

    /// Returns the first failure of an instance that its connections do not explain, if there is
    /// one by now or within `time`.
    pub(super) async fn fault_within(&self, time: Duration) -> Option<String> {
        let mut fault = self.fault.subscribe();
        let found = timeout(time, fault.wait_for(Option::is_some)).await;
        found.ok()?.ok()?.clone()
    }

    /// Notes a failure of an instance that its connections do not explain.
    pub(super) fn report_fault(&self, reason: &str) {
        self.fault.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert_with(|| reason.to_owned());
            first
        });
    }

    /// Resets the open connections.
    pub fn end(&self) {
        self.over.send_replace(true);
    }

    /// Resets the connections that are still open after `time`. Does nothing if none are left then.
    pub fn end_after(self: &Arc<Self>, time: Duration) {
        // Nobody but the connections holds them for long.
        let connections = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(time).await;
            if let Some(connections) = connections.upgrade() {
                connections.end();
            }
        });
    }

    /// Returns when the connections must be reset.
    pub(super) async fn ended(&self) {
        let mut over = self.over.subscribe();
        // An error would mean that no sender is left, and `self` holds one.
        let _ = over.wait_for(|over| *over).await;
    }
}
