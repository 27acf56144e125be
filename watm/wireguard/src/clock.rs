//! boringtun's clock.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use boringtun::noise::Tunn;
use mock_instant::MockClock;
use watm_core::Instant;

/// Set this thread's clock. It stands still rather than go backwards: boringtun's
/// subtractions would panic.
pub fn set(now: Instant) {
    MockClock::set_time(MockClock::time().max(Duration::from_nanos(now.0)));
}

/// The dates of the initiations that we send. Peers refuse one that is not newer than the
/// last, whichever generation of ours has sent that.
///
/// A tunnel takes the date of the system when it is made, and counts on with the host's
/// clock. If the system's date was set back since an older generation made its tunnels, new
/// ones begin with the date that those are at.
#[derive(Debug)]
pub struct Dates {
    /// By how many nanoseconds they are ahead of the host's clock: what new ones must have at
    /// least, and what any has at most.
    least: Cell<Option<i64>>,
    most: Cell<Option<i64>>,
}

impl Dates {
    /// `ahead` is what an older generation had at most.
    pub fn new(ahead: Option<i64>) -> Self {
        Dates {
            least: Cell::new(ahead),
            most: Cell::new(ahead),
        }
    }

    /// From now on tunnels are made in the place of older ones.
    pub fn go_on(&self) {
        self.least.set(self.most.get());
    }

    /// By how much they are ahead of the host's clock at most.
    pub fn ahead(&self) -> Option<i64> {
        self.most.get()
    }

    /// Make a tunnel.
    pub fn tunnel(&self, make: impl FnOnce() -> Tunn) -> Tunn {
        let now = MockClock::time();
        let ahead = nanoseconds(date()).saturating_sub(nanoseconds(now));
        let back = self
            .least
            .get()
            .map_or(0, |least| least.saturating_sub(ahead))
            .clamp(0, nanoseconds(now));
        let most = ahead.saturating_add(back);
        self.most
            .set(Some(self.most.get().map_or(most, |old| old.max(most))));
        if back == 0 {
            return make();
        }
        // What is as old as that has come as far.
        MockClock::set_time(now - Duration::from_nanos(back.unsigned_abs()));
        let mut tunn = make();
        MockClock::set_time(now);
        // A tunnel without a session or a handshake has nothing to say, but takes the time.
        let _ = tunn.update_timers(&mut [0; 148]);
        tunn
    }
}

/// boringtun takes this date, whatever we do; here it is only compared.
#[allow(clippy::disallowed_methods)]
fn date() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
