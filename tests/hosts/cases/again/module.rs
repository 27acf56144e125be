//! Asks for another call while it has no resource.

use watm_host_kit::{Case, ConfigError, StartOptions, Wakeup, case, check, done};

struct Again {
    calls: u32,
    last: u64,
}

impl Case for Again {
    fn start(_: StartOptions, now: u64) -> Result<Self, ConfigError> {
        Ok(Again {
            calls: 0,
            last: now,
        })
    }

    fn process(&mut self, now: u64, _: &[u64]) -> Wakeup {
        if self.calls < 100 {
            self.calls += 1;
            check(now >= self.last, "the clock does not go back");
            self.last = now;
        }
        match self.calls {
            100 => {
                done();
                Wakeup::OnReady
            }
            _ => Wakeup::Again,
        }
    }
}

case!(Again);
