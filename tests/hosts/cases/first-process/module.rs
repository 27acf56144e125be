//! Waits for the first call of `process`, without a resource.

use watm_host_kit::{Case, ConfigError, StartOptions, Wakeup, case, check, done};

struct FirstProcess {
    started: u64,
}

impl Case for FirstProcess {
    fn start(_: StartOptions, now: u64) -> Result<Self, ConfigError> {
        Ok(FirstProcess { started: now })
    }

    fn process(&mut self, now: u64, ready: &[u64]) -> Wakeup {
        if !watm_host_kit::is_done() {
            check(now >= self.started, "the clock does not go back");
            check(
                ready.is_empty(),
                "a module without resources has no ready token",
            );
            done();
        }
        Wakeup::OnReady
    }
}

case!(FirstProcess);
