//! The clock of boringtun: time from the host, and dates for initiations. Used by `dial`,
//! `transport` and `tunnel`.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use boringtun::noise::Tunn;
use mock_instant::MockClock;
use watm_core::Instant;

/// Set this thread's clock. It stands still instead of going backwards, because boringtun's
/// subtractions would panic.
pub fn set(now: Instant) {
    MockClock::set_time(MockClock::time().max(Duration::from_nanos(now.0)));
}

/// The dates of sent initiations. Peers refuse an initiation that is not newer than the last one,
/// whichever generation sent that.
///
/// A tunnel takes the system's date when it is made, and then advances with the host's clock. If
/// the system's date was set back after an older generation made its tunnels, new tunnels begin
/// with the date that the older ones have reached.
#[derive(Debug)]
pub struct Dates {
    /// The lead of the dates over the host's clock, in nanoseconds: the least that new tunnels must
    /// have, and the most that any has.
    least: Cell<Option<i64>>,
    most: Cell<Option<i64>>,
}

impl Dates {
    /// Makes the dates. `ahead` is the largest lead in an older generation.
    pub fn new(ahead: Option<i64>) -> Self {
        Dates {
            least: Cell::new(ahead),
            most: Cell::new(ahead),
        }
    }

    /// Continue from the dates so far: tunnels now replace older ones.
    pub fn go_on(&self) {
        self.least.set(self.most.get());
    }

    /// The largest lead over the host's clock, in nanoseconds.
    pub fn ahead(&self) -> Option<i64> {
        self.most.get()
    }

    /// Make a tunnel with the right date.
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
        // A tunnel made that long ago would have reached the date needed.
        MockClock::set_time(now - Duration::from_nanos(back.unsigned_abs()));
        let mut tunn = make();
        MockClock::set_time(now);
        // A tunnel without a session or a handshake sends nothing here, but takes the time.
        let _ = tunn.update_timers(&mut [0; 148]);
        tunn
    }
}

/// The system's date. boringtun takes this date anyway; here it is only compared.
#[allow(clippy::disallowed_methods)]
fn date() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
