//! boringtun's clock.

use std::time::Duration;

use mock_instant::MockClock;
use watm_core::Instant;

/// Set this thread's clock. It stands still rather than go backwards: boringtun's
/// subtractions would panic.
pub fn set(now: Instant) {
    MockClock::set_time(MockClock::time().max(Duration::from_nanos(now.0)));
}
