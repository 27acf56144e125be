//! Sets timers, one after the other.

use watm_host_kit::{Case, ConfigError, MILLISECOND, StartOptions, Wakeup, case, check, done};

const STEP: u64 = 100 * MILLISECOND;

struct Timer {
    due: u64,
    left: u32,
}

impl Case for Timer {
    fn start(_: StartOptions, now: u64) -> Result<Self, ConfigError> {
        Ok(Timer {
            due: now + STEP,
            left: 5,
        })
    }

    fn process(&mut self, now: u64, _: &[u64]) -> Wakeup {
        if self.left > 0 && now >= self.due {
            // A busy machine may be late, but not by the length of a test.
            check(now < self.due + 100 * STEP, "the timer is in time");
            self.due = now + STEP;
            self.left -= 1;
            if self.left == 0 {
                done();
            }
        }
        match self.left {
            0 => Wakeup::OnReady,
            _ => Wakeup::At(self.due),
        }
    }
}

case!(Timer);
