//! Waits for a change of the network, and then for a call too many.

use watm_host_kit::{
    Case, ConfigError, DatagramSocket, MILLISECOND, StartOptions, Wakeup, case, check, done,
    refused, same,
};

/// A second report of the same change comes within this time.
const AFTER: u64 = 500 * MILLISECOND;

struct NetworkChanged {
    /// The time of the last call.
    last: u64,
    changes: u32,
    due: Option<u64>,
    /// A host may watch the network for modules that have a socket only.
    _socket: DatagramSocket,
}

impl Case for NetworkChanged {
    fn start(_: StartOptions, now: u64) -> Result<Self, ConfigError> {
        Ok(NetworkChanged {
            last: now,
            changes: 0,
            due: None,
            _socket: DatagramSocket::open("listen", 1).map_err(refused)?,
        })
    }

    fn network_changed(&mut self, now: u64) {
        self.changes += 1;
        if self.changes == 1 {
            check(now >= self.last, "the time is not before the last call");
            self.last = now;
        }
    }

    fn process(&mut self, now: u64, _: &[u64]) -> Wakeup {
        let first = self.changes > 0 && self.due.is_none();
        if first {
            check(now >= self.last, "the time is not before the report");
            self.due = Some(now + AFTER);
        }
        self.last = now;
        match self.due {
            Some(due) if now >= due && !watm_host_kit::is_done() => {
                same("the reports", &self.changes, &1);
                done();
                Wakeup::OnReady
            }
            Some(due) if now < due => Wakeup::At(due),
            _ => Wakeup::OnReady,
        }
    }
}

case!(NetworkChanged);
