//! Asks for waits of more than an hour, and sets a timer of a millisecond a hundred times.

#[cfg(not(feature = "interface-0-1"))]
use watm_host_kit::pacing;
#[cfg(feature = "interface-0-1")]
use watm_host_kit::sockets as pacing;
use watm_host_kit::{Case, ConfigError, MILLISECOND, StartOptions, Wakeup, case, check, done};

const CALLS: u64 = 100;

/// More than a hundred times the longest wait.
const LONGEST: u64 = 5000 * MILLISECOND;

struct Coalesce {
    begin: u64,
    calls: u64,
}

impl Case for Coalesce {
    fn start(_: StartOptions, now: u64) -> Result<Self, ConfigError> {
        pacing::coalesce(u32::MAX);
        Ok(Coalesce {
            begin: now,
            calls: 0,
        })
    }

    fn process(&mut self, now: u64, _: &[u64]) -> Wakeup {
        self.calls += 1;
        if self.calls < CALLS {
            return Wakeup::At(now + MILLISECOND);
        }
        if self.calls == CALLS {
            let took = (now - self.begin) / MILLISECOND;
            check(
                now - self.begin < LONGEST,
                &format!("{CALLS} calls take {took} ms"),
            );
            done();
        }
        Wakeup::OnReady
    }
}

case!(Coalesce);
