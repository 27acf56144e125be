//! The date, which requests contain. Used by `codec` and `stamp`.

use std::cell::Cell;
use std::time::SystemTime;

thread_local! {
    static FIXED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Fix this thread's date at `seconds` since 1970; `None`: follow the system again.
///
/// This is for tests, to which the date is an argument.
pub fn set_wall_clock(seconds: Option<u64>) {
    FIXED.set(seconds);
}

/// The seconds since 1970.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> u64 {
    FIXED.get().unwrap_or_else(|| {
        // The host grants the date as a clock: `wasi:clocks/wall-clock`.
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    })
}
